"""Traces were read, and hold no work that advisor knows: what to tell, and what to record."""

from __future__ import annotations

from advisor.engine.recording import all_ranks
from advisor.engine.sandbox import Sandbox
from advisor.findings import Verdict

_READ = "SELECT coalesce(sum(events_read), 0) AS events, count(*) AS ranks FROM rank"


def without_work(sandbox: Sandbox) -> Verdict | None:
    """What was read, and what to record instead; None where no trace gave an event.

    For runs without any step: one event of a known class makes the whole trace a step.
    """
    (row,) = sandbox.records(f"{_READ} WHERE events_read > 0")
    if not row["events"] or not sandbox.formats & {"kineto", "nsys"}:
        return None
    ranks = f"{row['ranks']} rank{'s' if row['ranks'] != 1 else ''}"
    return Verdict(
        title=f"The traces of {ranks} hold nothing to diagnose: none of their "
        f"{row['events']:,} events is an operator, a kernel or a collective.",
        cause="unknown",
        why="The events' categories are none of those that PyTorch's profiler or Nsight Systems "
        "write for work; a profiler of Python sees functions, and no communication.",
        next_steps=[all_ranks(sandbox)],
    )
