"""The order in which ranks leave NCCL's rings, against what each slow location would leave.

What a rank is late is the stagger of the ring, which grows with the call's time; what its clock is
off, the same for all ranks of a host; and how late its kernel ends after its data, the same in
every call. All three are normal variables, so that a location's likelihood is a closed form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.metrics.clocks.joint import WAKE_NS
from advisor.metrics.clocks.offsets import aligned
from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import members_of
from advisor.metrics.links.locations import Location, Members, Nic
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import PASSES, ring_ends
from advisor.metrics.timeline.statistics import Floats, spread

FACTORS: Floats = np.array([1.25, 2.0, 4.0])
"""How many times as long the slow edge takes: its pattern depends on that but little."""
_LEFT, _LEFT_ERROR = 0.5, 0.35
"""How much of one loop's stagger a call shows, and its standard deviation: less where it runs many
loops, where latency takes part of its time, and where channels differ."""
_MODEL_ERRORS = (0.01, 0.03, 0.1)
"""Ends are off the pattern by this share of the call's time."""
_INSIDE = 0.1
"""NVLink passes a slice on in a tenth of a NIC's time (450 against 50 GB/s on an H100 machine)."""
_FEWEST_CALLS = 3
_MOST_RANKS = 64
_MOST_KINDS = 4
_RESOLUTION_NS = 1e3  # of Kineto's older files


@dataclass(frozen=True)
class Lags:
    """Of one group: per operation and size, and per rank, the ends against their mean beside what
    the starts explain, ns; and what whitens them for each of the model's errors, with the
    logarithm of its determinant."""

    members: Members
    ops: tuple[str, ...]
    times_ns: Floats
    ends_ns: Floats
    whitening: tuple[tuple[Floats, float], ...]
    rings: tuple[tuple[int, ...], ...] | None  # from NCCL's log


