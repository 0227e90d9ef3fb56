"""Whose lines a launcher's mark stands before: ``3: `` of srun, a worker's name and pid, a pod.

What NCCL prints behind a mark says of which host and process it is. ``srun --label`` puts a task's
number before a line: that of a rank where each rank is a task of its own, which holds only where no
line behind such a number names another rank.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.ingest.readers.nccl_log.collected import Collected, Kept
from advisor.ingest.readers.nccl_log.communicators import Registry, Slot
from advisor.ingest.readers.nccl_log.facts import Fact
from advisor.ingest.readers.nccl_log.hosts import Hosts
from advisor.ingest.readers.nccl_log.prefix import Thread

Mark = tuple[str, str]
"""File, and what stands before all lines of one writer in it."""

_MOST = 4_096
"""Writers that are told apart, and processes of each."""
_OF_PROCESS = re.compile(r"\([^()]{0,80}\bpid=\d{1,9}[^()]{0,60}\)")
# What differs between lines of one writer: torch's own mark, a stream, a time.
_OF_LINE = re.compile(
    r"\[(?:rank|default)\d{1,7}\]:|<std(?:out|err)>|\[?\d{4}-\d\d-\d\d[T ][\d:.,]{5,20}Z?\]?|"
    r"(?:ERROR|WARNING|INFO) .{0,120}|\s"
)
_TASK = re.compile(r"(\d{1,7}):")


def mark_of(path: str, launcher: str) -> Mark:
    """The mark of a line before which ``launcher`` stands; of none, and of none but times, ''."""
    process = _OF_PROCESS.match(launcher)
    return path, process[0] if process else _OF_LINE.sub("", launcher)


@dataclass
class Marks:
    """``see`` NCCL's lines and ``see_rank`` those that name a rank; then ``place`` what is kept."""

    _processes: dict[Mark, set[tuple[str, int]]] = field(default_factory=dict)
    _ranks: dict[Mark, set[int]] = field(default_factory=dict)
    _kept: dict[int, Mark] = field(default_factory=dict)

    def see(self, path: str, launcher: str, thread: Thread) -> None:
        """Take a line with NCCL's prefix."""
        if (mark := mark_of(path, launcher))[1] and thread.host:
            _add(self._processes, mark, (thread.host, thread.pid))

    def see_rank(self, path: str, launcher: str, rank: int) -> None:
        """Take a line that names the rank which printed it."""
        if (mark := mark_of(path, launcher))[1]:
            _add(self._ranks, mark, rank)

    def keeps(self, index: int, path: str, launcher: str) -> None:
        """A line without NCCL's prefix is kept as the collected record ``index``."""
        self._kept[index] = mark_of(path, launcher)

    def place(self, collected: Collected, hosts: Hosts) -> None:
        """Give those lines the host and rank that their marks, or other lines, tell of them."""
        of_rank = self._hosts_of_ranks(collected)
        for index, mark in self._kept.items():
            kept = self._marked(collected.kept[index], mark, collected.registry)
            host = kept.slot.host or of_rank.get((kept.where[0], rank_of(kept)), "")
            slot = replace(kept.slot, host=hosts.known(host, kept.where[0]))
            collected.kept[index] = replace(kept, slot=slot)

    def _hosts_of_ranks(self, collected: Collected) -> dict[tuple[str, int | None], str]:
        """The host of each rank of which a line without a prefix tells one, by file."""
        told: dict[tuple[str, int | None], set[str]] = {}
        for index in self._kept:
            kept = collected.kept[index]
            if kept.slot.host and (rank := rank_of(kept)) is not None:
                told.setdefault((kept.where[0], rank), set()).add(kept.slot.host)
        return {key: hosts.pop() for key, hosts in told.items() if len(hosts) == 1}

    def _marked(self, kept: Kept, mark: Mark, registry: Registry) -> Kept:
        fact, slot = kept.record, self.slot(mark)
        if not isinstance(fact, Fact) or kept.slot.host not in mark[1]:  # the line names another
            return kept
        if fact.rank is not None or fact.per != "rank":
            return replace(kept, slot=kept.slot if slot is None else Slot(slot.host, 0))
        fact = replace(fact, started_as=self.rank(mark, registry))
        return replace(kept, slot=slot or kept.slot, record=fact)

    def slot(self, mark: Mark) -> Slot | None:
        """The only process, or the only host, of which NCCL's lines have this mark."""
        processes = self._processes.get(mark, set())
        if len(processes) == 1:
            return Slot(*next(iter(processes)))
        hosts = {host for host, _ in processes}
        return Slot(hosts.pop(), 0) if len(hosts) == 1 else None

    def rank(self, mark: Mark, registry: Registry) -> int | None:
        """The rank whose number srun put before a line, where its tasks are ranks."""
        task = _TASK.fullmatch(mark[1])
        if task is None:
            return None
        told = list(self._told(mark[0], registry))
        is_rank = all(number == rank for number, rank in told) and any(rank for _, rank in told)
        return int(task[1]) if is_rank else None

    def _told(self, path: str, registry: Registry) -> Iterator[tuple[int, int]]:
        """Each task of a file with a rank that a line of it names, or that its communicator has."""
        largest = max((member.line.ranks for member in registry.members.values()), default=0)
        for mark in self._ranks.keys() | self._processes.keys():
            if mark[0] != path or (task := _TASK.fullmatch(mark[1])) is None:
                continue
            for rank in self._ranks.get(mark, ()):
                yield int(task[1]), rank
            for host, pid in self._processes.get(mark, ()):
                member = registry.only_member_of_process(Slot(host, pid))
                if member is not None and member.line.ranks == largest:
                    yield int(task[1]), member.line.rank


def _add(kept: dict[Mark, set[Any]], mark: Mark, item: Any) -> None:
    found = kept.get(mark)
    if found is None and len(kept) < _MOST:
        found = kept[mark] = set()
    if found is not None and len(found) < _MOST:
        found.add(item)


def rank_of(kept: Kept) -> int | None:
    """The rank that a kept line names itself."""
    return kept.record.rank if isinstance(kept.record, Fact) else None
