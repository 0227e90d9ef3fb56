"""Calls that stand still for TCP's retransmission timeout: packets are lost.

Linux sends a lost segment again after 200 ms at the earliest, then after twice as long each time,
where no later traffic shows the loss sooner; at the tail of a message nothing follows. So calls
that otherwise take a few ms take 0.2, 0.6 or 1.4 s more now and then. Whose packets are lost shows
in who is done meanwhile (stall_senders.py). That is read against when each rank ends calls that did
not stall, so that a clock that is off names nobody.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.collectives.groups import link_kind
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import FEWEST_CALLS
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.retransmits import Stall, senders
from advisor.metrics.timeline.intervals import Intervals
from advisor.statistics import median, sum_interval
from advisor.vocabulary.operations import POINT_TO_POINT, SYNCHRONISING

_TIMEOUT_NS = 200_000_000
"""The least that Linux waits before it sends a segment again (TCP_RTO_MIN, include/net/tcp.h)."""
# Sums of the timeouts 200, 400, 800 ms of one segment.
_TIMEOUTS = tuple(_TIMEOUT_NS * (2**n - 1) for n in (1, 2, 3))
_SHORT = 0.25
"""Of a timeout: the typical call is no longer, stalls exceed one by no more, and a clock that is
off by less moves none of them to another; of a kind's calls, those that do not stall at least."""


def stall_rows(data: Inputs, home: Mapping[int, Home]) -> list[dict[str, Any]]:
    """A row of ``link_excess`` if calls between hosts stall for retransmissions, else none."""
    data = _with_settled_clocks(data)
    long = _long(data)
    stalled = [(column, extra) for column, extra, typical in long if _is_timeout(extra, typical)]
    if not stalled:
        return []
    hosts = senders((_stall(column, extra, data) for column, extra in stalled), home)
    # Fewer may be chance, unless only one host's lost packet leaves just those ranks waiting.
    if len(stalled) < FEWEST_CALLS and len(hosts) > 1:
        return []
    # A call that loses several segments stands still for any sum of the timeouts: where these are
    # seen, other calls that stood still as long did so for the same reason, if they are no more.
    if len(long) - len(stalled) <= len(stalled):
        lossy = [(column, extra) for column, extra, _ in long]
    else:
        lossy = stalled
    numbers = sorted({s.number for one in data.steps.values() for s in one.steps if s.used})
    spans: dict[int, list[tuple[int, int]]] = {number: [] for number in numbers}
    for column, extra in lossy:
        step = next(iter(column.values())).step
        if step in spans:
            end = max(aligned(call.end, rank, data.clocks) for rank, call in column.items())
            spans[step].append((end - round(extra), end))
    # Calls that are under way together stand still together, for the same packet.
    lost = [
        Intervals.of([start for start, _ in of_step], [end for _, end in of_step])
        for of_step in spans.values()
    ]
    each = np.concatenate([one.end - one.start for one in lost]) if lost else np.empty(0)
    if len(lost) < 2 or not len(each):
        return []
    low, high = sum_interval(each)
    ranks = sorted(rank for rank, own in home.items() if own in hosts)
    only = ranks if len(hosts) == 1 else []
    return [
        {
            "run": data.run,
            "kind": "candidates" if not only else "rank" if len(only) == 1 else "host",
            "src": only[0] if only else None,
            "host": data.infos[only[0]].host if only and only[0] in data.infos else None,
            "candidates": None if only else str(ranks),
            "calls": len(stalled),
            "expected_from": "stalls",
            "excess_ns_per_step": round(float(each.sum()) / len(lost)),
            "excess_low_ns": round(low / len(lost)),
            "excess_high_ns": round(high / len(lost)),
        }
    ]


def _is_timeout(extra: float, typical: float) -> bool:
    """Whether one segment's retransmissions explain it."""
    return any(t - 0.5 * typical <= extra <= (1 + _SHORT) * t for t in _TIMEOUTS)


