"""Device events that only their process's name tells: Ascend's profiler writes no category.

Its ``trace_view.json`` has a process for the NPU, whose threads are streams, and one for HCCL, of
which the threads called "... Communication" hold whole collectives and the others their parts.
"""

import re
from collections.abc import Sequence

from advisor.ingest.classes import classify
from advisor.ingest.readers.kineto import event_fields
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext

# Ascend/msprof-analyze msprof_analyze/compare_tools/compare_backend/compare_bean/origin_data_bean/
# trace_event_bean.py (is_npu_process_name, is_hccl_process_name, is_communication_op_thread)
_STREAMS = "Ascend Hardware"
_COLLECTIVES = ("HCCL", "Communication")
_OPERATIONS = "Communication"
# Tasks that wait or mark, and tasks that copy: Ascend/msprof-analyze, the task types there.
_WAITS = re.compile("(event|notify|capture)_(wait|record)", re.IGNORECASE)
_COPIES = re.compile("memcpy|sdma", re.IGNORECASE)
_CATEGORY = "kernel"
_DEVICE = 0  # a file is of one NPU, and does not say which


def place_on_devices(traces: Sequence[Trace], context: ReadContext) -> None:
    """Make the spans of such processes device events; their threads are streams."""
    files = {trace.number: trace for trace in traces}
    for number, pid, tid in _tracks(context):
        if number in files:
            own = "run = $run AND event_id BETWEEN $first AND $last AND pid = $pid AND tid = $tid"
            own += " AND category IS NULL AND class NOT LIKE '!%'"
            place = {"run": context.run, "pid": pid, "tid": tid}
            place |= {"first": files[number].first_id, "last": files[number].last_id}
            found = context.con.execute(f"SELECT DISTINCT name FROM event WHERE {own}", place)
            names = [name for (name,) in found.fetchall()]
            context.con.execute(
                "UPDATE event SET category = $category, device = $device, stream = tid, "
                f"class = coalesce($classes[list_position($names, name)], class) WHERE {own}",
                place
                | {"category": _CATEGORY, "device": _DEVICE}
                | {"names": names, "classes": list(map(_class_of, names))},
            )


def _class_of(name: str | None) -> str:
    if _WAITS.match(name or ""):
        return "sync"
    return "memory" if _COPIES.match(name or "") else classify(_CATEGORY, name, device=True)


def _tracks(context: ReadContext) -> list[tuple[int, int, int]]:
    """(number of the file, pid, tid) of the streams and of the threads of whole collectives."""
    found: list[tuple[int, int, int]] = context.con.execute(
        "WITH named AS (SELECT event_id // $ids AS file, pid, tid, name, category FROM event "
        "WHERE run = $run AND class = $metadata) "
        "SELECT DISTINCT file, thread.pid, thread.tid FROM named AS thread JOIN named AS process "
        "USING (file, pid) WHERE process.name = 'process_name' "
        "AND thread.name = 'thread_name' AND (process.category = $streams "
        "OR list_contains($collectives, process.category) "
        "AND contains(thread.category, $operations)) ORDER BY ALL",
        {
            "ids": event_fields.IDS_PER_FILE,
            "run": context.run,
            "metadata": event_fields.METADATA,
            "streams": _STREAMS,
            "collectives": list(_COLLECTIVES),
            "operations": _OPERATIONS,
        },
    ).fetchall()
    return found
