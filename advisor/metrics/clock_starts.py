"""Whether one host's clock is off, told from starts and ends of ring collectives of one size.

The ends alone cannot tell: a slow edge staggers them as an offset does. But a call's duration on a
rank's own clock depends on who came last and when, and not on the clocks. A ring is linear in max
and plus (ring_model.paths), so that the starts predict the ends for each place that may be slow.
Each such place is weighed with all clocks right and with one host's clock off by any amount; who
comes last must vary a little over the calls for that to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.metrics.calls import Call
from advisor.metrics.clock_fit import CALL, CUT, CUT_CALL, ENDS, WEIGHT
from advisor.metrics.link_calls import kind_of, telling_kinds
from advisor.metrics.ring_model import GLOO_RINGS, edges, paths
from advisor.metrics.robust import Floats

_FEWEST_CALLS = 20
_MOST_CALLS = 40
_MOST_RANKS = 16
# Hosts are normally synchronised.
_OFF = 8.0
# That a link is slow as well explains more by itself: both together must do so by as much again.
# Not so in rings of three, where a slow edge sets one rank apart just as a clock does.
_BOTH = 8.0
_BOTH_RANKS = 4
_DECIDED = 4.0
# More left unexplained per rank than this, and the calls are no such ring: nothing is told.
_MISFIT = 25.0
# Offsets below this, or this share of a call, are not told from what the model leaves out.
_LEAST_NS = 500_000.0
_LEAST_SHARE = 0.12
# Offsets tried: these shares of a call's time, around none and around what the ends differ by.
_GRID: Floats = np.linspace(-0.6, 0.6, 25)
_FINE: Floats = np.linspace(-0.05, 0.05, 11)


@dataclass(frozen=True)
class OneOff:
    """``offset_ns`` is to be added to the clock of ``host``.

    ``decided``: every hypothesis that comes near has the same clock off, by as much.
    """

    host: object
    offset_ns: int
    decided: bool


@dataclass(frozen=True)
class _Calls:
    """Starts and ends per call and place in the ring, ns after the call's last start."""

    op: str
    starts: Floats
    ends: Floats
    hosts: tuple[object, ...]


def one_clock_off(
    columns: Sequence[Mapping[int, Call]],
    host: Mapping[int, object],
    correction: Mapping[int, int],
    already: frozenset[object],
) -> OneOff | None:
    """The clock that is off after ``correction`` (ns per rank); None where none is seen to be.

    Clocks of hosts in ``already`` were found off before: that they still are costs nothing.
    """
    calls = _calls(columns, host, correction)
    if calls is None:
        return None
    tried = _hypotheses(calls, already)
    loss, own, offset = min(tried, key=lambda item: item[0])
    typical = float(np.median(calls.ends.max(axis=1)))
    least = max(_LEAST_NS, _LEAST_SHARE * typical)
    if own is None or abs(offset) < least or loss > _MISFIT * len(calls.hosts):
        return None
    apart = 2 * ENDS * typical
    near = [item for item in tried if item[0] < loss + _DECIDED]
    decided = all(other == own and abs(by - offset) < apart for _, other, by in near)
    return OneOff(own, round(offset), decided)


