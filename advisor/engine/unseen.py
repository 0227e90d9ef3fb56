"""Ranks that were compared with nobody: who never waits may be the one that all others wait for.

A late rank finds the others waiting at every collective and goes straight through. Its own
recording shows hardly any exposed communication, exactly as that of a healthy rank does.
"""

from __future__ import annotations

from advisor.engine.facts import Facts
from advisor.engine.recording import all_ranks
from advisor.engine.sandbox import Sandbox
from advisor.findings import Verdict
from advisor.vocabulary.words import named_ranks

_ALONE = (
    "SELECT rank FROM call WHERE coalesce(group_size, 2) > 1 "
    "GROUP BY rank HAVING max(coalesce(matched_ranks, 1)) <= 1 ORDER BY rank"
)


def as_far_as_seen(healthy: Verdict, sandbox: Sandbox, facts: Facts) -> Verdict:
    """``healthy``; with its limits where ranks of the job are missing that could contradict it.

    That is where a rank which was read shares no call with another one that was.
    """
    alone = [] if facts.all_ranks else [row["rank"] for row in sandbox.records(_ALONE)]
    if not alone:
        return healthy
    who = named_ranks(alone)
    world = f" of {facts.world_size}" if facts.world_size else ""
    limits = (
        f"this is as far as {facts.ranks_read}{world} ranks can tell, and {who}, which hardly "
        "waits, may be late itself, with the others waiting for it"
    )
    return healthy.model_copy(
        update={
            "title": f"{healthy.title.removesuffix('.')}; {limits}.",
            "next_steps": [all_ranks(sandbox), *healthy.next_steps],
        }
    )
