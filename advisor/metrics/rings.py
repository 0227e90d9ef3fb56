"""The passive sign of a slow edge: ranks leave a ring collective in a pattern that points at it.

With one edge of a ring slow, the rank that receives over it ends last, and every other rank ends
earlier by one unit per hop that it is away from it around the ring; the unit is the extra time that
one chunk takes on the edge, so the stagger grows with the message. Measured on torch 2.13's gloo
with 2, 3, 4 and 8 hosts, either side of one link shaped: the tent fits, its unit is 1.2 times the
extra time of a chunk, and a call's excess is the number of chunks that cross the edge times that.
gloo's all_reduce sends to the previous rank of the group, its all_gather to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.metrics.blame import widest
from advisor.metrics.calls import Call
from advisor.metrics.clock import Clock, aligned
from advisor.metrics.fits import wire_name
from advisor.metrics.robust import Floats, binomial_tail, bootstrap

# Operation on the wire -> (place of the sender relative to the receiver, chunks over each edge).
_GLOO_RINGS = {"all_reduce": (1, 2), "all_gather": (-1, 1)}
_UNIT = 1.2
_FEWEST_CALLS = 5
# A second edge beside the first must carry this share of the stagger.
_SECOND_EDGE = 0.3
# Messages of less than this are over before a token bucket or a slow NIC shows.
_SMALLEST_BYTES = 65_536


@dataclass(frozen=True)
class SlowEdge:
    """A ring edge that the stagger of the ends points at. ``share`` of a call's time is excess.

    ``second`` is the sender of an adjacent slow edge when two in a row fit better: then the rank
    between them is slow both ways.
    """

    group: str | None
    op: str
    sender: int
    receiver: int
    second: int | None
    calls: int
    share: float
    share_low: float
    share_high: float
    p_value: float
    units_ns: tuple[float, ...]


def slow_edge(
    group: str | None,
    ranks: Sequence[int],
    columns: Sequence[Mapping[int, Call]],
    clocks: Mapping[int, Clock],
) -> SlowEdge | None:
    """The edge that the calls of one operation and group point at; None without a sign of one.

    One of the group's ranks may be missing (its file was lost or cut): the ends of the others still
    show the pattern, where at least three are left.
    """
    op = wire_name(next(iter(columns[0].values())))
    count = len(ranks)
    large = [c for c in columns if _large(c)]
    if op not in _GLOO_RINGS or count < 2 or len(large) < _FEWEST_CALLS:
        return None
    known = [rank for rank in ranks if rank in widest(large)]
    usable = [c for c in large if c.keys() >= set(known)]
    if len(known) < max(count - 1, min(count, 3)) or len(usable) < _FEWEST_CALLS:
        return None
    direction, rounds = _GLOO_RINGS[op]
    ends = np.array(
        [[aligned(c[rank].end, rank, clocks) for rank in known] for c in usable], dtype=np.int64
    )
    lags = (ends - ends.min(axis=1, keepdims=True)).astype(np.float64)
    times = np.array([max(c[rank].transfer or 0 for rank in known) for c in usable])
    keep = times > 0
    shares = lags[keep] / times[keep][:, None]
    if len(shares) < _FEWEST_CALLS:
        return None
    shares -= shares.mean(axis=1, keepdims=True)
    tents = _tents(count)[:, [ranks.index(rank) for rank in known]]
    tents -= tents.mean(axis=1, keepdims=True)
    typical = np.median(shares, axis=0)
    center, next_amplitude = _best(typical, tents)
    steps = rounds * (count - 1)

    def total(rows: Floats) -> float:
        return float(steps / _UNIT * _amplitudes(np.median(rows, axis=0), tents, center).sum())

    share = total(shares)
    low, high = bootstrap(shares, total)
    # Without a rank the tents are not equally high.
    votes = (shares @ (tents / np.linalg.norm(tents, axis=1, keepdims=True)).T).argmax(axis=1)
    near = {center, (center + 1) % count} if next_amplitude > 0 else {center}
    hits = int(np.isin(votes, list(near)).sum())
    p_value = min(1.0, count * binomial_tail(hits, len(votes), len(near) / count))
    sender = ranks[(center + direction) % count]
    second = ranks[(center + 1 + direction) % count] if next_amplitude > 0 and count > 2 else None
    return SlowEdge(
        group=group,
        op=op,
        sender=sender,
        receiver=ranks[center],
        second=second,
        calls=len(shares),
        share=share,
        share_low=low,
        share_high=high,
        p_value=p_value,
        units_ns=tuple(float(v) for v in np.round(np.median(lags, axis=0))),
    )


def _large(column: Mapping[int, Call]) -> bool:
    call = next(iter(column.values()))
    return call.last_rank is not None and (call.bytes or 0) >= _SMALLEST_BYTES


def _tents(count: int) -> Floats:
    """Row p: centred pattern of ends with the receiver of the slow edge at place p."""
    places = np.arange(count)
    apart = np.abs(places[:, None] - places[None, :])
    tents = (count // 2 - np.minimum(apart, count - apart)).astype(np.float64)
    centred: Floats = tents - tents.mean(axis=1, keepdims=True)
    return centred


def _amplitudes(pattern: Floats, tents: Floats, center: int) -> Floats:
    """Non-negative units of the tent at ``center`` and the next one that fit a pattern best."""
    first, second = tents[center], tents[(center + 1) % len(tents)]
    alone = max(float(pattern @ first) / float(first @ first), 0.0)
    if len(tents) < 4:
        return np.array([alone, 0.0])
    both, *_ = np.linalg.lstsq(np.stack([first, second], axis=1), pattern, rcond=None)
    if (both > 0).all():
        return np.asarray(both, dtype=np.float64)
    return np.array([alone, 0.0])


def _best(pattern: Floats, tents: Floats) -> tuple[int, float]:
    """The place whose tent, alone or with the next one's, leaves least; the next one's units.

    Two edges are believed when each has a good part of the whole.
    """
    best, least, beside = 0, np.inf, 0.0
    for place in range(len(tents)):
        units = _amplitudes(pattern, tents, place)
        if units.min() < _SECOND_EDGE * units.sum():
            units = np.array(
                [max(float(pattern @ tents[place]) / float(tents[place] @ tents[place]), 0.0), 0.0]
            )
        left = pattern - units[0] * tents[place] - units[1] * tents[(place + 1) % len(tents)]
        loss = float(left @ left)
        if loss < least - 1e-12:
            best, least, beside = place, loss, float(units[1])
    return best, beside
