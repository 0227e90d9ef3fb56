"""What findings claim, and how much of a claim goes with another."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine import load_catalogue
from advisor.engine.claims import TIMES, Ledger, claims_of, covered, ledger_of
from advisor.engine.examples import fill
from advisor.engine.rule import Example
from advisor.engine.sandbox import Sandbox

RULES = {rule.id: rule for rule in load_catalogue()[0]}


def ledger(part: float, *spans: int) -> Ledger:
    return ledger_of(dict.fromkeys(spans, (1000000.0, part)))


def test_shares_of_a_call_are_not_taken_to_be_the_same_nanoseconds() -> None:
    third, half = ledger(1 / 3, 1, 2), ledger(0.5, 1, 2)
    assert covered(half, [third]) == pytest.approx(1 / 3)
    assert covered(third, [half]) == pytest.approx(0.5)
    assert covered(half, [ledger(1.0, 1)]) == pytest.approx(0.5)
    assert covered(ledger(1.0), [half]) == 0.0


def test_shares_of_two_findings_of_one_rule_are() -> None:
    third, half = ledger(1 / 3, 1, 2), ledger(0.5, 1, 2)
    assert covered(third, [half], alike=True) == pytest.approx(1.0)
    assert covered(half, [third], alike=True) == pytest.approx(2 / 3)


def test_several_causes_take_away_what_the_others_leave() -> None:
    assert covered(ledger(1.0, 1, 2), [ledger(0.5, 1), ledger(0.5, 1)]) == pytest.approx(0.375)


def test_a_rank_claims_what_the_others_wait_for_it_as_far_as_that_comes_back() -> None:
    call = {"op": "all_reduce", "dur_ns": 10_000_000, "last_rank": 2}
    late = {"rank": [0, 1, 3], "wait_ns": 8_000_000, "exposed_transfer_ns": 2_000_000}
    own = {"rank": 2, "wait_ns": 0, "exposed_transfer_ns": 10_000_000}
    calls = [
        {**call, **rows, "step": step, "call_id": step} for rows in (late, own) for step in (0, 1)
    ]
    exposed = {"rank": [0, 1, 2, 3], "step": [0, 1], "exposed_comm_ns": 10_000_000}
    tables = {"collective": calls, "step_breakdown": [exposed]}
    example = Example(name="one", expect="passed", steps=2, tables=tables)
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, example)
        row = {"rank": 2, "ranks": [2], "savings_ns": 4_000_000, "used_steps": 2}
        row |= {"idle_part_ns": 0, "compute_part_ns": 0}
        claims = claims_of(RULES["straggler-rank"], sandbox, row)
    # What ranks 0, 1 and 3 wait in each of two calls.
    assert claims.ns.tolist() == [8_000_000] * 6
    assert claims.part.tolist() == [0.5] * 6
    assert claims.claimed_ns == 24_000_000


def test_calls_that_wait_at_once_share_the_waiting_of_their_step() -> None:
    """Two broadcasts in flight while rank 0 pauses for 60 ms: the step waits once."""
    waits = {"rank": 1, "last_rank": 0, "exposed_transfer_ns": 0, "wait_ns": 60_000_000}
    calls = [
        {**waits, "op": "broadcast", "dur_ns": 60_000_000, "step": 0, "call_id": call}
        for call in (1, 2)
    ]
    calls.append({**calls[0], "step": 1, "call_id": 3})
    waited = [
        {"rank": rank, "step": [0, 1], "exposed_wait_ns": rank * 60_000_000} for rank in (0, 1)
    ]
    tables = {"collective": calls, "step_breakdown": waited}
    example = Example(name="one", expect="passed", ranks=2, steps=2, tables=tables)
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, example)
        row = {"rank": 0, "pause_steps": [0], "savings_ns": 60_000_000, "used_steps": 2}
        claims = claims_of(RULES["one-rank-pauses"], sandbox, {**row, "works": False})
    # The pause is waited for in its own step, or in the next where it lies behind the last call.
    assert sorted(claims.ns.tolist()) == [30_000_000, 30_000_000, 60_000_000]


def test_a_setting_claims_itself_and_a_symptom_the_settings_that_would_cause_it() -> None:
    env = [
        {"kind": "env", "rank": 0, "host": "a", "name": name, "value": "1"}
        for name in ("NCCL_P2P_DISABLE", "NCCL_ALGO")
    ]
    example = Example(name="one", expect="passed", tables={"topology": env})
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, example)
        symptom = claims_of(RULES["shm-instead-of-p2p"], sandbox, {})
        its, other = (
            claims_of(RULES["env-override"], sandbox, {"name": name})
            for name in ("NCCL_P2P_DISABLE", "NCCL_ALGO")
        )
    assert covered(symptom, [its]) == 1.0
    assert covered(symptom, [other]) == 0.0


def test_calls_at_once_wait_no_longer_than_their_step_is_exposed_beside_transfer() -> None:
    """Of one rank alone nothing tells waiting: two calls at once share 8 ms of exposed time."""
    calls = [
        {"rank": 0, "step": 0, "call_id": call, "op": "all_reduce", "dur_ns": 8_000_000,
         "exposed_ns": 8_000_000, "exposed_transfer_ns": 4_000_000}
        for call in (1, 2)
    ]  # fmt: skip
    step = {"rank": 0, "step": 0, "exposed_comm_ns": 8_000_000, "exposed_wait_ns": None}
    tables = {"collective": calls, "step_breakdown": [step]}
    example = Example(name="one", expect="passed", ranks=1, steps=1, tables=tables)
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, example)
        rows = sandbox.records("SELECT exposed_transfer_ns, exposed_wait_ns FROM waiting_call")
    assert [row["exposed_transfer_ns"] for row in rows] == [4_000_000, 4_000_000]
    assert [row["exposed_wait_ns"] for row in rows] == [0, 0]


@pytest.mark.parametrize(("span_ns", "waiting"), [(23_000_000, False), (15_000_000, True)])
def test_a_burst_claims_its_waiting_where_that_is_most_of_it(span_ns: int, waiting: bool) -> None:
    """Six logged values wait 9 ms in all and send for 6; the rest of their burst is Python."""
    call = {"rank": [0, 1], "step": [0, 1], "op": "all_reduce", "process_group": "0", "bytes": 4}
    call |= {"dur_ns": 15_000_000, "wait_ns": 9_000_000, "exposed_transfer_ns": 6_000_000}
    exposed = {"rank": [0, 1], "step": [0, 1], "exposed_comm_ns": 15_000_000}
    tables = {"collective": [call], "step_breakdown": [exposed]}
    row = {"kind": "logged", "op": "all_reduce", "groups": ["0"], "bytes": 4, "idle_ns": 0}
    row |= {"exposed_ns": 6_000_000, "wait_ns": 9_000_000, "span_ns": span_ns, "used_steps": 2}
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, Example(name="one", expect="passed", ranks=2, steps=2, tables=tables))
        claims = claims_of(RULES["redundant-collectives"], sandbox, row)
    assert sorted(set(claims.ns.tolist())) == [6_000_000] + [9_000_000] * waiting


def waiting_claims(
    rule: str, row: dict[str, Any], tables: dict[str, Any], part: str = "wait"
) -> list[int]:
    """The steps in which ``rule`` claims what rank 0 waits for rank 1, which is last in all."""
    call = {"op": "all_reduce", "dur_ns": 20_000_000, "last_rank": 1, "rank": 0}
    calls = [{**call, "step": n, "call_id": n, "wait_ns": 15_000_000} for n in range(4)]
    late = {"rank": 1, "cost_ns_per_step": 15_000_000, "wait_ns_per_step": 15_000_000}
    example = Example(
        name="one", expect="passed", ranks=2, steps=4,
        tables={
            "collective": calls,
            "step_breakdown": [{"rank": 0, "step": [0, 1, 2, 3], "exposed_comm_ns": 20_000_000}],
            **tables, "lateness": [{**late, **tables["lateness"]}],
        },
    )  # fmt: skip
    with Sandbox(None, "example") as sandbox:
        fill(sandbox, example)
        claims = claims_of(RULES[rule], sandbox, {"used_steps": 4, "half": 0.5, **row})
    return sorted(map(int, claims.spans.step[claims.spans.kind == TIMES.index(part)]))


@pytest.mark.parametrize(("reason", "steps"), [("more-work", []), ("data-loading", [0, 1, 2, 3])])
def test_data_that_ranks_wait_for_in_turn_is_no_reason_for_one_with_more_work(
    reason: str, steps: list[int]
) -> None:
    row = {"kind": "data-loading", "stalled": [0, 1], "one_rank": False}
    late = {"systematic": True, "reason": reason}
    assert waiting_claims("data-loader-stall", row, {"lateness": late}) == steps


def test_cores_that_are_lacking_are_no_reason_for_a_pause_that_is_longer() -> None:
    """GIVEN rank 1 lacks its core for 20 ms a step and stands still for 50 in step 2, where its
    peer waits for 15 and, in the step behind it, for 15."""
    metadata = '{"advisor": {"core_wait_ns": [20000000, 20000000, 20000000, 20000000]}}'
    tables = {
        "rank": [{"rank": [0, 1], "world_size": 2, "timeline": "host", "metadata": metadata}],
        "step": [{"rank": [0, 1], "step": [0, 1, 2, 3], "step_ns": 100_000_000}],
        "host_gap": [{"rank": 1, "step": 2, "kind": "other", "idle_ns": 50_000_000}],
        "lateness": {"systematic": False},
    }
    assert waiting_claims("no-free-core", {"ranks": [0, 1]}, tables) == [0, 1]


@pytest.mark.parametrize(
    ("reason", "more_ms", "parts"),
    [
        ("late-launch", 18, ["wait", "idle"]),
        ("late-launch", 5, []),
        ("more-work", 18, []),
        ("more-work by time", 18, ["wait"]),
    ],
)
def test_a_host_that_is_late_for_want_of_its_core_is_no_cause_of_its_own(
    reason: str, more_ms: int, parts: list[str]
) -> None:
    """GIVEN rank 0 waits 15 ms for rank 1, which lacks its core for so much longer than rank 0."""
    ranks = [
        {"rank": rank, "world_size": 2, "timeline": "host",
         "metadata": f'{{"advisor": {{"core_wait_ns": [{ms}000000]}}}}'}
        for rank, ms in ((0, 20), (1, 20 + more_ms))
    ]  # fmt: skip
    tables = {
        "rank": ranks,
        "step": [{"rank": [0, 1], "step": [0, 1, 2, 3], "step_ns": 100_000_000}],
        "host_gap": [{"rank": 1, "step": [0, 1, 2, 3], "kind": "other", "idle_ns": 15_000_000}],
        "lateness": {
            "systematic": True,
            "reason": reason.removesuffix(" by time"),
            "reason_evidence": '{"own_ns": 24}' if reason.endswith("time") else '{"own_ns": null}',
        },
    }
    for part in ("wait", "idle"):
        steps = [0, 1, 2, 3] if part in parts else []
        assert waiting_claims("no-free-core", {"ranks": [0, 1]}, tables, part) == steps
