"""A rank that was compared with nobody may be the one that all others wait for."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine import diagnose
from tests.engine.helpers import store_of

HIDDEN = {"window_ns": 100_000_000, "compute_ns": 99_000_000, "comm_ns": 9_000_000}


@pytest.mark.parametrize(
    ("read", "world", "matched", "limited"),
    [([0], 4, 1, True), ([0], 1, 1, False), ([0, 1], 2, 2, False), ([0, 1], 4, 2, False)],
    ids=["one of four", "the only one", "both", "two that meet"],
)
def test_a_healthy_verdict_says_when_the_late_rank_may_be_this_one(
    read: list[int], world: int, matched: int, limited: bool
) -> None:
    calls: dict[str, Any] = {"rank": read, "step": [*range(8)], "group_size": world}
    calls |= {"op": "all_reduce", "matched_ranks": matched}
    calls |= {"start_ns": 0, "end_ns": 1_000_000, "exposed_ns": 0}
    steps = {"rank": read, "step": [*range(8)], **HIDDEN, "hidden_comm_ns": 9_000_000}
    tables = {"step_breakdown": [steps], "collective": [calls]}
    store = store_of(ranks=len(read), world_size=world, steps=8, tables=tables)
    report = diagnose(store, command="advisor diagnose x")
    store.close()
    verdict = report.verdict
    assert (verdict.kind, verdict.reason) == (
        ("inconclusive", "ranks-alone") if limited else ("healthy", "healthy")
    )
    assert verdict.values.get("alone") == ([0] if limited else None)
    assert any("advisor record" in step for step in verdict.next_steps) is limited
    (bound,) = [item for item in report.findings if item.rule == "compute-bound"]
    assert (f"{len(read)} of {world} ranks tell" in bound.message) == (len(read) < world)
