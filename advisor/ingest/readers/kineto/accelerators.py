"""Device events that only their process's name tells: Ascend's profiler writes no category.

Its ``trace_view.json`` has a process for the NPU, whose threads are streams, and one for HCCL, of
which the threads called "... Communication" hold whole collectives and the others their parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.ingest.classes import class_sql, literal
from advisor.ingest.readers.kineto import events_sql as sql
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext

# Ascend/msprof-analyze msprof_analyze/compare_tools/compare_backend/compare_bean/origin_data_bean/
# trace_event_bean.py (is_npu_process_name, is_hccl_process_name, is_communication_op_thread)
_STREAMS = "Ascend Hardware"
_COLLECTIVES = ("HCCL", "Communication")
_OPERATIONS = "Communication"
# Tasks that wait or mark, and tasks that copy: Ascend/msprof-analyze, the task types there.
_WAITS = "(?i)^(event|notify|capture)_(wait|record)"
_COPIES = "(?i)^(memcpy|sdma)"
_CATEGORY = "kernel"
_DEVICE = 0  # a file is of one NPU, and does not say which


def place_on_devices(traces: Sequence[Trace], context: ReadContext) -> None:
    """Make the spans of such processes device events; their threads are streams."""
    by_name = class_sql(literal(_CATEGORY), "name", "true")
    class_ = (
        f"CASE WHEN regexp_matches(name, {literal(_WAITS)}) THEN 'sync' "
        f"WHEN regexp_matches(name, {literal(_COPIES)}) THEN 'memory' ELSE {by_name} END"
    )
    files = {trace.number: trace for trace in traces}
    for number, pid, tid in _tracks(context):
        if number in files:
            context.con.execute(
                f"UPDATE event SET category = ?, class = {class_}, device = ?, stream = tid "
                "WHERE run = ? AND event_id BETWEEN ? AND ? AND pid = ? AND tid = ? "
                "AND category IS NULL AND class NOT LIKE '!%'",
                [
                    *(_CATEGORY, _DEVICE, context.run),
                    *(files[number].first_id, files[number].last_id, pid, tid),
                ],
            )


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
            "ids": sql.IDS_PER_FILE,
            "run": context.run,
            "metadata": sql.METADATA,
            "streams": _STREAMS,
            "collectives": list(_COLLECTIVES),
            "operations": _OPERATIONS,
        },
    ).fetchall()
    return found
