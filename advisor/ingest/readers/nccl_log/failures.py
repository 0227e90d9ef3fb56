"""What goes wrong in a job: NCCL's warnings, and what torch, Python and launchers print at its end.

Only NCCL's lines say who printed them. Of the others the lines around them do: a traceback's calls,
the heading of a list, a launcher's report.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace

from advisor.ingest.readers.nccl_log.chained import Chained
from advisor.ingest.readers.nccl_log.clock import Clock
from advisor.ingest.readers.nccl_log.collected import Collected, Where
from advisor.ingest.readers.nccl_log.communicators import Slot
from advisor.ingest.readers.nccl_log.facts import CommLine, Fact
from advisor.ingest.readers.nccl_log.hosts import Hosts
from advisor.ingest.readers.nccl_log.marks import Marks, rank_of
from advisor.ingest.readers.nccl_log.outputs import Output
from advisor.ingest.readers.nccl_log.prefix import Record, Thread
from advisor.ingest.readers.nccl_log.stalled import Stalled, begins_list
from advisor.ingest.readers.nccl_log.tracebacks import Raised
from advisor.ingest.readers.nccl_log.whence import LINES_BELOW, host_below, rank_told, whence
from advisor.model.nccl.effects import by_form, passing, tells_an_end
from advisor.model.nccl.messages import EXCEPTION, named
from advisor.model.nccl.raised import is_guess, named_by_words, named_raised, probably

MAX_WARNINGS = 1_000
"""Of one run; of those beyond them only the number is kept."""
_MAX_BY_FORM = 200
_LAST_ERROR = "Last error:"  # torch's NCCLUtils.cpp quotes NCCL's last warning behind it
# The way of an error through NCCL's calls, innermost first; without a warning it alone tells of it.
_TRAIL = re.compile(r"[\w./\-]{1,120}\.(?:cc|cpp|c|h):\d{1,6}(?: \(\w{1,100}\))? -> [1-6](?: |$)")
# ncclRemoteError; ncclInternalError of what waits on a socket, without a warning: an abort's
# (src/misc/socket.cc).
_FOLLOWS = re.compile(r" -> 6(?: |$)|misc/socket\.cc:\d{1,6} -> 3(?: |$)")
_IN_BOOTSTRAP = "bootstrap.cc"
_TRAILED = "trailed"
_ENDS_HERE = "communicator-failed"
_ENDED, _ENDED_FIRST = "child-failed", "first-failed"
_ENDS = frozenset((_ENDED, "aborted"))
_TELL_NO_CAUSE = {_ENDED, _ENDED_FIRST, "unhandled", "stopped", "ends-without-destroying"}
_KILLED = "rank-killed"  # which a launcher does to those that are left


@dataclass
class Failures:
    """``see`` and ``unsigned`` take lines without NCCL's prefix, ``signed`` messages with it."""

    collected: Collected
    clock: Clock = field(default_factory=Clock)
    _warnings: int = 0
    _by_form: int = 0
    _warned: dict[tuple[str, int], str] = field(default_factory=dict)
    """The last warning of each process."""
    _in_init: dict[Thread, list[Where]] = field(default_factory=dict)
    """Warnings of each thread since it began to make its last communicator."""
    _passing: dict[Thread, Where] = field(default_factory=dict)
    """The last line of each thread but for an error's way, where a job may go on after it."""
    _gave_up: set[tuple[str, int]] = field(default_factory=set)
    """Processes that made no communicator."""
    _files: defaultdict[str, Output] = field(default_factory=lambda: defaultdict(Output))
    _stalled: dict[str, Stalled] = field(default_factory=dict)
    _chained: dict[tuple[str, str], Chained] = field(default_factory=dict)
    """By file and what a launcher puts before a process's lines."""
    _quotes: set[tuple[str, str]] = field(default_factory=set)
    """Those, by file and prefix, whose next line is NCCL's last warning, quoted by torch."""
    _marks: Marks = field(default_factory=Marks)
    _said_last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each file the last line without a prefix that is kept, and its number."""
    _first: dict[int, str] = field(default_factory=dict)
    """When each process failed of which torchrun says that it was the first."""

    def see(self, record: Record, where: Where, launcher: str) -> Record:
        """A line with the heading of the list that it stands in, where it does."""
        self._files[where[0]].around.see(record.text)
        if not self._stalled and not begins_list(record.text):
            return record
        told = self._stalled.setdefault(where[0], Stalled()).see(launcher, record.text)
        return record if told is None else record._replace(text=told)

    def unsigned(self, record: Record, where: Where, launcher: str) -> int | None:
        """How much was understood of a line that was seen; None where it may be of another kind."""
        file = self._files[where[0]]
        raised = file.tracebacks.see(launcher, record.text, where[1])
        if launcher and (rank := rank_told(launcher, record.text)) is not None:
            self._marks.see_rank(where[0], launcher, rank)
        if file.tracebacks.is_source:
            return 0
        message = self._of_torch(record.text, raised, (where[0], launcher))
        file.last_words.see(where[1], launcher, record.text, message)
        if message is not None:
            if message in _ENDS and file.around.is_root:
                message = _ENDED_FIRST
            if file.around.is_later and message == _KILLED:
                message = _ENDED
            if raised is not None:
                launcher += raised.prefix
                record = record._replace(text=raised.text)
            if message == _ENDED_FIRST:
                self._first[len(self.collected.kept)] = file.around.time
            return self._raised(message, record, where, launcher, raised)
        if where[0] in self._said_last and (host := host_below(record.text)):
            self._place_above(where, host)
        file.numbered.see(record.text, where[1])
        for waited in file.progress.see(record.text, where[1]):
            self._of_run("survived", "served", record.text[:300], waited)
        chained = self._chained.get((where[0], launcher))
        if chained is not None and (index := chained.see(record.text)) is not None:
            self._restate(index, goes_on=f" {record.text.strip()[:200]}")
        return None

    def signed(
        self, thread: Thread, slot: Slot, record: Record, where: Where, launcher: str
    ) -> int | None:
        """Keep what a message says that is wrong; None where it says nothing of the kind."""
        text = record.text
        if launcher and record.thread is not None:
            self._marks.see(where[0], launcher, thread)
        said = f"{record.place or ''} {text}".strip()
        warns = record.level in {"WARN", "ABORT"}
        # ATTN, of 2.32, is for what NCCL goes on after.
        message = named(said, is_warning=warns or record.level == "ATTN")
        if record.level == "ATTN" and message not in passing():
            message = None
        if warns and message not in passing():
            self._warned[thread.host, thread.pid] = message or ""
        if " -> " not in text:
            self._passing.pop(thread, None)
        if warns and message in passing():
            self._passing[thread] = where
        if warns or message is not None:
            in_init = self._in_init.setdefault(thread, [])
            if record.thread is not None and len(in_init) < 64:
                in_init.append(where)
            return self._warning(slot, message, record, where, launcher)
        if " -> " in text and _TRAIL.match(text):
            return self._trail(thread, slot, record, where)
        return None

    def measured(self, line: str, where: Where) -> None:
        """A row of a benchmark's table."""
        file = self._files[where[0]]
        file.progress.measured(line, where[1])
        file.last_words.went_on()

    def initialised(self, thread: Thread, line: CommLine, text: str) -> None:
        """What a thread warned of while it made a communicator did not end it where it succeeds."""
        if line.begins or line.ends:
            survived = self._in_init.pop(thread, [])
            for where in survived if line.ends else ():
                self._of_run("survived", "init", text[:300], where)

    def finish(self, hosts: Hosts) -> None:
        """Keep which files went on, and say of lines without a prefix which host they are of."""
        for path, file in self._files.items():
            progress = file.progress
            for where, said in progress.over:
                self._of_run("survived", "step", said, where)
            if (went_on := progress.went_on()) and not self.collected.is_full:
                line, said = went_on
                self._marks.keeps(len(self.collected.kept), path, "")
                self.collected.keep(Slot("", 0), [Fact("progress", "step", said)], (path, line))
        self._keep_cut()
        self._keep_last_words()
        for where, time in self.clock.times().items():
            self._of_run("said-at", "time", time, where)
        self._order_first()
        self._marks.place(self.collected, hosts)

    def _keep_cut(self) -> None:
        """Ranks given twice; where nothing tells a cause, the traceback at the end that is cut."""
        for path, file in self._files.items():
            if repeated := file.numbered.repeated():
                record = Record(None, None, "", None, repeated[1])
                self._warning(None, "ranks-numbered-twice", record, (path, repeated[0]))
            if cut := file.cut():
                writer, line, raised = cut
                record = Record(None, None, "", None, raised.frames[-1].as_printed)
                self._warning(None, "output-cut", record, (path, line), writer)
                self._of_run("raised-at", "", raised.place, (path, line))

    def _keep_last_words(self) -> None:
        """Of a file in which nothing tells a cause: the line that most probably does."""
        for path, file in self._files.items():
            told = {message for message in file.told if tells_an_end(message)}
            if told - _TELL_NO_CAUSE or (first := file.last_words.first()) is None:
                continue
            if line := file.last_words.strongest():
                record = Record(None, None, "", None, line.text)
                self._warning(None, probably(line.text), record, (path, line.number), line.launcher)
            elif not told and not self.collected.is_full:
                self._of_run("output", "passing", first.text[:300], (path, first.number))

    def _order_first(self) -> None:
        """Each agent says which process of its own was the first: of the job the earliest is."""
        earliest = min(self._first.values(), default="")
        for index, time in self._first.items():
            if earliest and time > earliest and index < len(self.collected.kept):
                self._restate(index, name=_ENDED)

    def _of_run(self, kind: str, name: str, value: str, where: Where) -> None:
        self.collected.keep(Slot("", 0), [Fact(kind, name, value, "run")], where)

    def _restate(self, index: int, name: str | None = None, goes_on: str = "") -> None:
        kept = self.collected.kept[index]
        fact = kept.record
        assert isinstance(fact, Fact)
        fact = replace(fact, name=name or fact.name, value=f"{fact.value}{goes_on}")
        self.collected.kept[index] = replace(kept, record=fact)

    def _place_above(self, where: Where, host: str) -> None:
        """The last line without a prefix is of ``host``, which a line below it names."""
        index, line = self._said_last[where[0]]
        kept = self.collected.kept[index]
        if where[1] - line <= LINES_BELOW and rank_of(kept) is None:
            self.collected.kept[index] = replace(kept, slot=Slot(host, 0))

    def _of_torch(self, text: str, raised: Raised | None, writer: tuple[str, str]) -> str | None:
        """What names a line without NCCL's prefix: the line after «Last error:» is a warning's."""
        quoted = writer in self._quotes
        (self._quotes.add if text.rstrip().endswith(_LAST_ERROR) else self._quotes.discard)(writer)
        message = named(text if raised is None else raised.text, is_warning=quoted)
        if raised is not None:
            return named_raised(raised.text, raised.calls, message)
        return named_by_words(text) if message == EXCEPTION else message

    def _trail(self, thread: Thread, slot: Slot, record: Record, where: Where) -> int:
        """An error that no warning tells of, or where a connection was that its peer closed."""
        process = (thread.host, thread.pid)
        message = named(record.text, is_warning=True)
        if (passed := self._passing.get(thread)) is not None:
            self._warned[process] = _TRAILED
            if message == _ENDS_HERE:
                self._of_run("fatal", "init", record.text[:300], passed)
        if message == _ENDS_HERE and process not in self._gave_up:
            self._gave_up.add(process)
            return self._warning(slot, message, record, where)
        warned = self._warned.get(process)
        of_peer = warned == "peer-closed" and _IN_BOOTSTRAP in record.text
        if not of_peer and (warned is not None or _FOLLOWS.search(record.text)):
            return 0
        self._warned[process] = _TRAILED
        return self._warning(slot, message, record, where)

    def _raised(
        self, message: str, record: Record, where: Where, launcher: str, raised: Raised | None
    ) -> int:
        """A line without NCCL's prefix: it may be the last of several exceptions of one error."""
        place = len(self.collected.kept)
        taken = self._warning(None, message, record, where, launcher)
        if len(self.collected.kept) == place:
            return taken
        if raised is not None:
            caught = "uncaught" if raised.is_uncaught else ""
            self._of_run("raised-at", caught, raised.place, where)
            if is_guess(message, raised.text):
                self._of_run("named-by", "calls", raised.place, where)
        chained = self._chained.setdefault((where[0], launcher), Chained())
        if (quoting := chained.quoting()) is not None:
            self._restate(quoting, goes_on=f" {record.text.strip()[:200]}")
        for index in chained.named(record.text, message, place):
            self._restate(index, name=message)
        return taken

    def _warning(
        self,
        slot: Slot | None,
        message: str | None,
        record: Record,
        where: Where,
        launcher: str = "",
    ) -> int:
        """Keep what is wrong; ``slot`` is None where no prefix says who printed the line."""
        printed = f"{launcher}{record.text}" if slot is None else ""
        self._files[where[0]].names(message or "", where, printed)
        if message in by_form():
            self._by_form += 1
            if self._by_form > _MAX_BY_FORM:
                return 1
        else:
            self._warnings += 1
        if self._warnings > MAX_WARNINGS:
            self.collected.counts["warning beyond the first 1,000"] += 1
            return 1
        said = f"{record.place or ''} {record.text[:1000]}".strip()
        rank, started_as = None, None
        if slot is not None:
            started_as = whence(launcher, "").rank if launcher else None
        else:
            told = self._files[where[0]].around.complete(whence(launcher, record.text))
            slot, rank = Slot(told.host or "", 0), told.rank
            if not self.collected.is_full:
                self._marks.keeps(len(self.collected.kept), where[0], launcher)
                self._said_last[where[0]] = (len(self.collected.kept), where[1])
        self.clock.note(where)
        fact = Fact("warning", message or "", said, "rank", rank, started_as)
        return self.collected.keep(slot, [fact], where)
