"""All logs of a run, line by line, into facts with their thread; then into rows with their rank."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.ingest.readers.nccl_log.chained import Chained
from advisor.ingest.readers.nccl_log.communicators import Member, Registry, Slot
from advisor.ingest.readers.nccl_log.damaged import is_damaged
from advisor.ingest.readers.nccl_log.facts import (
    Choice,
    CommLine,
    Connection,
    Fact,
    Parsed,
)
from advisor.ingest.readers.nccl_log.graphs import Blocks
from advisor.ingest.readers.nccl_log.jobs import Told
from advisor.ingest.readers.nccl_log.lines import parse_line
from advisor.ingest.readers.nccl_log.prefix import (
    Record,
    Thread,
    is_cut_prefix,
    records,
)
from advisor.ingest.readers.nccl_log.progress import Progress
from advisor.ingest.readers.nccl_log.stalled import Stalled
from advisor.ingest.readers.nccl_log.tables import Matrix, Tuning, cells_of, parse_choice
from advisor.ingest.readers.nccl_log.tracebacks import Raised, Tracebacks
from advisor.ingest.readers.nccl_log.whence import Around, whence
from advisor.model.nccl.messages import (
    EXCEPTION,
    by_form,
    named,
    named_by_both,
    named_by_calls,
    passing,
)
from advisor.vocabulary.numbers import MOST_RANKS

MAX_KEPT = 1_000_000
"""Records kept of one run: about 0.5 GB. A log of 8,192 ranks has about 400,000 connections."""

Where = tuple[str, int]
"""File and line."""

_NOWHERE: Where = ("", 0)
_MAX_WARNINGS = 1_000
_MAX_BY_FORM = 200
_LAST_ERROR = "Last error:"  # torch's NCCLUtils.cpp quotes NCCL's last warning behind it
_ADDRESS = re.compile(r"^Bootstrap : Using (?:\[0\])?[^\s:]{1,40}:([\w.:]{2,60})<\d{1,5}>")
# The way of an error through NCCL's calls, innermost first; without a warning it alone tells of it.
_TRAIL = re.compile(r"[\w./\-]{1,120}\.(?:cc|cpp|c|h):\d{1,6}(?: \(\w{1,100}\))? -> [1-6](?: |$)")
_OF_REMOTE = re.compile(r" -> 6(?: |$)")  # ncclRemoteError
_IN_BOOTSTRAP = "bootstrap.cc"
_TRAILED = "trailed"
_ENDS_HERE = "communicator-failed"
_ENDED, _ENDED_FIRST = "child-failed", "first-failed"
_KILLED = "rank-killed"  # which a launcher does to those that are left
_BLOCK_STARTS = frozenset(" +=PCRTGN")  # of system trees, paths, patterns, rings and trees
_NOBODY = Thread("", 0, 0)
_TORN = "message broken by another writer"
_RANKS = "communicator of more ranks than any job has"
_DAMAGED = "message with damaged bytes"
_CUT = "message cut at the end of the file"
_CELL = "cell of a broken row of a tuning table"
_ROW = "broken row of the matrix"
_NO_HEAD = "system tree without its heading"
# What only NCCL writes: where such text has no prefix, the prefix stands in another writer's line.
_TAIL = re.compile(
    r"\d\[\w+\](?: \[(?:send|receive)\])? via (?:P2P|SHM|NET|direct)"
    r"| Bytes -> Algo \w+ proto "
    r"|\bcomm 0x\w+ rank \d+ n[rR]anks \d+ "
)
# How messages start that are kept: of others nothing is lost when their end is.
_KEPT_START = re.compile(
    r"(?:Channel|Ring|Tree|Trees|Pattern|NET/|GPU Direct|Connected|threadThr|Using network|NCCL_"
    r"|comm 0x|ncclCommInit|Init timings|\d+ coll |\w+: \d+ Bytes|\d+ Bytes)"
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A parsed record, who printed it and where it was read.

    ``member`` is set for connections whose communicator was known when they were printed.
    """

    slot: Slot
    record: Parsed
    where: Where
    member: Member | None = None


