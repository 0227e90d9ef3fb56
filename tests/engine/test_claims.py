"""Claims on the same time: what one finding takes away of another decides which is its effect."""

from __future__ import annotations

import pytest

from advisor.engine import load_catalogue
from advisor.engine.claims import Share, claims_of, covered, effects
from advisor.engine.examples import fill
from advisor.engine.rule import Example
from advisor.engine.sandbox import Sandbox
from advisor.findings import Finding, Severity

RULES = {rule.id: rule for rule in load_catalogue()[0]}


def found(rule: str, run: str = "run") -> Finding:
    return Finding(
        id=rule, run=run, rule=rule, severity=Severity.WARNING, title=rule, message="", where="here"
    )


def ledger(part: float, *calls: int, of: str = "transfer") -> dict[tuple[int, str, int], Share]:
    return {(0, of, call): Share(1e6, part) for call in calls}


def test_shares_of_a_call_are_not_taken_to_be_the_same_nanoseconds() -> None:
    third, half = ledger(1 / 3, 1, 2), ledger(0.5, 1, 2)
    assert covered(half, third) == pytest.approx(1 / 3)
    assert covered(third, half) == pytest.approx(0.5)
    assert covered(half, ledger(1.0, 1)) == pytest.approx(0.5)
    assert covered({}, half) == 0.0


def test_why_comes_before_who_and_who_before_where() -> None:
    claims = ledger(1.0, 1, 2)
    names = ["exposed-communication", "straggler-rank", "data-loader-stall"]
    assert effects([(found(name), claims) for name in names], RULES) == {0: 2, 1: 2}


def test_a_worse_finding_takes_what_it_covers_and_is_not_covered_by() -> None:
    rank = ledger(1.0, 1, 2, 3, of="wait") | ledger(1.0, 9, of="idle")
    pause = ledger(1.0, 9, of="idle")
    ordered = [(found("straggler-rank"), rank), (found("blocking-sync"), pause)]
    assert effects(ordered, RULES) == {1: 0}
    assert effects(ordered[::-1], RULES) == {}


def test_other_calls_and_other_runs_stay_apart() -> None:
    one = (found("small-buckets"), ledger(1.0, 1))
    assert effects([one, (found("fp32-gradients"), ledger(1.0, 2))], RULES) == {}
    assert effects([one, (found("fp32-gradients", "other"), ledger(1.0, 1))], RULES) == {}
    assert effects([one, (found("fp32-gradients"), ledger(1.0, 1))], RULES) == {1: 0}


def test_a_rank_claims_what_the_others_wait_for_it_as_far_as_that_comes_back() -> None:
    call = {"op": "all_reduce", "dur_ns": 10_000_000, "last_rank": 2}
    late = {"rank": [0, 1, 3], "wait_ns": 8_000_000, "exposed_transfer_ns": 2_000_000}
    own = {"rank": 2, "wait_ns": 0, "exposed_transfer_ns": 10_000_000}
    calls = [
        {**call, **rows, "step": step, "call_id": step} for rows in (late, own) for step in (0, 1)
    ]
    example = Example(name="one", expect="passed", steps=2, tables={"collective": calls})
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, example)
        row = {"rank": 2, "savings_ns": 4_000_000, "used_steps": 2}
        claims = claims_of(RULES["straggler-rank"], sandbox, row)
    assert {rank for rank, _, _ in claims} == {0, 1, 3}
    assert {part for _, part, _ in claims} == {"wait"}
    assert len(claims) == 6
    assert {(share.ns, share.part) for share in claims.values()} == {(8_000_000, 0.5)}
