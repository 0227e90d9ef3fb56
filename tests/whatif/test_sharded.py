"""Sharded changes on a schedule worked out by hand: two units, a gather before each's compute."""

from __future__ import annotations

from advisor.whatif.cost import ServiceModel
from advisor.whatif.program import Call, Issue, Item, Program, Wait, Work
from advisor.whatif.sharded import with_prefetch, with_wrapping, without_resharding
from advisor.whatif.simulate import simulate

MODELS = {
    (op, 2): ServiceModel(4.0, 0.01, 2, 8, 600, 0.0) for op in ("all_gather", "reduce_scatter")
}


def program() -> Program:
    """Gathers of 10 (4 + 600 bytes / 100), compute of 20, scatters of 10; everything blocking."""
    items: list[Item] = []
    for call in (0, 1):
        items += [Issue(call), Wait(call), Work(20)]
    for call in (3, 2):
        items += [Issue(call), Wait(call), Work(20), Issue(call + 2), Wait(call + 2)]
    calls = {
        **{c: Call((0, 1), "g", 10, "all_gather", 600, phase="forward") for c in (0, 1)},
        **{c: Call((0, 1), "g", 10, "all_gather", 600, phase="backward") for c in (2, 3)},
        **{c: Call((0, 1), "g", 10, "reduce_scatter", 600, phase="backward") for c in (4, 5)},
    }
    return Program({0: items, 1: list(items)}, calls, {0: 0.0, 1: 0.0})


def test_the_schedule_itself() -> None:
    assert simulate(program()).step_ns == 4 * 20 + 6 * 10


def test_kept_parameters_save_the_backward_gathers() -> None:
    changed = without_resharding(program())
    assert changed is not None
    assert simulate(changed).step_ns == 4 * 20 + 4 * 10
    assert without_resharding(changed) is None, "nothing is left to drop"


def test_prefetch_hides_all_gathers_but_the_first() -> None:
    changed = with_prefetch(program(), "forward", 1)
    assert changed is not None
    assert simulate(changed).step_ns == 4 * 20 + 5 * 10
    both = with_prefetch(changed, "backward", 1)
    assert both is not None
    # Left over: the first gather of each pass and the two blocking scatters.
    assert simulate(both).step_ns == 4 * 20 + 4 * 10


def test_wrapping_two_units_pays_the_latency_once() -> None:
    changed = with_wrapping(program(), 2, MODELS)
    assert changed is not None
    # Each pair of calls of 4 + 6 becomes one of 4 + 12.
    assert simulate(changed).step_ns == 4 * 20 + 3 * 16
    assert with_wrapping(program(), 2, {}) is None