def ring_lags(data: Inputs, home: Mapping[int, Home]) -> list[Lags]:
    """The ends of every group's rings of at least three ranks, of the kinds that take most time."""
    groups: dict[Members, dict[tuple[str, int], list[Mapping[int, Call]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for column in data.columns:
        call = next(iter(column.values()))
        members = members_of(call, column, data)
        if (
            members is not None
            and not members.message
            and wire_name(call) in PASSES
            and call.t_is == "matched"
            and 2 < len(members.ranks) <= _MOST_RANKS
            and set(members.ranks) == column.keys()
            and call.bytes
        ):
            groups[members][wire_name(call), call.bytes].append(column)
    found = []
    for members, kinds in groups.items():
        enough = {kind: own for kind, own in kinds.items() if len(own) >= _FEWEST_CALLS}
        heaviest = sorted(enough, key=lambda kind: (-kind[1] * len(enough[kind]), kind))
        if heaviest:
            chosen = {kind: enough[kind] for kind in heaviest[:_MOST_KINDS]}
            found.append(_lags(members, chosen, data, home))
    return found


def _lags(
    members: Members,
    kinds: Mapping[tuple[str, int], Sequence[Mapping[int, Call]]],
    data: Inputs,
    home: Mapping[int, Home],
) -> Lags:
    ranks = members.ranks
    count, number = len(kinds), len(ranks)
    ends, noise, times = [], [], []
    skew = np.zeros((count, count, number))
    for block, ((op, _), columns) in enumerate(kinds.items()):
        late, by_start, time = _ends(op, ranks, columns, data)
        skew[block, block] = np.median(by_start, axis=0)
        ends.append(np.median(late, axis=0) - _LEFT * skew[block, block])
        noise.append([1.2533 * spread(own) / np.sqrt(len(late)) for own in late.T])
        times.append(time)
    variance = np.concatenate([np.square(own) for own in noise])
    of_starts = skew.reshape(count, -1)
    rank_of = np.tile(np.arange(number), count)
    hosts = [home[rank] for rank in ranks]
    host_of = np.array([hosts.index(one) for one in hosts])[rank_of]
    clock = max((data.clocks[r].residual_ns / 2 for r in ranks if r in data.clocks), default=0.0)
    shared = WAKE_NS**2 * np.equal.outer(rank_of, rank_of)
    shared = shared + clock**2 * np.equal.outer(host_of, host_of)
    shared = shared + _LEFT**2 * of_starts.T @ of_starts
    time_of = np.repeat(times, number)
    whitening = []
    for error in _MODEL_ERRORS:
        covariance = shared + np.diag(variance + np.square(error * time_of) + _RESOLUTION_NS**2)
        lower = np.linalg.cholesky(covariance)
        whitening.append((np.linalg.inv(lower), -float(np.log(np.diag(lower)).sum())))
    return Lags(
        members,
        tuple(op for op, _ in kinds),
        np.array(times),
        np.concatenate(ends),
        tuple(whitening),
        data.ring_orders.get(frozenset(ranks)),
    )


def _ends(
    op: str, ranks: Sequence[int], columns: Sequence[Mapping[int, Call]], data: Inputs
) -> tuple[Floats, Floats, float]:
    """Row per call: each rank's end against their mean, ns, and what late starts make of it in one
    loop; and what such a call takes. Of the half of the calls whose ranks came nearest together."""
    when = np.array(
        [
            [[aligned(t, r, data.clocks) for t in (c[r].start, c[r].end)] for r in ranks]
            for c in columns
        ],
        dtype=np.int64,
    )
    starts = (when[:, :, 0] - when[:, :, 0].max(axis=1, keepdims=True)).astype(np.float64)
    ends = (when[:, :, 1] - when[:, :, 1].max(axis=1, keepdims=True)).astype(np.float64)
    takes = np.array([min(x.end - x.start for x in c.values()) for c in columns], dtype=np.float64)
    near = np.argsort(-starts.min(axis=1), kind="stable")[: max(_FEWEST_CALLS, len(takes) // 2)]
    starts, ends, takes = starts[near], ends[near], np.maximum(takes[near], 1.0)
    by_start = ring_ends(op, np.ones_like(starts), starts / takes[:, None]) * takes[:, None]
    late = ends - ends.mean(axis=1, keepdims=True)
    return late, by_start - by_start.mean(axis=1, keepdims=True), float(np.median(takes))


class Patterns:
    """How each location staggers the ends of a group's rings, worked out once per shape."""

    def __init__(self, home: Mapping[int, Home], slot: Mapping[int, int]) -> None:
        self.home, self.slot = home, slot
        self._known: dict[object, Floats] = {}

    def of(self, lags: Lags, location: Location) -> Floats:
        """Row per kind of ring order and factor: the ends, ns, centred."""
        ranks = lags.members.ranks
        nics = [(self.home[r], self.slot[r]) for r in location.ranks]
        orders = self._orders(lags)
        rows = []
        for channels in orders:
            edges = self._edges(channels)
            slow = tuple(tuple(location.slows_edge(a, b, nics) for a, b in ring) for ring in edges)
            inside = tuple(tuple(a[0] == b[0] for a, b in ring) for ring in edges)
            places = tuple(tuple(ranks.index(r) for r in ring) for ring, _ in channels)
            by_op = {op: self._ends(op, slow, inside, places) for op in set(lags.ops)}
            shapes = [t * by_op[op] for op, t in zip(lags.ops, lags.times_ns, strict=True)]
            rows.append(np.concatenate(shapes, axis=1))
        return np.concatenate(rows)

    def _ends(
        self,
        op: str,
        slow: tuple[tuple[bool, ...], ...],
        inside: tuple[tuple[bool, ...], ...],
        places: tuple[tuple[int, ...], ...],
    ) -> Floats:
        key = (op, slow, inside, places)
        if key not in self._known:
            self._known[key] = _channels(op, np.array(slow), np.array(inside), np.array(places))
        return self._known[key]

    def _orders(self, lags: Lags) -> list[list[tuple[tuple[int, ...], int | None]]]:
        """Per kind of order, the channels: ranks in ring order, and the number of the NIC."""
        ranks = lags.members.ranks
        if lags.rings:
            return [[(ring, None) for ring in lags.rings]]
        hosts: dict[Home, list[int]] = defaultdict(list)
        for rank in ranks:
            hosts[self.home[rank]].append(rank)
        alone: list[tuple[tuple[int, ...], int | None]] = [(tuple(ranks), None)]
        if len(hosts) in (1, len(ranks)):
            return [alone]
        numbers = sorted({self.slot[rank] for rank in ranks})
        channels: list[tuple[tuple[int, ...], int | None]] = []
        for number in numbers:
            order: list[int] = []
            for own in hosts.values():
                at = next((n for n, rank in enumerate(own) if self.slot[rank] == number), 0)
                order += own[at:] + own[:at]
            channels.append((tuple(order), number))
        return [channels, alone]

    def _edges(
        self, channels: Sequence[tuple[tuple[int, ...], int | None]]
    ) -> list[list[tuple[Nic, Nic]]]:
        found = []
        for ring, number in channels:
            edges = []
            for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
                own = self.slot[a] if number is None or self.home[a] == self.home[b] else number
                to = self.slot[b] if number is None or self.home[a] == self.home[b] else number
                edges.append(((self.home[a], own), (self.home[b], to)))
            found.append(edges)
        return found


def _channels(op: str, slow: object, inside: object, places: object) -> Floats:
    """A row per factor: ends by rank of the group, of the channel that ends last there."""
    is_slow, within, at = np.asarray(slow), np.asarray(inside), np.asarray(places)
    between = not within.all()
    rows = []
    for factor in FACTORS:
        # NVLink shows in rings between hosts only where it is slower than their NICs.
        takes = np.where(is_slow, factor, np.where(within & between, _INSIDE, 1.0))
        ends = ring_ends(op, takes)
        length = takes.max(axis=1)  # a channel is as slow as its slowest edge
        left = (1.0 + ends) * (length / length.max())[:, None]
        by_rank = np.zeros(at.shape[1])
        for ring, order in zip(left, at, strict=True):
            np.maximum.at(by_rank, order, ring)
        rows.append(by_rank - by_rank.mean())
    result: Floats = np.stack(rows)
    return result


def log_likelihoods(lags: Lags, patterns: Sequence[Floats | None]) -> tuple[Floats, float]:
    """Per location and factor the logarithm of how likely the ends are, and without any stagger.

    ``patterns``: None for what does not touch these rings.
    """
    many = [pattern for pattern in patterns if pattern is not None]
    count, kinds = len(FACTORS), len(lags.ops)
    shapes = np.concatenate(many) if many else np.zeros((0, len(lags.ends_ns)))
    blocks = np.repeat(np.eye(kinds), len(lags.members.ranks), axis=1)
    nothing_by, some_by = [], []
    for inverse, log_scale in lags.whitening:
        seen = inverse @ lags.ends_ns
        nothing_by.append(log_scale - 0.5 * float(seen @ seen))
        # Each kind of call shows as much of its stagger as it does: N(_LEFT, _LEFT_ERROR) of it.
        parts = (shapes[:, None] * blocks[None]) @ inverse.T
        left = seen - _LEFT * parts.sum(axis=1)
        gram = np.eye(kinds) + _LEFT_ERROR**2 * parts @ parts.transpose(0, 2, 1)
        cross = (parts @ left[:, :, None])[..., 0]
        inner = np.linalg.solve(gram, cross[..., None])[..., 0]
        square = (left**2).sum(axis=1) - _LEFT_ERROR**2 * (cross * inner).sum(axis=1)
        some_by.append(log_scale - 0.5 * square - 0.5 * np.linalg.slogdet(gram)[1])
    nothing = _mean_of(np.array(nothing_by), 0)
    each = _mean_of(np.array(some_by), 0)
    result: Floats = np.full((len(patterns), count), float(nothing))
    place = 0
    for number, pattern in enumerate(patterns):
        if pattern is not None:
            own = each[place : place + len(pattern)].reshape(-1, count)
            result[number] = _mean_of(own, 0)
            place += len(pattern)
    return result, float(nothing)


def _mean_of(logs: Floats, axis: int) -> Floats:
    """Logarithm of the mean of what ``logs`` are the logarithms of."""
    most = logs.max(axis=axis, keepdims=True)
    result: Floats = np.squeeze(
        most + np.log(np.exp(logs - most).mean(axis=axis, keepdims=True)), axis=axis
    )
    return result
