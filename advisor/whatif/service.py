"""How long each traced call would take with the network for itself."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import numpy as np

from advisor.whatif.queries import CallRow

# Passes over the ring: an all-reduce is a reduce-scatter and an all-gather.
_PASSES = {"all_reduce": 2}

Kind = tuple[str, int, str]  # operation, bytes, process group


def transfers(
    rows: dict[int, list[CallRow]], offsets: dict[int, int]
) -> dict[int, tuple[int, int]]:
    """Per call its transfer: from the last rank's start to the last rank's end, aligned clocks."""
    spans: dict[int, tuple[int, int]] = {}
    for rank, of_rank in rows.items():
        for row in of_rank:
            start, end = row.start + offsets[rank], row.end + offsets[rank]
            old = spans.get(row.call_id)
            spans[row.call_id] = (max(old[0], start), max(old[1], end)) if old else (start, end)
    return spans


def burst_numbers(spans: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Number the stretches of overlapping transfers; call to its stretch."""
    bursts: dict[int, int] = {}
    reach, number = -1, -1
    for call, (start, end) in sorted(spans.items(), key=lambda entry: entry[1]):
        if start >= reach:
            number += 1
        bursts[call] = number
        reach = max(reach, end)
    return bursts


def service_times(
    rows: dict[int, list[CallRow]],
    spans: dict[int, tuple[int, int]],
    within_hosts: Collection[str] = (),
) -> tuple[dict[int, float], dict[int, float]]:
    """Per call: its time with the network for itself, ns; and what its like took that were alone,
    for calls that ran together with other operations.

    Transfers that run at once on a rank share the network in proportion to the bytes they move
    (see simulate.py), so service = integral of own bytes / all bytes over the transfer. Where
    different operations ran together whose like also ran alone, that tells whose the time was.
    Calls of the groups ``within_hosts`` share nothing with those between hosts: NICs carry a small
    part of what NVLink does.
    """
    members: dict[int, set[int]] = {}
    kinds: dict[int, Kind] = {}
    for rank, of_rank in rows.items():
        for row in of_rank:
            members.setdefault(row.call_id, set()).add(rank)
            kinds[row.call_id] = (row.op, max(row.bytes or 0, 1), row.group)
    weight = {call: float(size * _PASSES.get(op, 1)) for call, (op, size, _) in kinds.items()}
    service: dict[int, float] = {}
    beside: dict[int, list[int]] = {}
    ordered = sorted(spans.items(), key=lambda entry: entry[1])
    own = _by_rank(ordered, members)
    for call, (start, end) in ordered:
        at_once = set().union(*(own[rank].at_once(start, end) for rank in members[call]))
        found = (ordered[place] for place in sorted(at_once))
        inside = kinds[call][2] in within_hosts
        others = [
            (*span, other)
            for other, span in found
            if other != call and (kinds[other][2] in within_hosts) == inside
        ]
        beside[call] = [other for _, _, other in others]
        cuts = sorted({start, end, *(t for span in others for t in span[:2] if start < t < end)})
        total = 0.0
        for left, right in pairwise(cuts):
            rest = sum(
                weight[other] for since, until, other in others if since <= left and until >= right
            )
            total += (right - left) * weight[call] / (weight[call] + rest)
        service[call] = max(total, 0.0)
    return _as_alone(service, beside, kinds)


class _Spans:
    """A rank's transfers by their beginning, each with its place among those of all ranks."""

    def __init__(self, places: Sequence[int], spans: Sequence[tuple[int, int]]) -> None:
        self._places = np.array(places)
        self._starts, self._ends = np.array(spans, dtype=np.int64).T
        self._reach = np.maximum.accumulate(self._ends)

    def at_once(self, start: int, end: int) -> list[int]:
        """The places of those that run at some time in between."""
        first = int(np.searchsorted(self._reach, start, side="right"))
        begun = int(np.searchsorted(self._starts, end, side="left"))
        found: list[int] = self._places[first:begun][self._ends[first:begun] > start].tolist()
        return found


def _by_rank(
    ordered: Sequence[tuple[int, tuple[int, int]]], members: Mapping[int, set[int]]
) -> dict[int, _Spans]:
    places: dict[int, list[int]] = defaultdict(list)
    for place, (call, _) in enumerate(ordered):
        for rank in members[call]:
            places[rank].append(place)
    return {rank: _Spans(own, [ordered[place][1] for place in own]) for rank, own in places.items()}


def _as_alone(
    service: dict[int, float], beside: Mapping[int, list[int]], kinds: Mapping[int, Kind]
) -> tuple[dict[int, float], dict[int, float]]:
    """The time of different operations that ran together, split as their kinds took alone; and
    that.

    An operation that does not fill the network by itself gets through beside others at little
    cost, and what it moves on the wire is not always what it hands over: bytes compare calls of
    one operation only. The sum over the calls stays.
    """
    seen: dict[Kind, list[float]] = {}
    for call, others in beside.items():
        if not others and service[call] > 0:
            seen.setdefault(kinds[call], []).append(service[call])
    alone = {kind: float(np.median(times)) for kind, times in seen.items()}
    result = dict(service)
    apart: dict[int, float] = {}
    done: set[int] = set()
    for first in service:
        if first in done or not beside[first]:
            continue
        together, found = [first], {first}
        for call in together:
            new = [other for other in beside[call] if other not in found]
            together += new
            found.update(new)
        done |= found
        several = len({kinds[call][0] for call in together}) > 1
        if several and all(kinds[call] in alone for call in together):
            total = sum(service[call] for call in together)
            whole = sum(alone[kinds[call]] for call in together)
            apart.update({call: alone[kinds[call]] for call in together})
            result.update({call: apart[call] * total / whole for call in together})
    return result, apart
