"""Changes to a step of fully sharded data parallelism: resharding, prefetch, wrapping.

The gathers of a step come in the order of its units, once in the forward pass and, where
parameters are resharded, again in the backward pass; each unit's gradients are reduced and
scattered when its backward ends. A change moves, drops or merges those calls in every rank's
program.
"""

from collections.abc import Iterable, Mapping, Sequence

from advisor.whatif.cost import ServiceModel
from advisor.whatif.program import Call, Issue, Item, Program, Wait, Work, compact
from advisor.whatif.removed import without_calls

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
    if not gathers(program, "forward"):
        return None
    return without_calls(program, gathers(program, "backward"))


def prefetched(program: Program, phases: Iterable[str], units: int) -> Program | None:
    """Every gather of these passes asked for so many units ahead; None where no pass has any."""
    changed: Program | None = None
    for phase in phases:
        changed = with_prefetch(changed or program, phase, units) or changed
    return changed


def with_prefetch(program: Program, phase: str, depth: int) -> Program | None:
    """Every gather of ``phase`` is issued as soon as the unit ``depth`` before it is there.

    That is where FSDP2's explicit prefetching puts it: after the wait for the earlier unit, before
    its compute; the first unit fetches the ``depth`` that follow it. With 0, FSDP2's default, each
    is issued at its unit's turn in the forward pass, and one unit ahead in the backward pass. None
    without such gathers, and for 0 in the forward pass on a device's timeline: the kernels do not
    show when the host would have come to its turn.
    """
    order = gathers(program, phase)
    if len(order) < 2 or depth < 0:
        return None
    if depth == 0 and phase == "forward":
        if program.timeline != "host":
            return None
        return program.with_items(
            {rank: _at_their_turn(of_rank, order) for rank, of_rank in program.items.items()}
        )
    depth = max(depth, 1)
    leader = {call: order[max(0, place - depth)] for place, call in enumerate(order) if place}
    items = {rank: _prefetch(of_rank, leader) for rank, of_rank in program.items.items()}
    return program.with_items(items)


def _at_their_turn(items: Sequence[Item], order: Sequence[int]) -> list[Item]:
    """One rank's items with every gather that was issued ahead issued before its own wait."""
    ahead = {call for call, units in _ahead(items, order).items() if units}
    result: list[Item] = []
    for item in items:
        if isinstance(item, Issue) and item.call in ahead:
            continue
        if isinstance(item, Wait) and item.call in ahead:
            ahead.remove(item.call)  # a unit may wait twice
            result.append(Issue(item.call))
        result.append(item)
    return compact(result)


def _prefetch(items: Sequence[Item], leader: Mapping[int, int]) -> list[Item]:
    wait_at = {item.call: place for place, item in enumerate(items) if isinstance(item, Wait)}
    followers: dict[int, list[int]] = {}
    for call, first in leader.items():
        # Where the trace shows the waits in another order, none must move behind its own wait.
        if first in wait_at and wait_at[first] < wait_at.get(call, len(items)):
            followers.setdefault(first, []).append(call)
    moved = {call for calls in followers.values() for call in calls}
    result: list[Item] = []
    for item in items:
        if isinstance(item, Issue) and item.call in moved:
            continue
        result.append(item)
        if isinstance(item, Wait):
            result += [Issue(call) for call in followers.pop(item.call, [])]
    return compact(result)


def with_wrapping(
    program: Program, units: int, models: Mapping[tuple[str, int], ServiceModel]
) -> Program | None:
    """``units`` neighbouring units become one: fewer, larger calls. None without cost models.

    A gather that was issued ahead of its unit's turn stays as many units ahead.
    """
    forward, backward = gathers(program, "forward"), gathers(program, "backward")
    # Units are counted from the model's front, where the backward pass ends.
    groups = [
        *_front_to_back(forward, units),
        *_back_to_front(backward, units),
        *_back_to_front(scatters(program), units),
    ]
    if not groups:
        return None
    calls = dict(program.calls)
    merged_into: dict[int, int] = {}
    for group in groups:
        merged = _merge([program.calls[call] for call in group], models)
        if merged is None:
            return None
        for call in group:
            merged_into[call] = group[0]
            calls.pop(call, None)
        calls[group[0]] = merged
    items = {}
    for rank, of_rank in program.items.items():
        issue_at = _issue_places(of_rank, program, groups, (forward, backward))
        wait_at = {
            (group[0] if program.calls[group[0]].op == GATHER else group[-1]): group[0]
            for group in groups
        }
        items[rank] = compact(_rewrap(of_rank, merged_into, issue_at, wait_at))
    return program.with_items(items, calls)


