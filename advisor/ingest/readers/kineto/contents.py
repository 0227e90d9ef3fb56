"""What the files hold of each rank, counted in one pass over the events.

Each further question to millions of rows would cost as much as reading some tens of megabytes.
"""

from collections import Counter
from dataclasses import dataclass, field

from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.source import ReadContext


@dataclass
class Contents:
    """What one file holds of one rank; ``start_ns`` and ``end_ns`` are of its work: the
    profiler's own marks lie apart from that.
    """

    rank: int
    number: int
    events: int = 0
    first_ns: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    device_events: int = 0
    kernels: int = 0
    runtime_calls: int = 0
    """Of the host; most are launches of kernels, or wait for them."""
    devices: Counter[int] = field(default_factory=Counter)
    compute_devices: Counter[int] = field(default_factory=Counter)


@dataclass
class Summary:
    """``contents`` in order of rank and file; ``lost``: markers of what is no event, by file."""

    contents: list[Contents]
    lost: dict[int, Counter[str]]


def summarise(context: ReadContext) -> Summary:
    """Count the events of the run."""
    rows = context.con.execute(
        "SELECT rank, event_id // ?, class, device, category <> 'Trace' AS work, "
        "count(*), min(start_ns), max(start_ns + coalesce(dur_ns, 0)) FROM event WHERE run = ? "
        "GROUP BY ALL ORDER BY ALL",
        [event_fields.IDS_PER_FILE, context.run],
    ).fetchall()
    found: dict[tuple[int, int], Contents] = {}
    lost: dict[int, Counter[str]] = {}
    for rank, number, class_, device, work, count, start, end in rows:
        if class_.startswith("!"):
            lost.setdefault(number, Counter())[class_] += count
            continue
        of = found.setdefault((rank, number), Contents(rank, number, first_ns=start))
        of.events += count
        of.first_ns = min(of.first_ns, start)
        if work:
            of.start_ns = start if of.start_ns is None else min(of.start_ns, start)
            of.end_ns = end if of.end_ns is None else max(of.end_ns, end)
        if device is None:
            of.runtime_calls += count if class_ == "runtime" else 0
            continue
        of.devices[device] += count
        if class_ in ("compute", "comm"):
            of.kernels += count
        if class_ == "compute":
            of.compute_devices[device] += count
        if class_ != "annotation":
            of.device_events += count
    return Summary([found[key] for key in sorted(found)], lost)


def processes(context: ReadContext) -> dict[tuple[int, int], int]:
    """The process that did most of the host's work, by rank and number of the file."""
    rows = context.con.execute(
        "SELECT rank, event_id // ?, mode(pid) FROM event WHERE run = ? "
        "AND class IN ('cpu_op', 'runtime') GROUP BY ALL",
        [event_fields.IDS_PER_FILE, context.run],
    ).fetchall()
    return {(rank, number): pid for rank, number, pid in rows if pid is not None}


def most(found: Counter[int]) -> int:
    """The number counted most often, of several the smallest."""
    return min(found, key=lambda number: (-found[number], number))
