"""A Megatron op table of 64 ranks (one of each tensor-parallel group recorded)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from advisor.api import Run

pytestmark = pytest.mark.slow


def test_one_slow_rank_is_no_heavy_stage(real2: Callable[[str], Run]) -> None:
    """Rank 0 computes 45.4 s, its stage's other ranks 19.3 s; without it the job takes 23.5 s."""
    report = real2("op_table_AR").report
    top = report.findings[0]
    assert (top.rule, top.ranks) == ("slow-rank-in-stage", [0])
    assert report.verdict.cause == "slow-rank-in-stage"
    assert top.savings_ns == pytest.approx(22.8e9, rel=0.1)
    assert top.savings_low_ns is not None and top.savings_high_ns is not None
    assert top.savings_low_ns <= 22.8e9 <= top.savings_high_ns
    # Ranks 52 to 60 wait in operations that the table does not hold; nobody launches late.
    assert [item.rule for item in report.findings] == ["slow-rank-in-stage"]
    assert report.runs[0].world_size == 64


def test_nothing_is_said_of_launches_that_a_table_has_not(real2: Callable[[str], Run]) -> None:
    reasons = real2("op_table_AR").sql("SELECT DISTINCT reason FROM lateness")["reason"]
    assert "late-launch" not in set(reasons)
