"""Groups and pairs that take longer than their peers for the same work.

Calls of the same operation, size, number of ranks and link kind cost the same whichever group makes
them, unless a link of one of its ranks is slow. Times are those a call would have had alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.collectives.groups import Group, RankInfo, link_kind
from advisor.metrics.rings.informative_calls import LARGE_BYTES
from advisor.metrics.timeline.statistics import Floats
from advisor.vocabulary.operations import POINT_TO_POINT

SIGNIFICANCE = 0.01
"""One false accusation in a hundred recordings, after correction for the number of candidates."""
_FEWEST_CALLS = next(n for n in count(1) if SIGNIFICANCE * math.comb(2 * n, n) > 1)
"""Ten times have 252 orders, so that two groups of five can differ at 1 %; of four (70) hardly."""
# A group this much slower than the fastest of its kind is slow.
_SLOWER = 0.12


class PeerExcess(NamedTuple):
    """One group (or directed pair) among its peers. ``share`` of its time is over the fastest's.

    ``others_share`` is the largest share among its peers: what it would have if it were slow.
    """

    group: str | None
    op: str
    bytes: int
    ranks: tuple[int, ...]
    calls: int
    median_ns: float
    share: float
    others_share: float
    slow: bool
    p_value: float


def peer_excess(
    columns: Sequence[Mapping[int, Call]],
    groups: Mapping[str, Group],
    infos: Mapping[int, RankInfo],
    exclusive: Mapping[int, Mapping[int, float]],
) -> list[PeerExcess]:
    """Every group that has peers, of kinds in which some group is slow and some is not."""
    kinds: dict[object, dict[tuple[str | None, tuple[int, ...]], list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for column in columns:
        call = next(iter(column.values()))
        if call.t_is != "matched" or (call.bytes or 0) < LARGE_BYTES:
            continue
        link = link_kind(call, groups, infos)
        if link == "intra":
            continue
        op = wire_name(call)
        if call.op in POINT_TO_POINT:
            send = next((c for c in column.values() if c.op == "send"), None)
            if send is None or send.peer is None:
                continue
            # The message is there when the receiver has it; a send may return early.
            time = next(exclusive[r][c.event_id] for r, c in column.items() if c.op == "recv")
            ranks: tuple[int, ...] = (send.rank, send.peer)
        else:
            time = max(exclusive[rank][c.event_id] for rank, c in column.items())
            group = groups.get(call.group) if call.group is not None else None
            ranks = group.ranks if group is not None and group.ranks else tuple(sorted(column))
        if time > 0:  # else its ranks' clocks contradict each other, which tells of no link
            kinds[op, call.bytes, len(ranks), link][call.group, ranks].append(time)
    found: list[PeerExcess] = []
    for key in sorted(kinds, key=str):
        members = {k: np.array(v) for k, v in kinds[key].items() if len(v) >= _FEWEST_CALLS}
        if len(members) > 1:
            assert isinstance(key, tuple)
            found += _compare(str(key[0]), int(key[1]), members)
    return found


def pair_direction(peers: Sequence[PeerExcess], near: Collection[int]) -> str | None:
    """Which way these ranks are slow: 'send', 'receive' or 'both', as far as pairs tell; else None.

    One way is told only where pairs of the other way were compared too and are fast.
    """
    pairs = [peer for peer in peers if peer.op == "send"]
    if any(peer.slow and peer.op != "send" for peer in peers):
        return None
    seen = {(end, peer.slow) for peer in pairs for end in (0, 1) if peer.ranks[end] in near}
    told: dict[frozenset[tuple[int, bool]], str] = {
        frozenset({(0, True), (1, False)}): "send",
        frozenset({(0, False), (1, True)}): "receive",
        frozenset({(0, True), (1, True)}): "both",
    }
    return told.get(frozenset(seen))


def _compare(
    op: str, size: int, members: Mapping[tuple[str | None, tuple[int, ...]], Floats]
) -> list[PeerExcess]:
    medians = {place: float(np.median(times)) for place, times in members.items()}
    fastest = min(medians, key=lambda place: (medians[place], place[1]))
    base = medians[fastest]
    shares = {place: 1 - base / value if value > 0 else 0.0 for place, value in medians.items()}
    result = []
    for place, times in sorted(members.items(), key=lambda item: item[0][1]):
        p_value = 1.0
        if place != fastest:
            p_value = min(1.0, (len(members) - 1) * _p_slower(times, members[fastest]))
        slow = p_value < SIGNIFICANCE and shares[place] > _SLOWER
        result.append(
            PeerExcess(
                group=place[0],
                op=op,
                bytes=size,
                ranks=place[1],
                calls=len(times),
                median_ns=medians[place],
                share=shares[place],
                others_share=max(shares.values()),
                slow=slow,
                p_value=p_value,
            )
        )
    # Where everything or nothing differs there is no contrast to learn from.
    return result if any(r.slow for r in result) else []


def _p_slower(slow: Floats, fast: Floats) -> float:
    """One-sided p-value of Mann and Whitney's test, by the normal approximation."""
    ranks = np.argsort(np.argsort(np.concatenate([slow, fast]), kind="stable"), kind="stable") + 1
    n, m = len(slow), len(fast)
    statistic = float(ranks[:n].sum()) - n * (n + 1) / 2
    z = (statistic - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
    return 0.5 * math.erfc(z / math.sqrt(2))
