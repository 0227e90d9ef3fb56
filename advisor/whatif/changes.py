"""Changes to a program: other buckets, another network, a rank that is no longer late."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from advisor.whatif.buckets import assemble
from advisor.whatif.cost import ServiceModel
from advisor.whatif.program import Call, Issue, Item, Mark, Program, Wait, Work, compact

Segment = tuple[str, int]
"""The work before a rank's 'issue' of or 'wait' for a call, or before the step's 'end'."""


def bucket_bytes(program: Program) -> list[int]:
    """Bytes of the gradient calls as they were really issued, in order."""
    return [int(call.bytes or 0) for call in _gradient_calls(program)]


def _gradient_calls(program: Program) -> list[Call]:
    issued = (i for i in program.items[min(program.items)] if isinstance(i, Issue))
    return [row for item in issued if (row := program.calls[item.call]).is_gradient]


def regrouped_ns(program: Program, buckets: Sequence[int], model: ServiceModel) -> list[float]:
    """What gradient calls of so many bytes take that carry what the traced ones do, in order."""
    traced = _gradient_calls(program)
    ends = np.cumsum([float(call.bytes or 0) for call in traced])
    borders = np.cumsum([0.0, *buckets]) * ends[-1] / sum(buckets)
    result = []
    for start, end in pairwise(borders):
        inside = np.minimum(ends, end) - np.maximum(np.append(0.0, ends[:-1]), start)
        parts = [
            (call, float(part) / call.bytes)
            for call, part in zip(traced, inside, strict=True)
            if call.bytes and part > 0
        ]
        result.append(model.as_one_ns(parts))
    return result


def with_bucket_cap(
    program: Program, bucket_cap_mb: float | None, model: ServiceModel
) -> Program | None:
    """The step with the buckets that ``bucket_cap_mb`` would form (None = torch's default).

    None when the ranks' gradients do not agree or the trace holds no gradient sizes.
    """
    sizes = program.gradient_bytes
    marks = {
        rank: sum(1 for i in items if isinstance(i, Mark) and i.kind == "gradient")
        for rank, items in program.items.items()
    }
    if not sizes or set(marks.values()) != {len(sizes)}:
        return None
    gradients = {call for call, row in program.calls.items() if row.is_gradient}
    if not gradients:
        return None
    template = program.calls[min(gradients)]
    if set(template.ranks) != set(program.items):
        return None
    first_id = max(program.calls) + 1
    calls = {key: row for key, row in program.calls.items() if key not in gradients}
    closes: dict[int, int] = {}
    buckets = assemble(sizes, bucket_cap_mb)
    totals = [sum(sizes[index] for index in bucket) for bucket in buckets]
    times = regrouped_ns(program, totals, model)
    for number, (bucket, total, time) in enumerate(zip(buckets, totals, times, strict=True)):
        calls[first_id + number] = template._replace(bytes=total, service_ns=time)
        closes[max(bucket)] = first_id + number
    items = {rank: _rebucket(of_rank, gradients, closes) for rank, of_rank in program.items.items()}
    return program.with_items(items, calls)


def _rebucket(items: list[Item], gradients: set[int], closes: dict[int, int]) -> list[Item]:
    """One rank's items with the old gradient calls replaced by those that ``closes`` names.

    The marks of gradients are gone: work that they parted becomes one, which replays sooner.
    """
    waits = [i for i, item in enumerate(items) if isinstance(item, Wait) and item.call in gradients]
    final = waits[-1] if waits else len(items)
    result: list[Item] = []
    seen = 0
    for position, item in enumerate(items):
        if position == final:
            result += [Wait(call) for call in closes.values()]
        if isinstance(item, Mark) and item.kind == "gradient":
            if seen in closes:
                result.append(Issue(closes[seen]))
            seen += 1
        elif isinstance(item, Work | Mark) or item.call not in gradients:
            result.append(item)
    if final == len(items):
        result += [Wait(call) for call in closes.values()]
    return compact(result)


def with_service(program: Program, change: Callable[[int, Call], float]) -> Program:
    """The step with another service time for each call: ``change(call_id, call)`` in ns."""
    calls = {key: row._replace(service_ns=change(key, row)) for key, row in program.calls.items()}
    return program.with_items(program.items, calls)


def without_lateness(program: Program, ranks: Sequence[int], *, alone: bool = False) -> Program:
    """The step as if ``ranks`` worked no longer than the others between their common calls.

    The work before each issue and wait of a rank is compared with the median of the others that
    have a like call at the same place (where none has all of its calls, with those that share each
    call). Where it takes longer it becomes shorter, by no more in
    all than it takes longer in all: a call that is asked for late has more work before it and less
    behind. That it begins late is what it took longer in the step before, and counts there, unless
    this step is ``alone``.
    """
    others = {r: _segments(items) for r, items in program.items.items() if r not in ranks}
    items, start_ns = dict(program.items), dict(program.start_ns)
    for rank in ranks:
        items[rank] = _as_others(program, rank, [*others.values()])
        if alone and others:
            usual = float(np.median([start_ns[r] for r in others]))
            start_ns[rank] = min(start_ns[rank], usual)
    return replace(program, items=items, start_ns=start_ns)


def _as_others(program: Program, rank: int, others: Sequence[dict[Segment, float]]) -> list[Item]:
    mine = _segments(program.items[rank])
    place = _places(program, mine)
    alike = [
        {there[key]: ns for key, ns in segments.items()}
        for segments in others
        if set((there := _places(program, segments)).values()) == set(place.values())
    ]
    longer: dict[Segment, float] = {}
    for key, own in mine.items():
        peers = [segments[place[key]] for segments in alike] or [
            segments[key] for segments in others if key in segments
        ]
        if peers:
            longer[key] = own - float(np.median(peers))
    left = _without_made_up([*longer.values()])
    excess, somewhere = sum(left), sum(max(0.0, ns) for ns in left)
    if others and not alike:  # a stage of a pipeline works where no other stage has a like call
        in_all = [sum(segments.values()) for segments in others]
        excess = min(excess, sum(mine.values()) - float(np.median(in_all)))
    share = max(0.0, excess / somewhere) if somewhere else 0.0
    lengths = {key: mine[key] - share * max(0.0, ns) for key, ns in zip(longer, left, strict=True)}
    return _with_segments(program.items[rank], lengths)


def _without_made_up(longer_ns: list[float]) -> list[float]:
    """The same in all, with what one segment takes longer and its neighbour shorter in neither."""
    left = list(longer_ns)
    for place, ns in enumerate(longer_ns):
        for beside in (place - 1, place + 1):
            if ns < 0 and 0 <= beside < len(left):
                made_up = min(max(0.0, left[beside]), -left[place])
                left[beside] -= made_up
                left[place] += made_up
    return left


def _places(program: Program, segments: Iterable[Segment]) -> dict[Segment, tuple[object, ...]]:
    """What each segment comes before, and the how manieth of that it is: alike on like ranks."""
    seen: Counter[tuple[object, ...]] = Counter()
    places: dict[Segment, tuple[object, ...]] = {}
    for key in segments:
        kind, number = key
        call = program.calls.get(number) if kind != "end" else None
        what = (kind, *((call.op, len(call.ranks), call.bytes) if call is not None else ()))
        seen[what] += 1
        places[key] = (*what, seen[what])
    return places


def _segments(items: list[Item]) -> dict[Segment, float]:
    """Work before each issue and wait, keyed by ('issue' | 'wait' | 'end', call)."""
    result: dict[Segment, float] = {}
    work = 0.0
    for item in items:
        if isinstance(item, Work):
            work += item.ns
        elif isinstance(item, Issue | Wait):
            result["issue" if isinstance(item, Issue) else "wait", item.call] = work
            work = 0.0
    result["end", 0] = work
    return result


def _with_segments(items: list[Item], lengths: dict[Segment, float]) -> list[Item]:
    result: list[Item] = []
    pending: list[Item] = []

    def flush(key: Segment) -> None:
        total = sum(item.ns for item in pending if isinstance(item, Work))
        factor = lengths.get(key, total) / total if total else 1.0
        result.extend(
            item._replace(ns=item.ns * factor) if isinstance(item, Work) else item
            for item in pending
        )
        pending.clear()

    for item in items:
        if isinstance(item, Issue | Wait):
            flush(("issue" if isinstance(item, Issue) else "wait", item.call))
            result.append(item)
        else:
            pending.append(item)
    flush(("end", 0))
    return compact(result)
