"""The order in which ranks leave NCCL's rings, against what each slow location would leave.

What a rank is late is the stagger of the ring, which grows with the call's time; what its clock is
off, the same for all ranks of a host; and how late its kernel ends after its data, the same in
every call. All three are normal variables, so that a location's likelihood is a closed form.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.clocks.joint import NORMALLY_RIGHT, WAKE_NS
from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import members_of
from advisor.metrics.links.locations import Location, Members, Nic
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import PASSES, ring_ends
from advisor.metrics.rings.schedule import GLOO_RINGS
from advisor.metrics.timeline.statistics import Floats, spread

FACTORS: Floats = np.array([1.25, 2.0, 4.0])
"""How many times as long the slow edge takes: its pattern depends on that but little."""
_LOOPS = (1, 3)
"""A message of up to 4 MiB per rank and channel takes one or two loops; later ones repeat."""
_LEFT, _LEFT_ERROR = 0.5, 0.35
"""How much of that stagger a call shows, and its standard deviation: less where it runs many loops,
where latency takes part of its time, and where channels differ."""
_MODEL_ERRORS = (0.01, 0.03, 0.1)
"""Ends are off the pattern by this share of the call's time."""
_INSIDE = 0.1
"""NVLink passes a slice on in a tenth of a NIC's time (450 against 50 GB/s on an H100 machine)."""
_FEWEST_CALLS = 3
_MOST_RANKS = 64
_MOST_KINDS = 3
_MOST_ENDS = 512  # numbers that are looked at together
_ORDERS = 2
_RESOLUTION_NS = 1e3  # of Kineto's older files


@dataclass(frozen=True)
class Block:
    """One group's calls of one operation and size: what such a call takes, and per rank the ends
    against their mean, what late starts make of them in one loop, and their noise, ns."""

    members: Members
    op: str
    time_ns: float
    ends_ns: Floats
    by_start_ns: Floats
    noise_ns: Floats
    rings: tuple[tuple[int, ...], ...] | None  # from NCCL's log


@dataclass(frozen=True)
class Lags:
    """Blocks whose hosts' clocks are wrong together, their ends one after another; and what whitens
    these for each of the model's errors, with the logarithm of its determinant."""

    blocks: tuple[Block, ...]
    ends_ns: Floats
    whitening: tuple[tuple[Floats, float], ...]

    @property
    def slices(self) -> list[slice]:
        """Where each block's ranks are."""
        stops = np.cumsum([len(one.ends_ns) for one in self.blocks]).tolist()
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]


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
    bundles: dict[frozenset[Home], list[Block]] = defaultdict(list)
    for members, kinds in groups.items():
        enough = {kind: own for kind, own in kinds.items() if len(own) >= _FEWEST_CALLS}
        heaviest = sorted(enough, key=lambda kind: (-kind[1] * len(enough[kind]), kind))
        for kind in heaviest[:_MOST_KINDS]:
            own = frozenset(home[rank] for rank in members.ranks)
            bundles[own].append(_block(members, kind[0], enough[kind], data))
    return [_lags(own, data, home) for own in bundles.values()]


def _lags(blocks: Sequence[Block], data: Inputs, home: Mapping[int, Home]) -> Lags:
    """Blocks of the same hosts, the longest calls' as far as they can be looked at together."""
    chosen: list[Block] = []
    for block in sorted(blocks, key=lambda one: -one.time_ns):
        if sum(len(one.ends_ns) for one in chosen) + len(block.ends_ns) <= _MOST_ENDS:
            chosen.append(block)
    ranks = np.concatenate([one.members.ranks for one in chosen])
    hosts = {host: number for number, host in enumerate(dict.fromkeys(home[r] for r in ranks))}
    host_of = np.array([hosts[home[rank]] for rank in ranks])
    of_starts = _apart([one.by_start_ns for one in chosen])
    shared = WAKE_NS**2 * np.equal.outer(ranks, ranks) + _LEFT**2 * of_starts.T @ of_starts
    same_host = np.equal.outer(host_of, host_of)
    noise = np.concatenate([one.noise_ns for one in chosen])
    time_of = np.concatenate([np.full(len(one.ends_ns), one.time_ns) for one in chosen])
    whitening = []
    for error in _MODEL_ERRORS:
        own = np.diag(noise**2 + np.square(error * time_of) + _RESOLUTION_NS**2)
        for chance, clock in _clock_errors([data.clocks[r] for r in ranks if r in data.clocks]):
            lower = np.linalg.cholesky(shared + clock**2 * same_host + own)
            scale = -float(np.log(np.diag(lower)).sum()) + math.log(chance)
            whitening.append((np.linalg.inv(lower), scale))
    ends = np.concatenate([one.ends_ns - _LEFT * one.by_start_ns for one in chosen])
    return Lags(tuple(chosen), ends, tuple(whitening))


