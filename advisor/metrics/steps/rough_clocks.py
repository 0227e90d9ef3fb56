"""Clocks of ranks by when their steps begin: good enough to tell equal calls apart, no better.

A recording that is cut may have lost what launched its device's work. Its calls cannot be placed by
the host's spans then, which runs ahead by whole steps: they are in the steps in which other ranks
have them, as far as clocks that hosts' steps align can tell.
"""

from collections.abc import Mapping, Sequence

from advisor.metrics.collectives.call import Call
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.timeline import Timeline
from advisor.statistics import median
from advisor.store.columns import MISSING


def without_launches(lines: Mapping[int, Timeline], cut: set[int]) -> set[int]:
    """Ranks that are ``cut`` and show no launch of what their devices did, where others do."""
    bare = {
        rank
        for rank, line in lines.items()
        if line.on_device and len(line) and bool((line.launch == MISSING).all())
    }
    launching = {rank for rank, line in lines.items() if line.on_device and len(line)} - bare
    return bare & cut if launching else set()


def unplaced(steps: Steps, calls: Sequence[Call]) -> Steps:
    """The steps of a rank without launches, none of which is whole; its calls are in none."""
    for call in calls:
        call.step = None
    return Steps(tuple(one._replace(complete=False) for one in steps.steps))


def rough_offsets(steps: Mapping[int, Steps]) -> dict[int, int]:
    """What to add to each rank's clock so that its steps are the others' of the same number.

    Ranks need not begin a step together: what is less than half of a step is no offset.
    """
    starts = {rank: {s.number: s.start for s in own.steps} for rank, own in steps.items()}
    base = starts[min(starts)]
    lengths = [s.end - s.start for own in steps.values() for s in own.steps]
    usual = median(lengths) if lengths else 0.0
    result = {}
    for rank, own in starts.items():
        middle = _apart(base, own) or 0
        result[rank] = middle if 2 * abs(middle) > usual else 0
    return result


def adrift(
    steps: Mapping[int, Steps], calls: Mapping[int, Sequence[Call]], cut: set[int]
) -> dict[int, int]:
    """Ranks that lost launches, so that calls of theirs are in no step, with what to add to their
    clocks: their hosts' steps begin when those of the first other rank do."""
    lost = {
        rank
        for rank in steps.keys() & cut
        if on_host(steps[rank]) and any(call.step is None for call in calls[rank])
    }
    of_host = {rank: {s.number: s.host_start for s in own.steps if s.host_start is not None}
               for rank, own in steps.items()}  # fmt: skip
    base = next((own for rank, own in sorted(of_host.items()) if rank not in lost and own), {})
    found = {rank: _apart(base, of_host[rank]) for rank in lost}
    return {rank: offset for rank, offset in found.items() if offset is not None}


def on_host(steps: Steps) -> bool:
    """The host's spans tell what belongs to a step."""
    return bool(steps.steps) and steps.steps[0].host_start is not None


def _apart(base: Mapping[int, int], own: Mapping[int, int]) -> int | None:
    """What to add to a rank's clock, by when its steps begin and those of the same number, ns."""
    apart = [base[number] - begin for number, begin in own.items() if number in base]
    return int(median(apart)) if apart else None