@dataclass
class Log:
    """Feed it lines of any number of files, then take :attr:`kept` and :attr:`registry`."""

    registry: Registry = field(default_factory=Registry)
    kept: list[Kept] = field(default_factory=list)
    choices: dict[tuple[Slot, Choice], int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """What was lost, by reason."""
    messages: int = 0
    told: dict[str, Told] = field(default_factory=dict)
    """What each file tells of the job that it is of."""
    _blocks: dict[Thread, Blocks] = field(default_factory=dict)
    _tuning: dict[Thread, Tuning] = field(default_factory=dict)
    _matrix: Matrix = field(default_factory=Matrix)
    _matrix_slot: Slot | None = None
    _warnings: int = 0
    _by_form: int = 0
    _warned: dict[tuple[str, int], str] = field(default_factory=dict)
    """The last warning of each process."""
    _in_init: dict[Thread, list[Where]] = field(default_factory=dict)
    """Warnings of each thread since it began to make its last communicator."""
    _gave_up: set[tuple[str, int]] = field(default_factory=set)
    """Processes that made no communicator."""
    _around: dict[str, Around] = field(default_factory=dict)
    _stalled: dict[str, Stalled] = field(default_factory=dict)
    _progress: dict[str, Progress] = field(default_factory=dict)
    """Of files in which something went wrong."""
    _chained: dict[tuple[str, str], Chained] = field(default_factory=dict)
    """By file and what a launcher puts before a process's lines."""
    _tracebacks: dict[str, Tracebacks] = field(default_factory=dict)
    _last: Thread = _NOBODY
    _last_line: str = ""
    _heads: int = 0
    _short_rows: int = 0
    _quotes: bool = False
    _launcher: str = ""
    _hosts: dict[str, set[str]] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)
    _unsigned: list[int] = field(default_factory=list)

    def feed(self, line: str, where: Where, *, whole: bool = True, launcher: str = "") -> int:
        """Take one line; how many of its messages were understood.

        ``whole`` is false for the last line of a file that does not end it; ``launcher`` is what
        stood before the line.
        """
        understood = 0
        self._launcher = launcher
        lost_before = sum(self.counts.values())
        found = records(line)
        for record in found:
            if record.level:
                self.messages += 1
            taken = self._take(record, where)
            understood += taken
            if taken:
                continue
            if record is not found[-1]:
                # A whole message ends its line: another process wrote into this one.
                self._torn(record)
            elif not record.level:
                self._tail(record)
                if not whole and is_cut_prefix(line, self._last_line):
                    self.counts[_CUT] += 1
            elif not whole and _KEPT_START.match(record.text):
                self.counts[_CUT] += 1
        if found and found[-1].level:
            self._last_line = line
        if sum(self.counts.values()) == lost_before and (
            is_damaged(line, understood=understood > 0)
            or any(not record.level and self._matrix.is_damaged(record.text) for record in found)
        ):
            self.counts[_DAMAGED] += 1
        return understood

    def _torn(self, record: Record) -> None:
        """The head of a message, which another one interrupted."""
        if record.level:
            self._heads += 1
            self.counts[_TORN] += 1
        else:
            self._tail(record)

    def _tail(self, record: Record) -> None:
        """Text without a prefix: the end of a message, whose head may be counted already."""
        if cells := cells_of(record.text):
            if self._short_rows:
                self._short_rows -= 1
            else:
                self.counts[_CELL] += cells
            return
        if not _TAIL.search(record.text):
            return
        if self._heads:
            self._heads -= 1
        else:
            self.counts[_TORN] += 1

    def finish(self) -> None:
        """Close the blocks that are open at the end of the last file."""
        self._matrix.end()
        self._count_rows()
        for thread, blocks in self._blocks.items():
            self._keep(self.registry.slot(thread), blocks.finish(), ("end of log", 0))
        self._blocks.clear()
        for path, progress in self._progress.items():
            if (went_on := progress.went_on()) and len(self.kept) < MAX_KEPT:
                line, said = went_on
                self._unsigned.append(len(self.kept))
                self._keep(Slot("", 0), [Fact("progress", "step", said)], (path, line))
        for index in self._unsigned:
            kept = self.kept[index]
            host = self._known_host(kept.slot.host, kept.where[0])
            self.kept[index] = replace(kept, slot=Slot(host, 0))

    def _known_host(self, named_host: str, path: str) -> str:
        """The host of a line without a prefix, as NCCL calls it; of a file of one host that one."""
        if named_host:
            known = {host for hosts in self._hosts.values() for host in hosts}
            short = named_host.partition(".")[0]
            return self._addresses.get(named_host, short if short in known else named_host)
        hosts = self._hosts.get(path, set())
        return next(iter(hosts)) if len(hosts) == 1 else ""

    def _take(self, record: Record, where: Where) -> int:
        if not record.level:
            around = self._around.get(where[0])
            if around is None:
                around = self._around[where[0]] = Around()
            around.see(record.text)
            if self._stalled or "ranks:" in record.text[-16:]:
                record = self._of_list(record, where)
            raised = self._last_of_traceback(record.text, where)
            if self._tracebacks[where[0]].is_source:
                return 0
            if message := self._of_torch(record.text, raised):
                if message == _ENDED and around.is_root:
                    message = _ENDED_FIRST
                if around.is_later and message == _KILLED:
                    message = _ENDED
                if raised is not None:
                    self._launcher += raised.prefix
                    record = replace(record, text=raised.text)
                return self._raised(message, record, where, raised)
            if self._progress and (progress := self._progress.get(where[0])):
                progress.see(record.text, where[1])
            if self._chained and (chained := self._chained.get((where[0], self._launcher))):
                chained.see(record.text)
            if self._matrix_slot is None:
                return 0
            taken = self._keep(self._matrix_slot, self._matrix.feed(record.text), where)
            self._count_rows()
            return taken
        thread = record.thread or self._last
        if record.thread is not None:
            self._last = record.thread
            if thread.host:
                self._hosts.setdefault(where[0], set()).add(thread.host)
        slot = self.registry.slot(thread)
        text = record.text
        if address := _ADDRESS.match(text):
            self._addresses[address[1]] = thread.host
        if "opCount" in text:
            return 0  # one line per call (COLL): a trace tells more
        said = f"{record.place or ''} {text}".strip()
        warns = record.level in {"WARN", "ABORT"}
        message = named(said, is_warning=warns)
        if warns and message not in passing():
            self._warned[thread.host, thread.pid] = message or ""
        if warns or message is not None:
            if (
                record.thread is not None
                and len(in_init := self._in_init.setdefault(thread, [])) < 64
            ):
                in_init.append(where)
            return self._warning(slot, message, record, where)
        if " -> " in text and _TRAIL.match(text):
            return self._trail(thread, slot, record, where)
        if "Func/Proto/Algo Matrix" in text:
            self._matrix.begin()
            self._matrix_slot = slot
            return 1
        if " Bytes -> Algo " in text and (choice := parse_choice(text.lstrip())) is not None:
            return self._choice(slot, choice)
        found: list[Parsed] = []
        if text[:1] in _BLOCK_STARTS:
            if (blocks := self._blocks.get(thread)) is None:
                blocks = self._blocks[thread] = Blocks()
            found = blocks.feed(text)
            if blocks.headless:
                blocks.headless = False
                self.counts[_NO_HEAD] += 1
        if not found:
            parsed = parse_line(text)
            found = [item for item in parsed if not _is_impossible(item)]
            if len(found) < len(parsed):
                self.counts[_RANKS] += 1
        if not found and "|" in text:
            found = self._cells(self._tuning.setdefault(thread, Tuning()), text)
        told = self._of_file(where[0])
        if record.thread is not None and thread.host:
            told.processes.add((thread.host, thread.pid))
        for item in found:
            if isinstance(item, CommLine):
                self.registry.see(thread, item)
                self._initialised(thread, item, text)
                told.saw(item, (thread.host, thread.pid))
            elif isinstance(item, Fact) and (item.kind, item.name) == ("version", "nccl"):
                told.versions.add(str(item.value))
        return self._keep(self.registry.slot(thread), found, where)

    def _initialised(self, thread: Thread, line: CommLine, text: str) -> None:
        """What a thread warned of while it made a communicator did not end it where it succeeds."""
        if line.begins or line.ends:
            survived = self._in_init.pop(thread, []) if line.ends else []
            for where in survived:
                self._keep(Slot("", 0), [Fact("survived", "init", text[:300], "run")], where)
            self._in_init.pop(thread, None)

    def _cells(self, tuning: Tuning, text: str) -> list[Parsed]:
        found = tuning.feed(text)
        if tuning.lost:
            self.counts[_CELL] += tuning.lost
            self._short_rows += 1
            tuning.lost = 0
        return found

    def _count_rows(self) -> None:
        if self._matrix.lost:
            self.counts[_ROW] += self._matrix.lost
            self._matrix.lost = 0

    def _of_file(self, path: str) -> Told:
        if path not in self.told:
            self.told[path] = Told([Path(path)])
        return self.told[path]

    def _keep(self, slot: Slot, found: list[Parsed], where: Where) -> int:
        kept = [item for item in found if not isinstance(item, CommLine)]
        if len(self.kept) + len(kept) > MAX_KEPT:
            self.counts["over the bound of kept records"] += len(kept)
            return len(found)
        for item in kept:
            if isinstance(item, Connection):  # many: their place is not stored
                settled = self.registry.settled(slot)
                known = self.registry.member_for(slot, item) if settled else None
                self.kept.append(Kept(slot, item, _NOWHERE, known))
            else:
                self.kept.append(Kept(slot, item, where if isinstance(item, Fact) else _NOWHERE))
        return len(found)

    def _choice(self, slot: Slot, choice: Choice) -> int:
        key = (slot, choice)
        if key not in self.choices and len(self.choices) >= MAX_KEPT:
            self.counts["over the bound of kept records"] += 1
        else:
            self.choices[key] = self.choices.get(key, 0) + 1
        return 1

    def _of_torch(self, text: str, raised: Raised | None) -> str | None:
        """What names a line without NCCL's prefix: the line after «Last error:» is a warning's."""
        quoted, self._quotes = self._quotes, text.rstrip().endswith(_LAST_ERROR)
        message = named(text if raised is None else raised.text, is_warning=quoted)
        if raised is None:
            return message
        if both := named_by_both(raised.text, raised.calls):
            return both
        if message not in {None, EXCEPTION}:
            return message
        return named_by_calls(raised.text, raised.calls) or EXCEPTION

    def _last_of_traceback(self, text: str, where: Where) -> Raised | None:
        tracebacks = self._tracebacks.get(where[0])
        if tracebacks is None:
            tracebacks = self._tracebacks[where[0]] = Tracebacks()
        return tracebacks.see(self._launcher, text)

    def _trail(self, thread: Thread, slot: Slot, record: Record, where: Where) -> int:
        """An error that no warning tells of, or where a connection was that its peer closed."""
        process = (thread.host, thread.pid)
        if (
            process not in self._gave_up
            and (end := named(record.text, is_warning=True)) == _ENDS_HERE
        ):
            self._gave_up.add(process)
            return self._warning(slot, end, record, where)
        warned = self._warned.get(process)
        of_peer = warned == "peer-closed" and _IN_BOOTSTRAP in record.text
        if not of_peer and (warned is not None or _OF_REMOTE.search(record.text)):
            return 0
        self._warned[process] = _TRAILED
        return self._warning(slot, named(record.text, is_warning=True), record, where)

    def _of_list(self, record: Record, where: Where) -> Record:
        """A line with the heading of the list that it stands in, where it does."""
        stalled = self._stalled.get(where[0])
        if stalled is None:
            stalled = self._stalled[where[0]] = Stalled()
        told = stalled.see(self._launcher, record.text)
        return record if told is None else replace(record, text=told)

    def _raised(
        self, message: str, record: Record, where: Where, raised: Raised | None = None
    ) -> int:
        """A line without NCCL's prefix: it may be the last of several exceptions of one error."""
        place = len(self.kept)
        taken = self._warning(None, message, record, where)
        if raised is not None and place < len(self.kept):
            caught = "uncaught" if raised.is_uncaught else ""
            self._keep(Slot("", 0), [Fact("raised-at", caught, raised.place, "run")], where)
        if len(self.kept) > place:
            chained = self._chained.setdefault((where[0], self._launcher), Chained())
            for index in chained.named(record.text, message, place):
                kept = self.kept[index]
                assert isinstance(kept.record, Fact)
                self.kept[index] = replace(kept, record=replace(kept.record, name=message))
        return taken

    def _warning(self, slot: Slot | None, message: str | None, record: Record, where: Where) -> int:
        """Keep what is wrong; ``slot`` is None where no prefix says who printed the line."""
        self._progress.setdefault(where[0], Progress()).wrong(message or "")
        if message in by_form():
            self._by_form += 1
            if self._by_form > _MAX_BY_FORM:
                return 1
        else:
            self._warnings += 1
        if self._warnings > _MAX_WARNINGS:
            self.counts["warning beyond the first 1,000"] += 1
            return 1
        said = f"{record.place or ''} {record.text[:1000]}".strip()
        rank = None
        if slot is None:
            told = self._around[where[0]].complete(whence(self._launcher, record.text))
            slot, rank = Slot(told.host or "", 0), told.rank
            if len(self.kept) < MAX_KEPT:
                self._unsigned.append(len(self.kept))
        return self._keep(slot, [Fact("warning", message or "", said, "rank", rank)], where)


def _is_impossible(item: Parsed) -> bool:
    return isinstance(item, CommLine) and item.ranks > MOST_RANKS