def _calls(
    columns: Sequence[Mapping[int, Call]],
    host: Mapping[int, object],
    correction: Mapping[int, int],
) -> _Calls | None:
    """The calls of the commonest ring that all ranks are in."""
    found: Counter[tuple[str, str | None, int, tuple[int, ...]]] = Counter()
    keys = []
    telling = telling_kinds(columns)
    for column in columns:
        call = next(iter(column.values()))
        op, ranks = call.wire_op or call.op, tuple(sorted(column))
        usable = (
            op in GLOO_RINGS
            and kind_of(call) in telling
            and len(ranks) == (call.group_size or len(ranks))
        )
        keys.append((op, call.group, call.bytes or 0, ranks) if usable else None)
    found.update(key for key in keys if key is not None)
    if not found:
        return None
    best, count = max(found.items(), key=lambda item: (item[1] * len(item[0][3]), item[0][2]))
    op, _, _, ranks = best
    hosts = tuple(host[rank] for rank in ranks)
    if count < _FEWEST_CALLS or len(ranks) > _MOST_RANKS or len(set(hosts)) < 3:
        return None
    own = [column for column, key in zip(columns, keys, strict=True) if key == best]
    own = own[:: max(1, -(-len(own) // _MOST_CALLS))]
    shift = np.array([correction[rank] for rank in ranks], dtype=np.int64)
    starts = np.array([[c[rank].start for rank in ranks] for c in own], dtype=np.int64) + shift
    ends = np.array([[c[rank].end for rank in ranks] for c in own], dtype=np.int64) + shift
    last = starts.max(axis=1, keepdims=True)
    return _Calls(op, (starts - last).astype(float), (ends - last).astype(float), hosts)


def _hypotheses(
    calls: _Calls, already: frozenset[object]
) -> list[tuple[float, object | None, float]]:
    """(loss, host whose clock is off, what must be added to it), the best of each slow place."""
    typical = max(float(np.median(calls.ends.max(axis=1))), 1.0)
    late = np.median(calls.ends - np.median(calls.ends, axis=1, keepdims=True), axis=0)
    found: list[tuple[float, object | None, float]] = []
    both = _BOTH if len(calls.hosts) >= _BOTH_RANKS else 0.0
    for number, table in enumerate(_tables(calls)):
        none = np.zeros((1, len(calls.hosts)))
        found.append((_best(calls, table, none, typical)[0], None, 0.0))
        for own in sorted(set(calls.hosts), key=str):
            is_own = np.array([one == own for one in calls.hosts])
            around = float(np.median(late[is_own]))
            cost = (0.0 if own in already else _OFF) + (both if number else 0.0)
            wide = np.concatenate([_GRID * typical, _GRID * typical - around])
            _, offset = _best(calls, table, wide[:, None] * is_own, typical)
            fine = offset + _FINE * typical
            loss, offset = _best(calls, table, fine[:, None] * is_own, typical)
            found.append((loss + cost, own, offset))
    return found


def _tables(calls: _Calls) -> list[Floats]:
    """Paths for no slow edge, then for every set of them that one host or one edge makes."""
    ring = edges(calls.op, range(len(calls.hosts)))
    between = [(calls.hosts[a], calls.hosts[b]) for a, b in ring]
    inside = frozenset(n for n, (a, b) in enumerate(between) if a == b)
    places: list[frozenset[int]] = [frozenset()]
    for own in sorted(set(calls.hosts), key=str):
        places += [
            frozenset(n for n, (a, b) in enumerate(between) if a != b and own in (a, b)),
            frozenset(n for n, (a, b) in enumerate(between) if a == own != b),
            frozenset(n for n, (a, b) in enumerate(between) if b == own != a),
        ]
    places += [frozenset([n]) for n in range(len(ring)) if n not in inside]
    count = len(ring)
    return [
        paths(calls.op, count, slow, inside)
        for slow in dict.fromkeys(places)
        if len(slow) + len(inside) < count
    ]


def _best(calls: _Calls, table: Floats, offsets: Floats, typical: float) -> tuple[float, float]:
    """The least loss over the table's shares and ``offsets`` (row per trial), and its offset."""
    shares, trials = len(table), len(offsets)
    path = np.repeat(table, trials, axis=0)[:, None, :, :]
    added = np.tile(offsets, (shares, 1))[:, None, :]
    takes = np.full(len(path), typical)
    came = (calls.starts[None] + added)[:, :, None, :]
    left = calls.ends[None] + added
    for _ in range(2):
        away = left - (came + takes[:, None, None, None] * path).max(axis=3)
        middle = np.median(away.reshape(len(path), -1), axis=1)
        takes = np.maximum(takes + middle, 0.1 * typical)
    away = left - (came + takes[:, None, None, None] * path).max(axis=3)
    away /= takes[:, None, None]
    whole = away.mean(axis=2, keepdims=True)
    losses = np.minimum(((away - whole) / ENDS) ** 2, CUT).sum(axis=2)
    losses += np.minimum((whole[:, :, 0] / CALL) ** 2, CUT_CALL)
    each = WEIGHT * losses.mean(axis=1)
    least = int(each.argmin())
    row = offsets[least % trials]
    return float(each[least]), float(row[np.abs(row).argmax()])