def _apart(rows: Sequence[Floats]) -> Floats:
    """A row per block, which holds its numbers at its own ranks' columns."""
    result: Floats = np.zeros((len(rows), sum(map(len, rows))))
    at = 0
    for number, row in enumerate(rows):
        result[number, at : at + len(row)] = row
        at += len(row)
    return result


def _clock_errors(clocks: Sequence[Clock]) -> list[tuple[float, float]]:
    """How well hosts' clocks are known, ns, with the chance of each: as well as they should be
    kept, or only as the calls tell."""
    sure = max((clock.residual_ns / 2 for clock in clocks), default=0.0)
    least = max((clock.doubt_ns for clock in clocks), default=0.0)
    if least <= sure:
        return [(1.0, sure)]
    return [(NORMALLY_RIGHT, sure), (1 - NORMALLY_RIGHT, least)]


def _block(members: Members, op: str, columns: Sequence[Mapping[int, Call]], data: Inputs) -> Block:
    """Of the calls whose ranks came nearest together."""
    ranks = members.ranks
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
    # Of calls that follow one another at once the starts are as staggered as the ends before.
    skew = -starts.min(axis=1)
    together = skew <= 2 * np.quantile(skew, 0.1)
    near = np.flatnonzero(together) if together.sum() >= _FEWEST_CALLS else skew.argsort()[:3]
    starts, ends, takes = starts[near], ends[near], np.maximum(takes[near], 1.0)
    by_start = ring_ends(op, np.ones_like(starts), starts / takes[:, None]) * takes[:, None]
    late = ends - ends.mean(axis=1, keepdims=True)
    return Block(
        members,
        op,
        float(np.median(takes)),
        np.median(late, axis=0),
        np.median(by_start - by_start.mean(axis=1, keepdims=True), axis=0),
        np.array([1.2533 * spread(own) / np.sqrt(len(late)) for own in late.T]),
        data.ring_orders.get(frozenset(ranks)),
    )