def _long(data: Inputs) -> list[tuple[Mapping[int, Call], float, float]]:
    """Calls that took a timeout or more longer than their kind does: with that, and the kind's."""
    kinds: dict[object, list[tuple[Mapping[int, Call], float]]] = defaultdict(list)
    for column in data.columns:
        call = next(iter(column.values()))
        if call.t_is == "matched" and link_kind(call, data.groups, data.infos) != "intra":
            kinds[call.group, wire_name(call), call.bytes].append((column, _time(column)))
    found = []
    for members in kinds.values():
        # Where many packets are lost, half of the calls or more stand still.
        short = [time for _, time in members if time < _TIMEOUT_NS]
        if len(short) < max(_SHORT * len(members), 1):
            continue
        typical = float(np.median(short))
        if typical > _SHORT * _TIMEOUT_NS:
            continue
        for column, time in members:
            extra = time - typical
            if extra >= _TIMEOUT_NS - 0.5 * typical:
                found.append((column, extra, typical))
    return found


def _time(column: Mapping[int, Call]) -> float:
    """How long the data of a call took, ns.

    A sender's call may last until somebody asks whether it is done: of a send and its receive, the
    receive says when the data was there.
    """
    received = [c for c in column.values() if c.op in POINT_TO_POINT and c.op != "send"]
    return float(max(c.transfer or 0 for c in received or column.values()))


def _stall(column: Mapping[int, Call], extra: float, data: Inputs) -> Stall:
    """Who waited in a stalled call; nobody for one that not all ranks of its group are read of."""
    call = next(iter(column.values()))
    group = data.groups.get(call.group) if call.group is not None else None
    ranks = group.ranks if group is not None and group.ranks is not None else ()
    late: frozenset[int] = frozenset()
    if set(column) == set(ranks):
        ends = {rank: aligned(c.end, rank, data.clocks) for rank, c in column.items()}
        first = min(ends.values())
        late = frozenset(rank for rank, end in ends.items() if end - first > 0.5 * extra)
    return Stall(wire_name(call), tuple(ranks), late)


def _with_settled_clocks(data: Inputs) -> Inputs:
    """The same with clocks as calls that did not stall show them, and the times of calls by them.

    When a rank usually ends such a call is its clock and the ring's order within it; a call that
    stalls has both as well. Ranks that share no such calls keep their clocks.
    """
    seen: dict[int, list[int]] = defaultdict(list)
    for column in data.columns:
        if len(column) < 2 or next(iter(column.values())).op not in SYNCHRONISING:
            continue
        # Durations need no common clock: nobody stood still, nor waited for one who did.
        if max(call.end - call.start for call in column.values()) >= _SHORT * _TIMEOUT_NS:
            continue
        ends = {rank: aligned(call.end, rank, data.clocks) for rank, call in column.items()}
        middle = sorted(ends.values())[len(ends) // 2]
        for rank, end in ends.items():
            seen[rank].append(end - middle)
    apart = {r: round(median(s)) for r, s in seen.items() if len(s) >= FEWEST_CALLS}
    off = {rank: by for rank, by in apart.items() if abs(by) > _SHORT * _TIMEOUT_NS}
    if not off:
        return data
    known = {rank: data.clocks.get(rank, Clock(0, 0.0, 0)) for rank in off}
    clocks = {r: one._replace(offset_ns=one.offset_ns - off[r]) for r, one in known.items()}
    clocks = {**data.clocks, **clocks}
    columns = []
    for column in data.columns:
        if off.keys() & column.keys() and len(column) > 1:
            last = max(aligned(call.start, rank, clocks) for rank, call in column.items())
            column = {
                rank: replace(call, transfer=max(aligned(call.end, rank, clocks) - last, 0))
                for rank, call in column.items()
            }
        columns.append(column)
    return replace(data, clocks=clocks, columns=columns)
