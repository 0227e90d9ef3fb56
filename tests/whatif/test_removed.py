"""Steps without some calls, worked out by hand and on a real recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import api
from advisor.whatif.cost import ServiceModel
from advisor.whatif.extract import programs
from advisor.whatif.program import Call, Issue, Item, Owner, Program, Wait, Work
from advisor.whatif.queries import WAKE_NS
from advisor.whatif.removed import with_half_the_bytes, without_calls
from advisor.whatif.simulate import simulate


def program() -> Program:
    """Compute of 50, then two calls of 10, each asked for in 3 and copied in 2."""
    items: list[Item] = [Work(50)]
    for call in (0, 1):
        items += [Work(3, Owner(call, "call")), Issue(call), Wait(call)]
        items.append(Work(2, Owner(call, "bytes")))
    calls = {call: Call((0, 1), "g", 10, "all_reduce", 600) for call in (0, 1)}
    return Program({0: items, 1: list(items)}, calls, {0: 0.0, 1: 0.0})


def test_calls_go_with_what_the_host_does_for_them() -> None:
    assert simulate(program()).step_ns == 50 + 2 * (3 + 10 + 2)
    one = without_calls(program(), [1])
    assert one is not None
    assert simulate(one).step_ns == 50 + 15
    both = without_calls(program(), [0, 1, 99])
    assert both is not None
    assert simulate(both).step_ns == 50


def test_without_any_of_the_calls_there_is_no_change() -> None:
    assert without_calls(program(), [99]) is None


def test_what_shared_a_busy_link_with_the_calls_that_go_takes_what_it_takes_alone() -> None:
    """A reduction of 9 took 12 beside a gather; another one had a reduction for company only."""
    calls = {
        0: Call((0, 1), "g", 6, "all_gather", burst=0, apart_ns=5),
        1: Call((0, 1), "g", 12, "reduce_scatter", burst=0, apart_ns=9),
        2: Call((0, 1), "g", 12, "reduce_scatter", burst=1),
        3: Call((0, 1), "g", 12, "reduce_scatter", burst=2, apart_ns=9),
        4: Call((0, 1), "g", 6, "all_gather", burst=2, apart_ns=5),
    }
    items: list[Item] = [part for call in calls for part in (Issue(call), Wait(call))]
    left = without_calls(Program({0: items, 1: items}, calls, {0: 0.0, 1: 0.0}), [0])
    assert left is not None
    assert {key: call.service_ns for key, call in left.calls.items()} == {1: 9, 2: 12, 3: 12, 4: 6}
    assert with_half_the_bytes(program(), {99: ServiceModel(4, 0.01, 2, 8, 600, 0.0)}) is None


def test_half_of_the_bytes_leaves_the_latency() -> None:
    changed = with_half_the_bytes(program(), {0: ServiceModel(4, 0.01, 2, 8, 600, 0.0)})
    assert changed is not None
    assert changed.calls[0].bytes == 300
    # 4 of its 10 are latency, 6 are bytes.
    assert changed.calls[0].service_ns == 7
    assert changed.calls[1].service_ns == 10


@pytest.mark.slow
def test_what_lies_between_two_calls_only_is_done_for_the_second(fixtures_dir: Path) -> None:
    with api.load(fixtures_dir / "lab-ddp-blocking") as run:
        steps = programs(run.store, "run")
    owned = [
        (item, step)
        for step in steps
        for items in step.items.values()
        for item in items
        if isinstance(item, Work) and item.owner is not None
    ]
    assert owned
    for item, step in owned:
        assert item.owner is not None
        assert item.owner.call in step.calls
        assert item.ns < WAKE_NS, "longer stretches are work of somebody's"


@pytest.mark.slow
def test_reductions_of_early_micro_batches_are_left_out_in_the_replay(fixtures_dir: Path) -> None:
    with api.load(fixtures_dir / "emulated-sync-every-micro-batch") as run:
        rows = run.sql(
            "SELECT measured_step_ns - step_ns AS gain, measured_step_ns AS step FROM whatif "
            "WHERE setting = 'gradient-sync'"
        )
    assert len(rows) == 1
    # Two of three reductions go; hidden under compute in part, so that the step is not a third.
    assert 0 < rows["gain"][0] < rows["step"][0] / 3
