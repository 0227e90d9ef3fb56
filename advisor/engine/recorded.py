"""Whether a recording holds what a verdict speaks of: nothing found in nothing is no good news."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.engine.facts import Facts
from advisor.engine.sandbox import Sandbox
from advisor.findings import Note, Verdict
from advisor.store.notes import NOT_RECORDED
from advisor.vocabulary.words import percent, ranks_text

_MOSTLY_IDLE = 0.5


def not_recorded(
    sandbox: Sandbox, facts: Facts, idle_share: float, numbers: str, notes: Sequence[Note]
) -> Verdict | None:
    """That work or communication is missing from the recording, so that nothing is no good news."""
    empty = [
        row["rank"]
        for row in sandbox.records(
            "SELECT rank FROM rank_step GROUP BY rank "
            "HAVING sum(compute_ns) = 0 AND sum(comm_ns) = 0 ORDER BY rank"
        )
    ]
    told = [note.text for note in notes if NOT_RECORDED in note.values.get("codes", ())]
    why = " ".join([numbers, *(f"{note.rstrip('.')}." for note in told)])
    if empty:
        everywhere = len(empty) == facts.ranks_read
        on = "" if everywhere else f" on rank {ranks_text(empty)}"
        return Verdict(
            title=f"Neither compute nor communication was recorded{on}: nothing can be said of "
            "what the step loses.",
            cause="unknown",
            why=why,
            next_steps=["record GPU activity on every rank: advisor explain all-ranks"],
        )
    communicates = (
        "SELECT 1 AS one FROM collective UNION ALL "
        "SELECT 1 FROM rank_step WHERE comm_ns > 0 LIMIT 1"
    )
    if facts.world_size == 1 or sandbox.records(communicates):
        return None
    mostly_idle = idle_share >= _MOSTLY_IDLE
    title = "No communication was recorded, so nothing can be said about it."
    if mostly_idle:
        title = (
            f"The device idles for {percent(idle_share)} of the step; "
            "no communication was recorded."
        )
    host = "see what the host does in that time: advisor explain launch-bound"
    return Verdict(
        title=title,
        cause="unknown",
        why=why,
        next_steps=[
            *([host] if mostly_idle else []),
            "a job on one device has nothing to communicate; one on several: record with "
            "communication and its kernels' names: advisor explain all-ranks",
        ],
    )
