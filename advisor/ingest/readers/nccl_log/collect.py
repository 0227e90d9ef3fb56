"""All logs of a run, line by line, into facts with their thread; then into rows with their rank."""

from dataclasses import dataclass, field
from pathlib import Path

from advisor.ingest.readers.nccl_log.by_release import keep_to_releases
from advisor.ingest.readers.nccl_log.collected import Collected, Where
from advisor.ingest.readers.nccl_log.communicators import Slot
from advisor.ingest.readers.nccl_log.damaged import is_damaged
from advisor.ingest.readers.nccl_log.facts import CommLine, Fact, Parsed
from advisor.ingest.readers.nccl_log.failures import Failures
from advisor.ingest.readers.nccl_log.graphs import Blocks
from advisor.ingest.readers.nccl_log.hosts import Hosts
from advisor.ingest.readers.nccl_log.jobs import Told
from advisor.ingest.readers.nccl_log.lines import parse_device, parse_line
from advisor.ingest.readers.nccl_log.losses import Losses
from advisor.ingest.readers.nccl_log.prefix import Record, Thread, records
from advisor.ingest.readers.nccl_log.tables import Matrix, Tuning, parse_choice
from advisor.vocabulary.numbers import MOST_RANKS

_BLOCK_STARTS = frozenset(" +=PCRTGN")  # of system trees, paths, patterns, rings and trees
_NOBODY = Thread("", 0, 0)
_NO_SLOT = Slot("", 0)
_RANKS = "communicator of more ranks than any job has"
_ROW = "broken row of the matrix"
_NO_HEAD = "system tree without its heading"


@dataclass
class Log:
    """Feed it lines of any number of files, then take what it :attr:`collected`."""

    collected: Collected = field(default_factory=Collected)
    messages: int = 0
    told: dict[str, Told] = field(default_factory=dict)
    """What each file tells of the job that it is of."""
    _failures: Failures = field(init=False)
    _losses: Losses = field(init=False)
    _hosts: Hosts = field(default_factory=Hosts)
    _blocks: dict[Thread, Blocks] = field(default_factory=dict)
    _tuning: dict[Thread, Tuning] = field(default_factory=dict)
    _matrix: Matrix = field(default_factory=Matrix)
    _matrix_slot: Slot | None = None
    _last: Thread = _NOBODY

    def __post_init__(self) -> None:
        self._failures = Failures(self.collected)
        self._losses = Losses(self.collected.counts)

    def feed(self, line: str, where: Where, *, whole: bool = True, launcher: str = "") -> int:
        """Take one line; how many of its messages were understood.

        ``whole`` is false for the last line of a file that does not end it; ``launcher`` is what
        stood before the line.
        """
        understood = 0
        self._failures.clock.see(where[0], launcher, line)
        counts = self.collected.counts
        lost_before = sum(counts.values())
        found = [self._whole(record) for record in records(line)]
        for record in found:
            if record.level:
                self.messages += 1
            taken = self._take(record, where, launcher)
            understood += taken
            if not taken:
                is_last = record is found[-1]
                self._losses.not_understood(record, line, is_last=is_last, whole=whole)
        if found and found[-1].level:
            self._losses.ended_with_message(line)
        if sum(counts.values()) == lost_before and (
            is_damaged(line, understood=understood > 0)
            or any(not record.level and self._matrix.is_damaged(record.text) for record in found)
        ):
            self._losses.damaged()
        return understood

    def measured(self, line: str, where: Where) -> None:
        """A row of a benchmark's table, which shows that the program went on."""
        self._failures.measured(line, where)

    def finish(self) -> None:
        """Close what is open at the end of the last file."""
        self._matrix.end()
        self._count_rows()
        for thread, blocks in self._blocks.items():
            slot = self.collected.registry.slot(thread)
            self.collected.keep(slot, blocks.finish(), blocks.last)
        self._blocks.clear()
        self._failures.finish(self._hosts)
        keep_to_releases(self.collected)

    def _whole(self, record: Record) -> Record:
        if record.thread is None or (thread := self._hosts.whole(record.thread)) == record.thread:
            return record
        return record._replace(thread=thread)

    def _take(self, record: Record, where: Where, launcher: str) -> int:
        if not record.level:
            record = self._failures.see(record, where, launcher)
            wrong = self._failures.unsigned(record, where, launcher)
            return self._of_other(record.text, where) if wrong is None else wrong
        thread = record.thread or self._last
        if record.thread is not None:
            self._last = record.thread
            self._hosts.see(where[0], thread.host)
        registry = self.collected.registry
        slot = registry.slot(thread)
        text = record.text
        self._hosts.see_address(text, thread.host)
        if "opCount" in text:
            return 0  # one line per call (COLL): a trace tells more
        wrong = self._failures.signed(thread, slot, record, where, launcher)
        if wrong is not None:
            return wrong
        if "Func/Proto/Algo Matrix" in text:
            self._matrix.begin()
            self._matrix_slot = slot
            return 1
        if " Bytes -> Algo " in text and (choice := parse_choice(text.lstrip())) is not None:
            return self.collected.count_choice(slot, choice)
        found = self._parsed(thread, text, where)
        told = self._of_file(where[0])
        if record.thread is not None and thread.host:
            told.processes.add((thread.host, thread.pid))
        for item in found:
            if isinstance(item, CommLine):
                if (open_blocks := self._blocks.get(thread)) is not None:
                    self.collected.keep(slot, open_blocks.finish(), open_blocks.last)
                registry.see(thread, item)
                self._failures.initialised(thread, item, text)
                told.saw(item, (thread.host, thread.pid))
            elif isinstance(item, Fact) and (item.kind, item.name) == ("version", "nccl"):
                told.versions.add(str(item.value))
        return self.collected.keep(registry.slot(thread), found, where)

    def _parsed(self, thread: Thread, text: str, where: Where) -> list[Parsed]:
        """What a message says: alone, as part of a thread's block, or as a row of its table."""
        found: list[Parsed] = []
        if text[:1] in _BLOCK_STARTS:
            if (blocks := self._blocks.get(thread)) is None:
                blocks = self._blocks[thread] = Blocks()
            found, blocks.last = blocks.feed(text), where
            if blocks.headless:
                blocks.headless = False
                self.collected.counts[_NO_HEAD] += 1
        if not found:
            parsed = parse_line(text)
            found = [item for item in parsed if not _is_impossible(item)]
            if len(found) < len(parsed):
                self.collected.counts[_RANKS] += 1
        if not found and "|" in text:
            found = self._cells(self._tuning.setdefault(thread, Tuning()), text)
        return found

    def _cells(self, tuning: Tuning, text: str) -> list[Parsed]:
        found = tuning.feed(text)
        if tuning.lost:
            self._losses.short_row(tuning.lost)
            tuning.lost = 0
        return found

    def _of_other(self, text: str, where: Where) -> int:
        """A GPU that the output lists, or a row of the matrix, which has no prefix."""
        if devices := parse_device(text):
            return self.collected.keep(_NO_SLOT, devices, where)
        if self._matrix_slot is None:
            return 0
        taken = self.collected.keep(self._matrix_slot, self._matrix.feed(text), where)
        self._count_rows()
        return taken

    def _count_rows(self) -> None:
        if self._matrix.lost:
            self.collected.counts[_ROW] += self._matrix.lost
            self._matrix.lost = 0

    def _of_file(self, path: str) -> Told:
        if path not in self.told:
            self.told[path] = Told([Path(path)])
        return self.told[path]


def _is_impossible(item: Parsed) -> bool:
    return isinstance(item, CommLine) and item.ranks > MOST_RANKS
