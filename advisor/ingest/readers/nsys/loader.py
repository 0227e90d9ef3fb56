"""What loading an export needs at hand: its processes, its clock, and where rows go."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from advisor.ingest.readers._rows import Row, insert_events
from advisor.ingest.readers.nsys.nccl_ranges import NcclRanges
from advisor.ingest.readers.nsys.open import Database
from advisor.ingest.readers.nsys.processes import Process, pid_of
from advisor.ingest.source import ReadContext
from advisor.vocabulary.numbers import INT64_MAX, MOST_EVENT_NS, within

OUTSIDE = "event outside the time of the analysis"
_MOST_NS = 1 << 61  # the year 2043; twice that is still a whole number of 64 bits


@dataclass
class Outcome:
    """How many events were kept, in all and per rank; ``lost``: those of one rank, by reason."""

    read: int = 0
    by_rank: Counter[int] = field(default_factory=Counter)
    with_nccl: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    lost: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


class Loader:
    """One export being read; ``launches``: (globalTid, time) of the calls behind comm kernels."""

    def __init__(
        self, database: Database, processes: list[Process], nccl: NcclRanges, context: ReadContext
    ) -> None:
        self.database = database
        self.context = context
        self.of_device = {(p.pid, p.device): p for p in processes}
        self.of_pid: dict[int, Process] = {}
        for process in processes:
            self.of_pid.setdefault(process.pid, process)
        self.shared = {p.pid for p in processes if p is not self.of_pid[p.pid]}
        self.offset_ns, self.has_base_time = epoch_offset(database)
        self.earliest, self.latest = _bounds(database)
        self.outcome = Outcome()
        self.nccl = nccl
        self.launches: dict[tuple[int, int], tuple[int, int]] = {}
        self.device_of_correlation: dict[tuple[int, int], int] = {}
        self.devices_of_thread: dict[int, set[int]] = {}

    def process_of_thread(self, global_tid: int | None) -> Process | None:
        """Whose host events a thread's are: of several GPUs, of the one that it launches on."""
        pid = pid_of(global_tid) or 0
        devices = self.devices_of_thread.get(global_tid or 0, set())
        own = self.of_device.get((pid, next(iter(devices)))) if len(devices) == 1 else None
        return own or self.of_pid.get(pid)

    def number(self, table: str, column: str, value: Any) -> int | None:
        """An id or size of a row; what is none is counted, where the table has the column."""
        known = within(value, 0, INT64_MAX)
        return known if self.told(table, column, known) else None

    def told(self, table: str, column: str, value: object) -> bool:
        """Whether a row has a value in a column that is there; counted where it has none."""
        if value is None and self.database.has(table, column):
            self.database.unusable[f"{column} in {table}"] += 1
        return value is not None

    def row(
        self, process: Process, kind: str, start: Any, end: Any, **values: Any
    ) -> Iterator[Row]:
        """An ``event`` row; none (but counted) when it has no time or no end that can be."""
        reason = self._unusable(start, end)
        if reason is not None:
            self.database.drop(reason)
            self.outcome.lost[process.rank][reason] += 1
            return
        number = self.outcome.by_rank[process.rank]
        self.outcome.by_rank[process.rank] += 1
        yield {
            "rank": process.rank,
            "event_id": number,
            "class": kind,
            "pid": process.pid,
            "start_ns": start + self.offset_ns,
            "dur_ns": end - start,
            **values,
        }

    def _unusable(self, start: Any, end: Any) -> str | None:
        """Why an event of these times cannot be used; None where it can."""
        for name, value in {"start": start, "end": 0 if end is None else end}.items():
            if not isinstance(value, int):
                return f"event without a usable {name}"
        if not self.earliest <= start <= self.latest:
            return OUTSIDE
        if end is None:
            return "range without an end"
        if end < start:
            return "event without a usable end"
        return OUTSIDE if end > self.latest or end - start > MOST_EVENT_NS else None

    def insert(self, rows: Iterable[Row]) -> None:
        """Append rows to ``event`` and ``comm_event``."""
        self.outcome.read += insert_events(self.context, rows)


def text_of(value: Any) -> str | None:
    """A name as text, also where a damaged row holds a blob or a number in its place."""
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _bounds(database: Database) -> tuple[int, int]:
    """Times that an event can have: of the analysis, and its whole length before and after it.

    Clocks of an export may begin at the session's start or with the system's, so that the bounds
    are wide; what lies outside is damage.
    """
    columns = ("startTime", "stopTime", "duration")
    if database.has("ANALYSIS_DETAILS", *columns):
        sql = f"SELECT {', '.join(columns)} FROM ANALYSIS_DETAILS LIMIT 1"
        for start, stop, duration in database.rows(sql):
            whole = all(isinstance(value, int) for value in (start, stop, duration))
            if whole and 0 < duration == stop - start and abs(start) < _MOST_NS:
                return min(start, 0) - duration, stop + duration
    return -_MOST_NS, _MOST_NS


def epoch_offset(database: Database) -> tuple[int, bool]:
    """What turns an event's time into ns since the epoch.

    Exports count from the start of the session, or (when the session's system clock is stored and
    the analysis starts at it) on the system clock.
    """
    table = "TARGET_INFO_SESSION_START_TIME"
    if not database.has(table, "utcEpochNs"):
        return 0, False
    clock = database.column(table, "systemClockNs")
    found = next(database.rows(f"SELECT utcEpochNs, {clock} FROM {table} LIMIT 1"), None)
    if found is None or not isinstance(found[0], int):
        return 0, False
    utc, system = found
    if not 0 <= utc < _MOST_NS:
        return 0, False
    if isinstance(system, int) and database.has("ANALYSIS_DETAILS", "startTime"):
        start = next(database.rows("SELECT startTime FROM ANALYSIS_DETAILS LIMIT 1"), (None,))[0]
        if isinstance(start, int) and start >= system:
            return utc - system, True
    return utc, True
