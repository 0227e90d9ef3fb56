"""Changes to a step of fully sharded data parallelism: resharding, prefetch, wrapping.

The gathers of a step come in the order of its units, once in the forward pass and, where
parameters are resharded, again in the backward pass; each unit's gradients are reduced and
scattered when its backward ends. A change moves, drops or merges those calls in every rank's
program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.whatif.cost import ServiceModel
from advisor.whatif.program import Call, Issue, Item, Program, Wait, compact

GATHER, SCATTER = "all_gather", "reduce_scatter"


def gathers(program: Program, phase: str) -> list[int]:
    """The all-gathers of a phase in the order in which the lowest rank issues them."""
    items = program.items[min(program.items)]
    return [
        item.call
        for item in items
        if isinstance(item, Issue)
        and program.calls[item.call].op == GATHER
        and program.calls[item.call].phase == phase
    ]


def scatters(program: Program) -> list[int]:
    """The reduce-scatters in the order in which the lowest rank issues them."""
    items = program.items[min(program.items)]
    return [
        item.call
        for item in items
        if isinstance(item, Issue) and program.calls[item.call].op == SCATTER
    ]


def without_resharding(program: Program) -> Program | None:
    """Parameters stay gathered after the forward pass (ZeRO-3 to ZeRO-2); None if they do."""
    dropped = set(gathers(program, "backward"))
    if not dropped or not gathers(program, "forward"):
        return None
    items = {
        rank: compact(
            item
            for item in of_rank
            if not (isinstance(item, Issue | Wait) and item.call in dropped)
        )
        for rank, of_rank in program.items.items()
    }
    calls = {key: call for key, call in program.calls.items() if key not in dropped}
    return program.with_items(items, calls)


def with_prefetch(program: Program, phase: str, depth: int) -> Program | None:
    """Every gather of ``phase`` is issued as soon as the unit ``depth`` before it is there.

    That is where FSDP2's explicit prefetching puts it: after the wait for the earlier unit, before
    its compute. None without such gathers.
    """
    order = gathers(program, phase)
    if len(order) < 2 or depth < 1:
        return None
    follower = {order[place - depth]: call for place, call in enumerate(order) if place >= depth}
    items = {rank: _prefetch(of_rank, follower) for rank, of_rank in program.items.items()}
    return program.with_items(items)


def _prefetch(items: Sequence[Item], follower: Mapping[int, int]) -> list[Item]:
    wait_at = {item.call: place for place, item in enumerate(items) if isinstance(item, Wait)}
    # Where the trace shows the waits in another order, a gather must not be moved behind its own.
    moved = {
        call
        for leader, call in follower.items()
        if leader in wait_at and wait_at[leader] < wait_at.get(call, len(items))
    }
    issued: set[int] = set()
    result: list[Item] = []
    for item in items:
        if isinstance(item, Issue) and item.call in moved:
            continue
        result.append(item)
        if isinstance(item, Wait) and item.call in follower:
            call = follower[item.call]
            if call in moved and call not in issued:
                issued.add(call)
                result.append(Issue(call))
    return compact(result)


def with_wrapping(
    program: Program, units: int, models: Mapping[tuple[str, int], ServiceModel]
) -> Program | None:
    """``units`` neighbouring units become one: fewer, larger calls. None without cost models."""
    calls = dict(program.calls)
    renamed: dict[int, int] = {}
    first_of: set[int] = set()
    last_of: set[int] = set()
    for order in (gathers(program, "forward"), gathers(program, "backward"), scatters(program)):
        for start in range(0, len(order), units):
            group = order[start : start + units]
            merged = _merge([program.calls[call] for call in group], models)
            if merged is None:
                return None
            for call in group:
                renamed[call] = group[0]
                calls.pop(call, None)
            calls[group[0]] = merged
            first_of.add(group[0])
            last_of.add(group[-1])
    if not renamed:
        return None
    items = {
        rank: compact(_rename(of_rank, renamed, first_of, last_of, program.calls))
        for rank, of_rank in program.items.items()
    }
    return program.with_items(items, calls)


def _merge(group: Sequence[Call], models: Mapping[tuple[str, int], ServiceModel]) -> Call | None:
    model = models.get((group[0].op, len(group[0].ranks)))
    if model is None or any(call.bytes is None for call in group):
        return None
    total = sum(int(call.bytes or 0) for call in group)
    return replace(group[0], bytes=total, service_ns=model.service_ns(total))


def _rename(
    items: Sequence[Item],
    renamed: Mapping[int, int],
    first_of: set[int],
    last_of: set[int],
    calls: Mapping[int, Call],
) -> list[Item]:
    """Gathers keep the first member's issue and wait; scatters keep the last member's."""
    result: list[Item] = []
    for item in items:
        if not isinstance(item, Issue | Wait) or item.call not in renamed:
            result.append(item)
            continue
        keep = first_of if calls[item.call].op == GATHER else last_of
        if item.call in keep:
            result.append(type(item)(renamed[item.call]))
    return result
