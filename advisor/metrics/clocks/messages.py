"""Clocks of hosts whose ranks only send and receive: no message ends before its sender began.

Messages one way bound a clock's offset from above, those the other way from below (a pipeline's
activations and gradients). The bounds are as wide as the fastest round trip, so that an offset is
taken only where without one messages would end before they were sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.clocks.prior import MOST_WRONG
from advisor.metrics.collectives.call import TOLERANCE_NS, Call
from advisor.metrics.collectives.groups import RankInfo, hosts_of


def clocks_by_messages(
    columns: Sequence[Mapping[int, Call]], infos: Mapping[int, RankInfo]
) -> dict[int, Clock]:
    """The clock of every rank; empty where all messages agree with the clocks as they are."""
    host_of = hosts_of(infos)
    taken: dict[tuple[object, object], list[int]] = defaultdict(list)
    for column in columns:
        send = next((call for call in column.values() if call.op == "send"), None)
        recv = next((call for call in column.values() if call.op == "recv"), None)
        if send is not None and recv is not None:
            pair = (host_of[send.rank], host_of[recv.rank])
            taken[pair].append(recv.end - send.start)
    least = {pair: int(np.quantile(values, MOST_WRONG)) for pair, values in taken.items()}
    ahead, width = _ahead(least)
    if not any(ahead.values()):
        return {}
    first = ahead.get(host_of[min(infos)], 0)
    return {
        rank: Clock(first - ahead[host], 0.0, width[host] // 2)
        for rank in sorted(infos)
        if (host := host_of[rank]) in ahead
    }


def _ahead(
    least: Mapping[tuple[object, object], int],
) -> tuple[dict[object, int], dict[object, int]]:
    """By how much each host's clock is ahead of the first one's, and how well that is known, ns."""
    ahead: dict[object, int] = {}
    width: dict[object, int] = {}
    for root in sorted({host for pair in least for host in pair}, key=str):
        if root in ahead:
            continue
        ahead[root] = width[root] = 0
        queue = [root]
        while queue:
            known = queue.pop(0)
            for other in sorted({b for a, b in least if a == known} - ahead.keys(), key=str):
                back = least.get((other, known))
                if back is None:
                    continue  # one way only: no bound from below
                low, high = -back, least[known, other]
                possible = low - TOLERANCE_NS <= 0 <= high + TOLERANCE_NS
                ahead[other] = ahead[known] + (0 if possible else (low + high) // 2)
                width[other] = width[known] + (0 if possible else abs(high - low))
                queue.append(other)
    return ahead, width
