"""Sharded changes on a schedule worked out by hand: two units, a gather before each's compute."""

from __future__ import annotations

from dataclasses import replace

from advisor.whatif.cost import ServiceModel
from advisor.whatif.program import Call, Issue, Item, Owner, Program, Wait, Work
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


def prefetched(units: int) -> Program:
    """Forward only: every gather of 10 is issued one unit ahead, behind a compute of 20."""
    items: list[Item] = [Issue(0), Wait(0)]
    for unit in range(units):
        if unit + 1 < units:
            items.append(Issue(unit + 1))
        items.append(Work(20))
        if unit + 1 < units:
            items.append(Wait(unit + 1))
    calls = {c: Call((0, 1), "g", 10, "all_gather", 600, phase="forward") for c in range(units)}
    return Program({0: items, 1: list(items)}, calls, {0: 0.0, 1: 0.0})


def test_a_prefetched_gather_stays_one_unit_ahead_when_units_are_merged() -> None:
    changed = with_wrapping(prefetched(6), 2, MODELS)
    assert changed is not None
    # Only the first merged gather (4 + 12) is exposed: the others hide behind 40 of compute.
    assert simulate(changed).step_ns == 16 + 6 * 20
    # Had each been issued at its first member's place, 20 of compute would hide 16 as well, so
    # look at the order: the second merged gather follows the first one's wait at once.
    order = [item for item in changed.items[0] if isinstance(item, Issue | Wait)]
    assert order[:3] == [Issue(0), Wait(0), Issue(2)]


def test_units_left_over_are_merged_at_the_models_end_in_both_passes() -> None:
    # GIVEN three units: forward 0 1 2, backward 2 1 0
    calls = {
        **{c: Call((0, 1), "g", 10, "all_gather", 100 + c, phase="forward") for c in (0, 1, 2)},
        **{c: Call((0, 1), "g", 10, "all_gather", 97 + c, phase="backward") for c in (3, 4, 5)},
    }
    items: list[Item] = []
    for call in (0, 1, 2, 5, 4, 3):
        items += [Issue(call), Wait(call), Work(20)]
    changed = with_wrapping(Program({0: items, 1: items}, calls, {0: 0.0, 1: 0.0}), 2, MODELS)
    assert changed is not None
    # THEN both passes hold the pair (0, 1) and the single 2, of the same bytes
    assert sorted(call.bytes or 0 for call in changed.calls.values()) == [102, 102, 201, 201]


def test_two_units_ahead_are_fetched_by_the_first_together() -> None:
    changed = with_prefetch(program(), "forward", 2)
    assert changed is not None
    order = [call for call in issues(changed) if call in (0, 1)]
    assert order == [0, 1]
    deep = with_prefetch(prefetched(4), "forward", 2)
    assert deep is not None
    sequence = [item for item in deep.items[0] if isinstance(item, Issue | Wait)]
    assert sequence[:5] == [Issue(0), Wait(0), Issue(1), Issue(2), Wait(1)]


def test_without_prefetch_every_gather_waits_for_its_units_turn() -> None:
    changed = with_prefetch(prefetched(4), "forward", 0)
    assert changed is not None
    assert simulate(prefetched(4)).step_ns == 10 + 4 * 20
    assert simulate(changed).step_ns == 4 * (10 + 20)
    twice = prefetched(4)
    items = [one for item in twice.items[0] for one in [item] * (1 + isinstance(item, Wait))]
    twice = with_prefetch(twice.with_items({0: items, 1: items}), "forward", 0) or twice
    assert issues(twice) == [0, 1, 2, 3], "each gather is issued once, though waited for twice"
    # What is at its turn already stays there, and there and back again is the same step.
    assert with_prefetch(program(), "forward", 0) == program()
    there = with_prefetch(program(), "forward", 1)
    assert there is not None
    assert with_prefetch(there, "forward", 0) == program()


def test_the_backward_pass_without_explicit_prefetch_fetches_one_unit_ahead() -> None:
    # As FSDP2 does by itself: only the first of the two gathers of the pass is exposed.
    changed = with_prefetch(program(), "backward", 0)
    assert changed is not None
    assert changed == with_prefetch(program(), "backward", 1)
    assert simulate(changed).step_ns == 4 * 20 + 5 * 10


def test_a_gpus_timeline_does_not_show_the_hosts_turn() -> None:
    assert with_prefetch(replace(program(), timeline="device"), "forward", 0) is None


def issues(changed: Program) -> list[int]:
    return [item.call for item in changed.items[0] if isinstance(item, Issue)]


def with_hooks() -> Program:
    """As ``program``, with 1 of call work, 2 of copies and 3 of hooks before every gather."""
    plain = program()
    items: list[Item] = []
    for item in plain.items[0]:
        if isinstance(item, Issue) and plain.calls[item.call].op == "all_gather":
            items += [
                Work(1, Owner(item.call, "call")),
                Work(2, Owner(item.call, "bytes")),
                Work(3, Owner(item.call, "unit")),
            ]
        items.append(item)
    return Program({0: items, 1: list(items)}, plain.calls, plain.start_ns)


def test_a_dropped_gather_takes_its_work_along_but_not_the_hooks() -> None:
    assert simulate(with_hooks()).step_ns == 4 * 20 + 6 * 10 + 4 * 6
    changed = without_resharding(with_hooks())
    assert changed is not None
    assert simulate(changed).step_ns == 4 * 20 + 4 * 10 + 2 * 6 + 2 * 3


def test_merged_units_copy_the_same_bytes_and_run_their_hooks_once() -> None:
    changed = with_wrapping(with_hooks(), 2, MODELS)
    assert changed is not None
    # Two gathers instead of four: all four copies, two times the rest.
    assert simulate(changed).step_ns == 4 * 20 + 3 * 16 + 4 * 2 + 2 * (1 + 3)
