"""What a slow place costs: the row of ``link_excess`` for it, from the calls that go over it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group, RankInfo
from advisor.metrics.links.locations import Members
from advisor.metrics.models.savings import interval, saved_per_step
from advisor.metrics.rings.informative_calls import informative_kinds, kind_of
from advisor.metrics.rings.locations import Home, homes_of, is_nameless
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.vocabulary.operations import POINT_TO_POINT

if TYPE_CHECKING:
    from advisor.metrics.links.ring_ends import RingEnds

# Low, middle and high of the part of a call's time that is excess.
Share = tuple[float, float, float]


def excess_of(slowdown: Share) -> Share:
    """The part of a call's time that is excess where it takes so many times as long."""
    low, middle, high = (1 - 1 / factor for factor in slowdown)
    return low, middle, high


@dataclass(frozen=True)
class Inputs:
    """What the attribution needs of a run."""

    run: str
    columns: Sequence[Mapping[int, Call]]
    calls: Mapping[int, Sequence[Call]]
    groups: Mapping[str, Group]
    infos: Mapping[int, RankInfo]
    clocks: Mapping[int, Clock]
    exclusive: Mapping[int, Mapping[int, float]]
    occupancy: Mapping[int, Occupancy]
    steps: Mapping[int, Steps]
    gloo: bool
    # Members of a communicator -> (sender, receiver) of its rings, as NCCL's log has them.
    rings: Mapping[frozenset[int], frozenset[tuple[int, int]]] = field(default_factory=dict)
    # Members of a communicator -> its rings' orders, as NCCL's log has them.
    ring_orders: Mapping[frozenset[int], tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    # Each rank's device, by the name that the trace has.
    devices: Mapping[int, str] = field(default_factory=dict)
    # How likely slow locations make the ends of gloo's rings, which told the clocks with them.
    ring_ends: RingEnds | None = None


def homes(data: Inputs) -> dict[int, Home]:
    """What stands for each rank's host (rings/locations.py), of ranks that were not read too."""
    ranks = {rank for group in data.groups.values() for rank in group.ranks or ()} | set(data.infos)
    named = {rank: info.host for rank, info in data.infos.items() if info.host is not None}
    return {**homes_of(ranks, named)}


class Culprit(NamedTuple):
    """A place: calls with a rank of ``near`` and one of ``far`` (None: any other host's) use it.

    ``direction`` of a rank or host: what is slow there, 'send', 'receive' or 'both'; None where it
    is not told, and of other kinds. ``rings``: which calls between hosts have a ring over a slow
    NVLink, and what part of their time is excess.
    """

    kind: str
    src: int
    dst: int | None
    near: frozenset[int]
    far: frozenset[int] | None
    candidates: tuple[int, ...] = ()
    direction: str | None = None
    uses: Callable[[Members], bool] | None = None  # instead of near and far
    words: str | None = None
    link: str | None = None  # only calls 'inside' or 'between' hosts use it
    rings: tuple[Callable[[Sequence[int]], bool], Share] | None = None

    def used_by(self, ranks: Sequence[int], *, message: bool = False) -> bool:
        """Whether a call of these ranks goes over the slow place; of a message the sender first."""
        if self.uses is not None:
            return self.uses(Members(tuple(ranks), message))
        others = set(ranks) - self.near if self.far is None else set(ranks) & self.far
        return bool(others) and not self.near.isdisjoint(ranks)


class Seen(NamedTuple):
    """What the calls alone say: a location, the share of its calls' time that is excess, why."""

    culprit: Culprit
    share: Share
    calls: int
    expected_from: str
    p_value: float | None
    evidence: Mapping[str, Any]


def of_host(ranks: Sequence[int], direction: str | None = None) -> Culprit:
    """The link of a host, by its ranks."""
    kind = "rank" if len(ranks) == 1 else "host"
    return Culprit(kind, ranks[0], None, frozenset(ranks), None, direction=direction)


def link_row(
    data: Inputs,
    culprit: Culprit,
    share: Share,
    *,
    calls: int,
    expected_from: str,
    p_value: float | None = None,
    evidence: Mapping[str, Any],
) -> dict[str, Any]:
    """The row of a place whose calls lose ``share`` of their time to it."""
    cuts = [_shorter(data, culprit, share, end) for end in range(3)]
    saved = [
        interval(saved_per_step(data.calls, data.exclusive, cut, data.occupancy, data.steps))
        for cut in cuts
    ]
    measured = bandwidth(data, culprit)
    expected_gbps = None if measured is None else measured / (1 - share[1])
    # An order of ends tells a delay; what a link carries only calls that move it tell.
    if expected_gbps and expected_from == "stagger" and not _reached(data, culprit, expected_gbps):
        expected_gbps = None
    return {
        **_place(data, culprit),
        "calls": calls,
        "measured_gbps": measured,
        "expected_gbps": expected_gbps,
        "expected_from": expected_from,
        "excess_ns_per_step": round(saved[1][0]),
        "excess_low_ns": round(saved[0][1]),
        "excess_high_ns": round(saved[2][2]),
        "p_value": p_value,
        "evidence": _evidence(
            culprit,
            {
                "share": [round(value, 3) for value in share],
                **({"in_some_steps": True} if _comes_and_goes(data, cuts[1]) else {}),
                **evidence,
            },
        ),
    }


def _comes_and_goes(data: Inputs, cut: Mapping[tuple[int, int], float]) -> bool:
    """Whether some steps have no call over the place, as where models are averaged now and then."""
    used = {one.number for own in data.steps.values() for one in own.steps if one.used}
    return bool(cut) and not used <= {
        call.step
        for own in data.calls.values()
        for call in own
        if (call.rank, call.event_id) in cut
    }


def named_row(
    data: Inputs, culprit: Culprit, *, calls: int, evidence: Mapping[str, Any]
) -> dict[str, Any]:
    """The row of a place that only a probe finds slow: without any cost in the traced steps."""
    return {
        **_place(data, culprit),
        "calls": calls,
        "measured_gbps": bandwidth(data, culprit),
        "expected_gbps": None,
        "expected_from": "probe",
        "excess_ns_per_step": None,
        "excess_low_ns": None,
        "excess_high_ns": None,
        "p_value": None,
        "evidence": _evidence(culprit, evidence),
    }


def _place(data: Inputs, culprit: Culprit) -> dict[str, Any]:
    return {
        "run": data.run,
        "kind": culprit.kind,
        "src": culprit.src,
        "dst": culprit.dst,
        "host": data.infos[culprit.src].host if culprit.src in data.infos else None,
        "process_group": None,
        "candidates": json.dumps(culprit.candidates) if culprit.candidates else None,
    }


def _evidence(culprit: Culprit, more: Mapping[str, Any]) -> str:
    own = {
        "near": sorted(culprit.near),
        "far": None if culprit.far is None else sorted(culprit.far),
        "direction": culprit.direction,
        **({"location": culprit.words, "link": culprit.link} if culprit.words else {}),
        **({"rings_share": culprit.rings[1]} if culprit.rings else {}),
    }
    return json.dumps({**own, **more}, default=str)


def bandwidth(data: Inputs, culprit: Culprit) -> float | None:
    """Median bus bandwidth of the large calls over a place, GB/s; None without any."""
    measured = [
        gbps for call, column, gbps in _moved(data) if _uses(call, column, culprit, data.groups)
    ]
    return float(np.median(measured)) if measured else None


def _reached(data: Inputs, culprit: Culprit, gbps: float) -> bool:
    """Whether calls of one kind move as much: inside hosts or between them, as those over it."""
    home = homes(data)
    if any(is_nameless(one) for one in home.values()):
        return False
    moved: dict[Any, list[float]] = defaultdict(list)
    used = set()
    for call, column, own_gbps in _moved(data):
        between = len({home.get(rank) for rank in _ranks(call, column, data.groups)}) > 1
        moved[between, kind_of(call)].append(own_gbps)
        if _uses(call, column, culprit, data.groups):
            used.add(between)
    return any(between in used and np.median(own) >= gbps for (between, _), own in moved.items())


def _moved(data: Inputs) -> Iterator[tuple[Call, Mapping[int, Call], float]]:
    """Large calls, with all their ranks' parts and their bus bandwidth, GB/s."""
    telling = informative_kinds(data.columns)
    for column in data.columns:
        rank, call = max(column.items(), key=lambda item: data.exclusive[item[0]][item[1].event_id])
        factor, time = call.factor, data.exclusive[rank][call.event_id]
        if factor and time > 0 and kind_of(call) in telling:
            yield call, column, (call.bytes or 0) * factor / time


def _shorter(
    data: Inputs, culprit: Culprit, share: Share, end: int
) -> dict[tuple[int, int], float]:
    """(rank, event_id) -> time that each call over the slow place would be shorter, at one of the
    share's low end, middle and high end."""
    result = {}
    telling = informative_kinds(data.columns)
    for column in data.columns:
        call = next(iter(column.values()))
        if kind_of(call) not in telling:
            continue
        if _uses(call, column, culprit, data.groups):
            part = share[end]
        elif culprit.rings is not None and culprit.rings[0](_ranks(call, column, data.groups)):
            part = culprit.rings[1][end]
        else:
            continue
        for rank, own in column.items():
            result[rank, own.event_id] = part * data.exclusive[rank][own.event_id]
    return result


def _uses(
    call: Call, column: Mapping[int, Call], culprit: Culprit, groups: Mapping[str, Group]
) -> bool:
    ranks = _ranks(call, column, groups)
    return culprit.used_by(ranks, message=call.op in POINT_TO_POINT and call.peer is not None)


def _ranks(call: Call, column: Mapping[int, Call], groups: Mapping[str, Group]) -> tuple[int, ...]:
    """Of a message the sender first."""
    if call.messages:
        return (call.rank, *sorted({peer for _, peer, _ in call.messages}))
    if call.op in POINT_TO_POINT and call.peer is not None:
        return (call.rank, call.peer) if call.op == "send" else (call.peer, call.rank)
    group = groups.get(call.group) if call.group is not None else None
    known = None if call.op in POINT_TO_POINT or group is None else group.ranks
    return known or tuple(sorted(column))
