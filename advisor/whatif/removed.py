"""Changes that take calls, or half of their bytes, out of a step."""

from collections import Counter
from collections.abc import Collection, Mapping

from advisor.whatif.cost import ServiceModel
from advisor.whatif.program import Issue, Item, Program, Wait, Work, compact


def without_calls(program: Program, dropped: Collection[int]) -> Program | None:
    """The step without these calls and what the host does for them; None where it has none.

    A call that ran together with other operations, all of which are gone, takes what its like took
    that ran alone: operations that share a busy link cost one another more than their own time.
    """
    gone = program.calls.keys() & set(dropped)
    if not gone:
        return None
    items = {
        rank: compact(item for item in of_rank if not is_for(item, gone))
        for rank, of_rank in program.items.items()
    }
    calls = {key: call for key, call in program.calls.items() if key not in gone}
    left = {(call.burst, call.op) for call in calls.values()}
    bursts = Counter(burst for burst, _ in left)
    for key, call in calls.items():
        if call.apart_ns is not None and bursts[call.burst] == 1:
            calls[key] = call._replace(service_ns=call.apart_ns)
    return program.with_items(items, calls)


def is_for(item: Item, calls: Collection[int]) -> bool:
    """Whether the item goes when these calls go: the calls, and the work done for them."""
    if isinstance(item, Work):
        return item.owner is not None and item.owner.call in calls and item.owner.share != "unit"
    return isinstance(item, Issue | Wait) and item.call in calls


def with_half_the_bytes(program: Program, models: Mapping[int, ServiceModel]) -> Program | None:
    """The step with the calls that have a model here sent in half of their bytes; None where it
    has none of them.

    Only the part of a call that its bytes take becomes shorter.
    """
    chosen = program.calls.keys() & models.keys()
    if not chosen:
        return None
    calls = dict(program.calls)
    for key in chosen:
        size = int(calls[key].bytes or 0)
        whole = models[key].service_ns(size)
        share = models[key].b_ns_per_byte * size / whole if whole > 0 else 0.0
        shorter = calls[key].service_ns * (1 - 0.5 * share)
        calls[key] = calls[key]._replace(bytes=size // 2, service_ns=shorter)
    return program.with_items(program.items, calls)
