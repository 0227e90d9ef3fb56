"""Hosts all of whose ranks are late together: none of these is last much more often than another.

A host takes the place of its ranks. Its excess is the least of theirs, so that one late rank makes
no late host; the rank whose excess is in the middle stands for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.timeline.intervals import Int64s
from advisor.metrics.timeline.statistics import binomial_tail

_WORTH_A_LOOK = 0.05  # chance that a host is last so often, before all calls are looked at
_BY_FAR = 4  # the same, in what it is late beyond the next


def by_host(items: Sequence[Arrivals], host_of: Mapping[int, str]) -> list[Arrivals]:
    """The same with hosts for ranks; of groups on one host, or with one rank on each, nothing."""
    found = []
    for item in items:
        places: dict[str, list[int]] = defaultdict(list)
        for place, rank in enumerate(item.ranks):
            if rank not in host_of:
                break
            places[host_of[rank]].append(place)
        else:
            if 1 < len(places) < len(item.ranks):
                found.append((item, list(places.values())))
    if not any(_is_late(item, places) for item, places in found):
        return []
    return [_of_hosts(item, places) for item, places in found]


def _excess(item: Arrivals, places: Sequence[Sequence[int]]) -> Int64s:
    excess: Int64s = np.stack([item.excess[:, own].min(axis=1) for own in places], axis=1)
    return excess


def _is_late(item: Arrivals, places: Sequence[Sequence[int]]) -> bool:
    """Whether one host is the latest more often than by chance, over the stretches, or seldom, but
    by far more in all than any other."""
    lasts = np.append(np.flatnonzero(np.diff(item.segment)), len(item.segment) - 1)
    excess = _excess(item, places)[lasts]
    times = np.bincount(excess.argmax(axis=1)[excess.max(axis=1) > 0], minlength=len(places))
    chance = binomial_tail(int(times.max()), len(lasts), 1 / len(places))
    second, most = np.sort(excess.sum(axis=0))[-2:].tolist()
    return bool(len(places) * chance < _WORTH_A_LOOK or most > _BY_FAR * max(second, 0))


def _of_hosts(item: Arrivals, places: Sequence[Sequence[int]]) -> Arrivals:
    totals = item.excess.sum(axis=0)
    middle = [sorted(own, key=lambda at: int(totals[at]))[(len(own) - 1) // 2] for own in places]
    stands_for = {
        item.ranks[at]: item.ranks[first]
        for own, first in zip(places, middle, strict=True)
        for at in own
    }
    ranks = tuple(item.ranks[first] for first in middle)
    columns = []
    for column in item.columns:
        last = column[ranks[0]].last_rank
        own_last = None if last is None else stands_for.get(last, last)
        columns.append({rank: replace(column[rank], last_rank=own_last) for rank in ranks})
    return Arrivals(
        item.group,
        ranks,
        tuple(columns),
        item.arrival[:, middle],
        item.begin[:, middle],
        np.stack([item.lateness[:, own].min(axis=1) for own in places], axis=1),
        _excess(item, places),
        item.segment,
    )
