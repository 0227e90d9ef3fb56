"""What loading an export needs at hand: its processes, its clock, and where rows go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from advisor.ingest.readers._rows import insert_events
from advisor.ingest.readers.nsys.nccl_ranges import NcclRanges
from advisor.ingest.readers.nsys.open import Database
from advisor.ingest.readers.nsys.processes import Process, pid_of
from advisor.ingest.source import ReadContext

_EVENT = (
    *("run", "rank", "event_id", "name", "category", "class", "device", "stream", "pid", "tid"),
    *("start_ns", "dur_ns", "correlation", "collective", "dtype", "in_elements", "out_elements"),
    *("group_size", "process_group", "src_rank", "dst_rank", "bytes"),
)


@dataclass
class Outcome:
    """How many events were kept, in all and per rank; ``lost``: those of one rank, by reason."""

    read: int = 0
    by_rank: dict[int, int] = field(default_factory=dict)
    with_nccl: set[int] = field(default_factory=set)
    lost: dict[int, dict[str, int]] = field(default_factory=dict)


class Loader:
    """One export being read; ``launches``: (globalTid, time) of the calls behind comm kernels."""

    def __init__(
        self,
        database: Database,
        processes: list[Process],
        nccl: NcclRanges,
        context: ReadContext,
    ) -> None:
        self.database = database
        self.context = context
        self.of_device = {(p.pid, p.device): p for p in processes}
        self.of_pid: dict[int, Process] = {}
        for process in processes:
            self.of_pid.setdefault(process.pid, process)
        self.shared = {p.pid for p in processes if p is not self.of_pid[p.pid]}
        self.offset_ns, self.has_base_time = epoch_offset(database)
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

    def row(self, process: Process, start: Any, end: Any, **values: Any) -> tuple[Any, ...] | None:
        """An ``event`` row; None (and counted) when it has no time or no end."""
        if not isinstance(start, int) or end is None:
            whole = isinstance(start, int)
            reason = "range without an end" if whole else "event without a time"
            self.database.drop(reason)
            lost = self.outcome.lost.setdefault(process.rank, {})
            lost[reason] = lost.get(reason, 0) + 1
            return None
        number = self.outcome.by_rank.get(process.rank, 0)
        self.outcome.by_rank[process.rank] = number + 1
        fixed = {
            "run": self.context.run,
            "rank": process.rank,
            "event_id": number,
            "start_ns": start + self.offset_ns,
            "dur_ns": max(0, int(end) - start),
        }
        return tuple({**fixed, **values}.get(column) for column in _EVENT)

    def insert(self, rows: Iterator[tuple[Any, ...]]) -> None:
        """Append rows to ``event`` and ``comm_event``."""
        self.outcome.read += insert_events(self.context.con, _EVENT, rows)


def string_column(database: Database, table: str, column: str) -> tuple[str, str]:
    """SQL of a name that is stored in StringIds, and the join it needs."""
    if database.has(table, column) and database.has("StringIds", "id", "value"):
        return "s.value", f"LEFT JOIN StringIds s ON s.id = e.{column}"
    return "NULL", ""


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
    if isinstance(system, int) and database.has("ANALYSIS_DETAILS", "startTime"):
        start = next(database.rows("SELECT startTime FROM ANALYSIS_DETAILS LIMIT 1"), (None,))[0]
        if isinstance(start, int) and start >= system:
            return utc - system, True
    return utc, True
