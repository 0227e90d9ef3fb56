"""Whether two files that cover the same time can be parts of one recording of one process.

They can where one process wrote both, no event stands in both, and the spans of each of its threads
nest over both files: a thread does one thing after the other, so that the spans of two processes
(or of one recorded on two clocks) soon cross.
"""

from collections.abc import Iterator
from typing import Any

from advisor.ingest.readers.kineto.event_fields import IDS_PER_FILE
from advisor.ingest.source import ReadContext

_ROUNDING_NS = 1_000
"""Older profilers write whole microseconds: neighbours may overlap by one."""
_ROWS_AT_ONCE = 100_000

_OF_FILE = "run = $run AND rank = $rank AND event_id // $size = $file"
_SAME = f"""
SELECT 1 FROM (
  SELECT pid, tid, name, category, device, stream, start_ns, dur_ns, correlation
  FROM event WHERE {_OF_FILE} AND category <> 'Trace' AND dur_ns > 0
) a JOIN (
  SELECT pid, tid, name, category, device, stream, start_ns, dur_ns, correlation
  FROM event WHERE {_OF_FILE.replace("$file", "$other")} AND category <> 'Trace'
) b ON a.start_ns = b.start_ns AND a.dur_ns = b.dur_ns AND a.name = b.name
  AND a.category IS NOT DISTINCT FROM b.category AND a.pid IS NOT DISTINCT FROM b.pid
  AND a.tid IS NOT DISTINCT FROM b.tid AND a.device IS NOT DISTINCT FROM b.device
  AND a.stream IS NOT DISTINCT FROM b.stream AND a.correlation IS NOT DISTINCT FROM b.correlation
LIMIT 1
"""
_SPANS = """
SELECT pid, tid, event_id // $size, start_ns, start_ns + dur_ns FROM event
WHERE run = $run AND rank = $rank AND event_id // $size IN ($file, $other) AND dur_ns > 0
  AND class IN ('cpu_op', 'runtime') AND pid IS NOT NULL AND tid IS NOT NULL
ORDER BY pid, tid, start_ns, dur_ns DESC
"""


def why_not_one(rank: int, file: int, other: int, context: ReadContext) -> str | None:
    """Why two files (by their numbers) of one process cannot be parts of one recording; or None."""
    values = {"run": context.run, "rank": rank, "size": IDS_PER_FILE, "file": file, "other": other}
    if context.con.execute(_SAME, values).fetchall():
        return "the same events stand in both"
    if _cross(_rows(context.con.execute(_SPANS, values))):
        return "spans of one thread cross"
    return None


def _rows(result: Any) -> Iterator[tuple[int, int, int, int, int]]:
    while rows := result.fetchmany(_ROWS_AT_ONCE):
        yield from rows


def _cross(spans: Iterator[tuple[int, int, int, int, int]]) -> bool:
    """Whether on a thread a span of one file begins inside one of the other and ends after it.

    ``spans``: (process, thread, file, start, end) in order of thread, start and falling end.
    """
    thread: tuple[int, int] | None = None
    inside: list[tuple[int, int]] = []
    for pid, tid, file, start, end in spans:
        if (pid, tid) != thread:
            thread, inside = (pid, tid), []
        while inside and inside[-1][0] - start <= min(_ROUNDING_NS, end - start - 1):
            inside.pop()
        if inside and inside[-1][0] + _ROUNDING_NS < end and inside[-1][1] != file:
            return True
        inside.append((end, file))
    return False
