"""Hosts all of whose ranks are late together: none of these is last much more often than another.

A host takes the place of its ranks in each group that joins hosts: in one group of them all, or in
several side by side, as those of a mesh that replicate over hosts. Its excess is the least of its
ranks', so that one late rank makes no late host, beyond the ranks' median where each host counts
once, however many of its ranks were read; the rank whose excess is in the middle stands for it. So
are ranks that have the same place in groups side by side, which split each sequence or layer alike:
more work at that place is late in every group at once.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.metrics.collectives.groups import Group
from advisor.metrics.lateness.blame import Arrivals
from advisor.metrics.lateness.reasons import is_inherited
from advisor.metrics.timeline.intervals import Int64s
from advisor.statistics import binomial_tail
from advisor.vocabulary.groups import kind_of_group

_WORTH_A_LOOK = 0.05  # chance that a host is last so often, before all calls are looked at
_BY_FAR = 4  # the same, in what it is late beyond the next
# From this share of what the late rank's host is slower, its mates' are slow for the same reason.
_AS_SLOW = 0.75
# Whose ranks come late for another's sake: one of its own holds them up, or what they sent before.
_INHERITED = ("slow-transfer-before", "all-hosts-late")
# What a place in groups side by side makes late: it computes more. A host's doing is no place's.
_OF_PLACES = ("more-work", "slow-compute", "longer-compute")
_SPLIT = ("context-parallel", "sequence-parallel", "tensor-parallel")


_NOTHING = {"systematic": False, "cost_ns_per_step": 0, "wait_ns_per_step": 0, "wait_by_step": "{}"}
_TIMES = ("cost_ns_per_step", "cost_low_ns", "cost_high_ns", "wait_ns_per_step")


def by_host(
    items: Sequence[Arrivals], host_of: Mapping[int, str]
) -> list[tuple[Arrivals, dict[int, tuple[int, ...]]]]:
    """Each group that joins hosts, with hosts for ranks: the ranks that each of its own stands for.

    Groups in which no host seems late are left out; of one rank on each host nothing is new.
    """
    if len({*host_of.values()}) == len(host_of):
        return []
    found = []
    for item in items:
        places: dict[str, list[int]] = defaultdict(list)
        for place, rank in enumerate(item.ranks):
            if rank not in host_of:
                break
            places[host_of[rank]].append(place)
        else:
            if len(places) > 1:
                found.append((item, list(places.values())))
    return [_of_hosts(item, places) for item, places in found if _is_late(item, places)]


def places(groups: Collection[Group]) -> dict[str, dict[int, str]]:
    """By kind of groups that lie side by side: of each rank which place it has in its group."""
    found = {}
    for kind in _SPLIT:
        own = sorted({g.ranks for g in groups if g.ranks and kind_of_group(g.description) == kind})
        ranks = [rank for each in own for rank in each]
        if len(own) > 1 and len({*ranks}) == len(ranks) and len({len(each) for each in own}) == 1:
            found[kind] = {rank: str(at) for each in own for at, rank in enumerate(each)}
    return found


def with_hosts(
    of_all: Sequence[dict[str, Any]],
    of_hosts: Sequence[tuple[dict[str, Any], Sequence[int]]],
    host_of: Mapping[int, str],
    kind: str | None = None,
    launches: Mapping[int, float] | None = None,
) -> list[dict[str, Any]]:
    """Rows of ``lateness`` with those of hosts that are late as a whole in place of their ranks'.

    ``of_hosts``: what each group has of a host, and for which ranks. Each of a host's ranks counts
    where most is waited for it, and the middle one's row is the host's; one that nobody waits for
    makes it no late host. Who is late with that rank is in its evidence, as ``with``. ``kind`` is
    of the groups whose places ``host_of`` tells, where these are no hosts. ``launches``: how long
    each rank's host takes to launch a kernel, ns.
    """
    most: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row, own in of_hosts:
        counts = most[host_of[row["rank"]]]
        for rank in own:
            if rank not in counts or counts[rank]["cost_ns_per_step"] < row["cost_ns_per_step"]:
                counts[rank] = row
    result = {row["rank"]: row for row in of_all}
    if kind is None:
        _with_slow_mates(result, host_of, _slow_launches(launches or {}, host_of))
    for host, rows in most.items():
        mates = sorted(rank for rank, its in host_of.items() if its == host)
        late = sorted(rows.values(), key=lambda row: (row["cost_ns_per_step"], row["rank"]))
        if len(mates) < 2 or rows.keys() < set(mates) or not all(r["systematic"] for r in late):
            continue
        row = late[(len(late) - 1) // 2]
        evidence = row["reason_evidence"]
        read = [rank for rank in mates if rank in result]
        alone = [result[r]["cost_ns_per_step"] for r in read if result[r]["systematic"]]
        # Ranks of a host that is late as a whole do not wait for one another.
        if any(r["reason"] in _INHERITED or is_inherited(r["reason_evidence"]) for r in late):
            continue
        if kind is not None and row["reason"] not in _OF_PLACES:
            continue
        # A rank is late by itself where it costs more beyond its host's others than they all do.
        if 2 * row["cost_ns_per_step"] <= max(alone, default=0):
            continue
        for rank in read:  # its lateness is its host's
            result[rank] = {**result[rank], **_NOTHING}
        evidence = {**evidence, "with": mates} | ({"place_of": kind} if kind else {})
        result[row["rank"]] = {**row, "reason_evidence": evidence}
    return list(result.values())


def _slow_launches(
    launches: Mapping[int, float], host_of: Mapping[int, str]
) -> dict[str, dict[str, int]]:
    """Hosts on all of whose ranks a launch takes longer than on any elsewhere, by more than those
    differ by: what it takes there and elsewhere (medians), ns, as evidence."""
    found = {}
    for host in {*host_of.values()}:
        own = [launches[rank] for rank, its in host_of.items() if its == host and rank in launches]
        others = [took for rank, took in launches.items() if host_of.get(rank, host) != host]
        if not _all_beyond(own, others):
            continue
        usual = round(float(np.median(others)))
        found[host] = {"launch_ns": round(float(np.median(own))), "usual_launch_ns": usual}
    return found


def _all_beyond(own: Sequence[float], others: Sequence[float]) -> bool:
    """Whether each of two or more exceeds all others, by more than those differ by."""
    return min(len(own), len(others)) > 1 and min(own) > 2 * max(others) - min(others)


def _with_slow_mates(
    result: dict[int, dict[str, Any]],
    host_of: Mapping[int, str],
    slow_launches: Mapping[str, dict[str, int]],
) -> None:
    """Put the ranks of its host with those that launch late, where their hosts are as slow.

    The slowest of them sets the pace: a call queued behind one that waited for it begins at once on
    all others. So only that one is seen late, or two in turn, and mending these uncovers the next.
    Where a launch takes longer on all of a host's ranks, any of them may come late in turn, and
    none of them systematically: if that tells most of how much slower one of them is, or they all
    take longer for a step than any elsewhere (another process stops them, now here and now there).
    """
    paces: dict[str, dict[int, float]] = defaultdict(dict)
    for rank, row in result.items():
        pace = row["reason_evidence"].get("host_ns_per_step")
        if rank in host_of and pace is not None:
            paces[host_of[rank]][rank] = pace
    for host, own in paces.items():
        late = [rank for rank in own if result[rank]["reason"] == "late-launch"]
        elsewhere = [pace for other, its in paces.items() if other != host for pace in its.values()]
        told = slow_launches.get(host, {})
        if not any("launch_ns" in result[rank]["reason_evidence"] for rank in late) and not (
            _all_beyond([*own.values()], elsewhere)
        ):
            told = {}
        if not told:
            late = [rank for rank in late if result[rank]["systematic"]]
        mates = sorted(rank for rank, its in host_of.items() if its == host)
        if not late or not elsewhere or len(mates) < 2 or own.keys() < set(mates):
            continue
        usual = float(np.median(elsewhere))
        if told or min(own.values()) - usual >= _AS_SLOW * (max(own[r] for r in late) - usual) > 0:
            rows = [result[rank] for rank in late]
            row = max(rows, key=lambda row: row["cost_ns_per_step"])
            waits: Counter[str] = Counter()
            for each in rows:
                waits.update(json.loads(each["wait_by_step"]))
            result.update((rank, {**result[rank], **_NOTHING}) for rank in late)
            result[row["rank"]] = {
                **row,
                **{name: sum(each[name] for each in rows) for name in _TIMES},
                "systematic": True,
                "wait_by_step": json.dumps(waits),
                "reason_evidence": {**row["reason_evidence"], **told, "with": mates},
            }


def _least(late: Int64s, places: Sequence[Sequence[int]]) -> Int64s:
    """By what all of a host's ranks are late; where another was read in part, most ranks, and so
    their median, may be of the host that is late."""
    weight = np.zeros(late.shape[1])
    for own in places:
        weight[list(own)] = 1 / len(own)
    order = np.argsort(late, axis=1, kind="stable")
    # Rounded: thirds add up to less than one.
    before = np.cumsum(weight[order], axis=1).round(6)
    middle = (before >= len(places) / 2).argmax(axis=1)
    ordered = np.take_along_axis(late, order, axis=1)
    moved = ordered[:, (late.shape[1] - 1) // 2] - ordered[np.arange(len(late)), middle]
    least: Int64s = np.stack([late[:, own].min(axis=1) + moved for own in places], axis=1)
    return least


def _is_late(item: Arrivals, places: Sequence[Sequence[int]]) -> bool:
    """Whether one host is the latest more often than by chance, over the stretches, or seldom, but
    by far more in all than any other."""
    lasts = np.append(np.flatnonzero(np.diff(item.segment)), len(item.segment) - 1)
    excess = _least(item.excess[lasts], places)
    times = np.bincount(excess.argmax(axis=1)[excess.max(axis=1) > 0], minlength=len(places))
    chance = binomial_tail(int(times.max()), len(lasts), 1 / len(places))
    second, most = np.sort(excess.sum(axis=0))[-2:].tolist()
    return bool(len(places) * chance < _WORTH_A_LOOK or most > _BY_FAR * max(second, 0))


def _of_hosts(
    item: Arrivals, places: Sequence[Sequence[int]]
) -> tuple[Arrivals, dict[int, tuple[int, ...]]]:
    totals = item.excess.sum(axis=0)
    middle = [sorted(own, key=lambda at: int(totals[at]))[(len(own) - 1) // 2] for own in places]
    ranks = tuple(item.ranks[first] for first in middle)
    stands_for = {
        rank: tuple(item.ranks[at] for at in own) for rank, own in zip(ranks, places, strict=True)
    }
    host_rank = {mate: rank for rank, own in stands_for.items() for mate in own}
    columns = []
    for column in item.columns:
        last = column[ranks[0]].last_rank
        own_last = None if last is None else host_rank.get(last, last)
        columns.append({rank: replace(column[rank], last_rank=own_last) for rank in ranks})
    condensed = Arrivals(
        item.group,
        ranks,
        tuple(columns),
        item.arrival[:, middle],
        item.begin[:, middle],
        _least(item.lateness, places),
        _least(item.excess, places),
        item.segment,
    )
    return condensed, stands_for
