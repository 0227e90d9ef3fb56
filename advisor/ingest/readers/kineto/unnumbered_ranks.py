"""Ranks of files that do not say theirs, once it is known what the files hold.

Such files get the free numbers in order of their names. One without a single event is no rank: it
may be any JSON file that lies beside the traces. And where the traces say how many ranks the job
has, no number is given beyond that.
"""

from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.ingest.readers.kineto.merged import set_rank
from advisor.ingest.readers.kineto.ranks import assign_ranks
from advisor.ingest.readers.kineto.trace import Trace
from advisor.ingest.source import ReadContext

_NO_EVENT = "holds no event that can be used, and does not say its rank: it counts as no rank"


def number_unnumbered(traces: Sequence[Trace], context: ReadContext) -> None:
    """Take back the ranks of files without events, number the others anew, and refuse the rest.

    Raises :class:`AdvisorError` where the user named a file that is refused.
    """
    guessed = [trace for trace in traces if _is_unnumbered(trace)]
    empty = [trace for trace in guessed if not _has_events(trace, context)]
    for trace in guessed:
        trace.guessed = ""
    for trace in empty:
        trace.is_rank = False
        trace.notes.append(_NO_EVENT)
    before = {trace.number: trace.rank for trace in guessed}
    left = [trace for trace in guessed if trace.is_rank]
    told = {trace.rank for trace in traces if not trace.merged and trace not in guessed}
    assign_ranks(left, context.ranks, told, several=len(traces) - len(empty) > 1)
    size = max((trace.info.world_size or 0 for trace in traces if trace.is_rank), default=0)
    for trace in left:
        if 0 < size <= trace.rank:
            reason = f"does not say its rank, and other files are all of the job's ranks ({size})"
            hint = "leave it out, or name it by its rank: rank0.json"
            trace.refused = trace.source.refused(
                AdvisorError(reason, where=str(trace.source.path), hint=hint)
            )
    # Downwards in order, so that no two files share a number on the way.
    for trace in left:
        if trace.refused is None and trace.rank != before[trace.number]:
            set_rank(trace, context)


def _is_unnumbered(trace: Trace) -> bool:
    return not trace.merged and bool(trace.guessed)


def _has_events(trace: Trace, context: ReadContext) -> bool:
    found = context.con.execute(
        "SELECT 1 FROM event WHERE run = ? AND event_id BETWEEN ? AND ? "
        "AND NOT starts_with(class, '!') LIMIT 1",
        [context.run, trace.first_id, trace.last_id],
    ).fetchall()
    return bool(found)