def _front_to_back(order: Sequence[int], units: int) -> list[Sequence[int]]:
    return [order[start : start + units] for start in range(0, len(order), units)]


def _back_to_front(order: Sequence[int], units: int) -> list[Sequence[int]]:
    ends = range(len(order), 0, -units)
    return [order[max(0, end - units) : end] for end in ends][::-1]


def _merge(group: Sequence[Call], models: Mapping[tuple[str, int], ServiceModel]) -> Call | None:
    if len(group) == 1:
        return group[0]
    model = models.get((group[0].op, len(group[0].ranks)))
    if model is None or any(call.bytes is None for call in group):
        return None
    total = sum(int(call.bytes or 0) for call in group)
    return group[0]._replace(
        bytes=total, service_ns=model.as_one_ns([(call, 1.0) for call in group])
    )


def _issue_places(
    items: Sequence[Item],
    program: Program,
    groups: Sequence[Sequence[int]],
    orders: Sequence[Sequence[int]],
) -> dict[int, int]:
    """The call at whose issue each merged call is issued: {traced call: merged call}.

    A scatter goes with its last member. A gather goes with its first, unless it was prefetched:
    then ``ahead`` units before that, of the merged ones.
    """
    ahead = {call: count for order in orders for call, count in _ahead(items, order).items()}
    places: dict[int, int] = {}
    for order in orders:
        merged = [group for group in groups if group and group[0] in order]
        for number, group in enumerate(merged):
            distance = ahead.get(group[0], 0)
            if distance and number >= distance:
                leader = merged[number - distance]
                follower = order.index(leader[0]) + distance
                places[order[min(follower, order.index(group[0]))]] = group[0]
            else:
                places[group[0]] = group[0]
    for group in groups:
        if program.calls[group[0]].op == SCATTER:
            places[group[-1]] = group[0]
    return places


def _ahead(items: Sequence[Item], order: Sequence[int]) -> dict[int, int]:
    """By how many units each gather was issued before its own unit's turn (0: at its turn).

    At its turn means that less is computed between the wait before it and its issue than between
    its issue and its own wait.
    """
    known = set(order)
    done = 0.0
    last_wait: int | None = None
    issued: dict[int, float] = {}
    waited: dict[int, float] = {}
    before: dict[int, int | None] = {}
    for item in items:
        if isinstance(item, Work):
            done += item.ns
        elif isinstance(item, Issue) and item.call in known:
            issued[item.call] = done
            before[item.call] = last_wait
        elif isinstance(item, Wait) and item.call in known:
            last_wait = item.call
            waited.setdefault(item.call, done)
    result = {}
    for place, call in enumerate(order):
        last = before.get(call)
        if last is None or call not in waited:
            continue
        if waited[call] - issued[call] > issued[call] - waited[last]:
            result[call] = max(place - order.index(last), 0)
    return result


def _rewrap(
    items: Sequence[Item],
    merged_into: Mapping[int, int],
    issue_at: Mapping[int, int],
    wait_at: Mapping[int, int],
) -> list[Item]:
    """One rank's items with merged calls, and the hooks of the other members gone."""
    result: list[Item] = []
    for item in items:
        if isinstance(item, Work):
            owner = item.owner
            kept = owner is None or owner.share == "bytes" or _leads(owner.call, merged_into)
            if kept:
                result.append(item)
        elif isinstance(item, Issue | Wait) and item.call in merged_into:
            places = issue_at if isinstance(item, Issue) else wait_at
            if item.call in places:
                result.append(type(item)(places[item.call]))
        else:
            result.append(item)
    return result


def _leads(call: int, merged_into: Mapping[int, int]) -> bool:
    return merged_into.get(call, call) == call
