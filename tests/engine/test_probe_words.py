"""A probe that says otherwise than the recording is in the verdict, or in a note beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.engine import diagnose
from advisor.findings import FindingsReport
from tests.engine.helpers import store_of

STEPS = {
    "rank": [0, 1, 2],
    "step": [*range(8)],
    "window_ns": 100_000_000,
    "compute_ns": 60_000_000,
    "exposed_comm_ns": 40_000_000,
    "comm_ns": 40_000_000,
    "exposed_wait_ns": 2_000_000,
}
CALL = {
    "rank": [0, 1, 2], "step": 0, "op": "all_reduce", "process_group": "0", "group_size": 3,
    "bytes": 3_000_000, "dur_ns": 30_000_000, "wait_ns": 0, "exposed_ns": 30_000_000,
    "matched_ranks": 3,
}  # fmt: skip
COST = {"excess_ns_per_step": 20_000_000, "excess_low_ns": 15_000_000, "excess_high_ns": 25_000_000}


def place(kind: str, src: int, probe: str | None, **more: Any) -> dict[str, Any]:
    evidence: dict[str, Any] = {"probe": probe}
    if probe in ("names", "confirms"):
        evidence |= {"probe_gbps": 0.05, "probe_expected_gbps": 0.25}
    if probe == "names":
        evidence |= {"direction": "send"}
    else:
        evidence |= {"share": [0.5, 0.7, 0.9]}
    return {"kind": kind, "src": src, "calls": 40, "measured_gbps": 0.02, "p_value": 1e-6,
            "evidence": json.dumps(evidence), **more}  # fmt: skip


def report_with(*places: dict[str, Any]) -> FindingsReport:
    tables = {"step_breakdown": [STEPS], "collective": [CALL], "link_excess": list(places)}
    with store_of(ranks=3, steps=8, tables=tables) as store:
        return diagnose(store, select=["slow-ring-link"])


EDGE: dict[str, Any] = {"dst": 2, "expected_gbps": 0.1, "expected_from": "stagger", **COST}
OTHER = place("rank", 1, "names", expected_from="probe", p_value=None)


@pytest.mark.parametrize("others", [(), (OTHER,)], ids=["all-alike", "another-slow"])
def test_the_verdict_says_that_the_probe_finds_the_place_fast(others: tuple[Any, ...]) -> None:
    report = report_with(place("edge", 0, "denies", **EDGE), *others)
    verdict, (summary,) = report.verdict, report.runs
    assert (verdict.kind, verdict.reason) == ("inconclusive", "probe-denies")
    assert bool(verdict.values["probe_names"]) is bool(others)
    assert "advisor probe" not in " ".join(verdict.next_steps)
    assert summary.caveats == [], "it is said once"
    assert [item.severity for item in report.findings] == ["info"] * (1 + len(others))


def test_without_a_probe_the_verdict_asks_for_one() -> None:
    verdict = report_with(place("edge", 0, None, **EDGE)).verdict
    assert verdict.cause == "slow-ring-link"
    assert "advisor probe --nnodes 2" in " ".join(verdict.next_steps)


def test_a_place_that_only_the_probe_finds_slow_is_named_beside_another_verdict() -> None:
    report = report_with(place("edge", 0, "confirms", **EDGE), OTHER)
    assert report.verdict.cause == "slow-ring-link"
    assert "advisor probe" not in " ".join(report.verdict.next_steps)
    (said,) = report.runs[0].caveats
    assert said.code == "probe" and "rank 1 (sending)" in said.text