class Patterns:
    """How each location staggers the ends of a group's rings, worked out once per shape."""

    def __init__(
        self, home: Mapping[int, Home], slot: Mapping[int, int], *, gloo: bool = False
    ) -> None:
        self.home, self.slot, self.gloo = home, slot, gloo
        self._known: dict[object, Floats] = {}

    def of(self, lags: Lags, location: Location) -> Floats | None:
        """Row per kind of ring order, number of loops and factor: the ends, ns, centred; None where
        it is in none of these rings."""
        if not any(location.staggers(one.members, self.home) for one in lags.blocks):
            return None
        rows = []
        for order in range(_ORDERS):
            for loops in _LOOPS:
                shapes = [self._shape(block, location, order, loops) for block in lags.blocks]
                rows.append(np.concatenate(shapes, axis=1))
        return np.concatenate(rows)

    def _shape(self, block: Block, location: Location, order: int, loops: int) -> Floats:
        ranks = block.members.ranks
        if not location.staggers(block.members, self.home):
            return np.zeros((len(FACTORS), len(ranks)))
        nics = [(self.home[r], self.slot[r]) for r in location.ranks]
        channels = self._orders(block)[order]
        edges = self._edges(channels)
        slow = tuple(tuple(location.slows_edge(a, b, nics) for a, b in ring) for ring in edges)
        inside = tuple(tuple(a[0] == b[0] for a, b in ring) for ring in edges)
        places = tuple(tuple(ranks.index(r) for r in ring) for ring, _ in channels)
        if not any(map(any, slow)):
            return np.zeros((len(FACTORS), len(ranks)))
        shape: Floats = block.time_ns * self._ends(block.op, slow, inside, places, loops)
        return shape

    def _ends(
        self,
        op: str,
        slow: tuple[tuple[bool, ...], ...],
        inside: tuple[tuple[bool, ...], ...],
        places: tuple[tuple[int, ...], ...],
        loops: int,
    ) -> Floats:
        """A row per factor: ends by rank of the group, of the channel that ends last there."""
        is_slow, within, at = np.array(slow), np.array(inside), np.array(places)
        # Rings whose hosts are alike only turn with the location.
        width = within.shape[1] // max(1, int((~within[0]).sum()))
        turn = int(np.flatnonzero(is_slow.any(axis=0))[0]) // width * width
        turned = np.roll(is_slow, -turn, axis=1)
        if not (np.roll(within, -turn, axis=1) == within).all():
            turn, turned = 0, is_slow
        key = (op, turned.tobytes(), within.tobytes(), within.shape, loops)
        if key not in self._known:
            self._known[key] = _channels(op, turned, within, loops)
        left = np.roll(self._known[key], turn, axis=2)
        rows: Floats = np.zeros((len(left), at.shape[1]))
        for channel, order in enumerate(at):
            rows[:, order] = np.maximum(rows[:, order], left[:, channel])
        rows -= rows.mean(axis=1, keepdims=True)
        return rows

    def _orders(self, block: Block) -> list[list[tuple[tuple[int, ...], int | None]]]:
        """Per kind of order, the channels: ranks in ring order, and the number of the NIC.

        Where no log has the rings: one per NIC, in at the GPU beside it and out at the one before;
        and one for all.
        """
        ranks = block.members.ranks
        if self.gloo:  # one ring, each operation its own way around
            one_ring = ranks[::-1] if GLOO_RINGS.get(block.op, (-1, 1))[0] > 0 else ranks
            return [[(one_ring, None)]] * _ORDERS
        if block.rings:
            return [[(ring, None) for ring in block.rings]] * _ORDERS
        hosts: dict[Home, list[int]] = defaultdict(list)
        for rank in ranks:
            hosts[self.home[rank]].append(rank)
        alone: list[tuple[tuple[int, ...], int | None]] = [(tuple(ranks), None)]
        if len(hosts) in (1, len(ranks)):
            return [alone] * _ORDERS
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


def _channels(op: str, is_slow: NDArray[np.bool_], within: NDArray[np.bool_], loops: int) -> Floats:
    """Ends by factor, channel and position, over the time of the slowest channel."""
    between = not within.all()
    found = []
    for factor in FACTORS:
        # NVLink shows in rings between hosts only where it is slower than their NICs.
        takes = np.where(is_slow, factor, np.where(within & between, _INSIDE, 1.0))
        length = takes.max(axis=1)  # a channel is as slow as its slowest edge
        ends = ring_ends(op, takes, loops=loops)
        found.append((1.0 + ends) * (length / length.max())[:, None])
    result: Floats = np.stack(found)
    return result


def log_likelihoods(lags: Lags, patterns: Sequence[Floats | None]) -> tuple[Floats, float]:
    """Per location and factor the logarithm of how likely the ends are, and without any stagger.

    ``patterns``: None for what does not touch these rings.
    """
    many = [pattern for pattern in patterns if pattern is not None]
    count = len(FACTORS)
    shapes = np.concatenate(many) if many else np.zeros((0, len(lags.ends_ns)))
    nothing_by, some_by = [], []
    for inverse, log_scale in lags.whitening:
        seen = inverse @ lags.ends_ns
        nothing_by.append(log_scale - 0.5 * float(seen @ seen))
        # Each block shows as much of its stagger as it does: N(_LEFT, _LEFT_ERROR) of it.
        parts = np.stack([shapes[:, at] @ inverse[:, at].T for at in lags.slices], axis=1)
        left = seen - _LEFT * parts.sum(axis=1)
        gram = np.eye(len(lags.blocks)) + _LEFT_ERROR**2 * parts @ parts.transpose(0, 2, 1)
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
