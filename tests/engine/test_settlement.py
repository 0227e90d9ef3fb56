"""All claims of a run come from one ledger: time is lost once, and they never add up to more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.engine.claims import TIMES, Ledger, Spans, ledger_of
from advisor.engine.examples import fill
from advisor.engine.rule import Example
from advisor.engine.sandbox import Sandbox
from advisor.engine.settlement import settle
from advisor.errors import AdvisorError
from advisor.findings import Finding, Severity
from tests.support.marks import thinned

np = pytest.importorskip("numpy")
ROOT = Path(__file__).parents[2]
FIXTURES = sorted(path for path in (ROOT / "fixtures").iterdir() if path.is_dir())
MS = 1_000_000
ROUNDING_NS = 10  # a nanosecond for each kind of time of a few findings


def claimed(name: str, kind: str, part: float, calls: dict[int, int]) -> tuple[Finding, Ledger]:
    """A finding that claims ``part`` of these calls (id: ns) on rank 0, all of step 0."""
    finding = Finding(
        id=name, run="run", rule=name, severity=Severity.WARNING, title=name, message=""
    )
    keys = sorted(calls)
    of_calls = kind in ("transfer", "wait")
    spans = Spans(
        rank=np.zeros(len(keys), dtype=np.int64),
        step=np.zeros(len(keys), dtype=np.int64),
        kind=np.full(len(keys), TIMES.index(kind)),
        call=np.array(keys if of_calls else [-1] * len(keys)),
    )
    ns = np.array([calls[key] for key in keys], dtype=float)
    return finding, Ledger(np.array(keys, dtype=np.uint64), ns, np.full(len(keys), part), spans)


def settled(*found: tuple[Finding, Ledger], **breakdown: int) -> list[Finding]:
    tables: dict[str, Any] = {
        "collective": [
            {"rank": 0, "step": 0, "call_id": call, "op": op, "process_group": "0", "dur_ns": MS}
            for call, op in ((1, "all_reduce"), (2, "all_gather"))
        ],
        "step_breakdown": [{"rank": 0, "step": 0, **(breakdown or {"exposed_comm_ns": 99 * MS})}],
    }
    example = Example(name="one", expect="passed", ranks=1, steps=1, tables=tables)
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, example)
        return settle(found, sandbox, steps=1, ranks=1)


def test_a_call_is_claimed_once() -> None:
    """Three quarters and a half of one call: the second gets the quarter that is left."""
    calls = {1: 8 * MS}
    first, second = settled(
        claimed("a", "transfer", 0.75, calls), claimed("b", "transfer", 0.5, calls)
    )
    assert first.claims == {"transfer": 6 * MS}
    assert second.claims == {"transfer": 2 * MS}


def test_a_finding_that_stands_later_may_be_left_nothing() -> None:
    calls = {1: 8 * MS}
    _, second = settled(claimed("a", "wait", 1.0, calls), claimed("b", "wait", 0.5, calls))
    assert (second.claims, second.claimed_calls) == ({}, [])


def test_calls_at_once_claim_no_more_than_their_step_was_exposed() -> None:
    """Two calls of 8 ms that ran together are exposed for 10 ms: the third finding finds none."""
    one, two, three = settled(
        claimed("a", "transfer", 1.0, {1: 8 * MS}),
        claimed("b", "transfer", 1.0, {2: 8 * MS}),
        claimed("c", "wait", 1.0, {3: 4 * MS}),
        exposed_comm_ns=10 * MS,
        idle_ns=5 * MS,
    )
    assert one.claims == {"transfer": 8 * MS}
    assert two.claims == {"transfer": 2 * MS}
    assert three.claims == {}


def test_idling_is_another_pool_than_communication() -> None:
    calls, gaps = {1: 8 * MS}, {9: 3 * MS}
    both = settled(
        claimed("a", "transfer", 1.0, calls),
        claimed("b", "idle", 1.0, gaps),
        exposed_comm_ns=8 * MS,
        idle_ns=2 * MS,
    )
    assert [item.claims for item in both] == [{"transfer": 8 * MS}, {"idle": 2 * MS}]


def test_the_calls_are_told_by_operation_and_group() -> None:
    (found,) = settled(claimed("a", "transfer", 0.5, {1: 8 * MS, 2: 12 * MS}))
    assert [one.model_dump() for one in found.claimed_calls] == [
        {"op": "all_gather", "process_group": "0", "calls": 1, "ns": 6 * MS},
        {"op": "all_reduce", "process_group": "0", "calls": 1, "ns": 4 * MS},
    ]


def test_settings_are_no_time() -> None:
    finding, _ = claimed("a", "idle", 1.0, {1: MS})
    (found,) = settled((finding, ledger_of({7: (1.0, 1.0)})))
    assert found.claims == {}


@pytest.mark.slow
@pytest.mark.parametrize("folder", thinned(FIXTURES, 12), ids=lambda path: path.name)
def test_all_claims_of_a_recording_are_no_more_than_its_step(folder: Path) -> None:
    try:
        run = advisor.load(folder)
    except AdvisorError:
        pytest.skip("several recordings in one folder")
    with run:
        report = run.report
        (mean,) = run.store.con.execute(
            "SELECT avg(window_ns) FROM step_breakdown WHERE used"
        ).fetchone() or (None,)
    total = sum(sum(finding.claims.values()) for finding in report.findings)
    assert total <= (mean or 0) + ROUNDING_NS
    for finding in report.findings:
        of_calls = sum(finding.claims.get(kind, 0) for kind in ("transfer", "wait"))
        named = sum(one.ns for one in finding.claimed_calls)
        assert named == pytest.approx(of_calls, abs=ROUNDING_NS)
        assert bool(named) == bool(of_calls)
