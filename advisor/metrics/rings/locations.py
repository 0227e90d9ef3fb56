"""What stands for each rank's host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

Home = Hashable


def homes_of(ranks: Iterable[int], named: Mapping[int, str]) -> dict[int, str]:
    """What stands for each rank's host, by those that are known; an unknown one for itself.

    Where the known hosts hold blocks of ranks, a rank that was not read is of its block's host;
    more than half of some host's ranks were read.
    """
    ranks = {*ranks}
    most = max(Counter(named.values()).values(), default=1)
    fitting = [
        (len(ranks) % block > 0, block, dict(blocks))
        for block in range(most, min(2 * most, len(ranks)) + 1)
        if len(blocks := {(rank // block, host) for rank, host in named.items()})
        == len({host for _, host in blocks})
        == len(dict(blocks))
    ]
    # Every host may lack a rank: a size that divides all ranks comes first.
    _, block, host_of = min(fitting, key=lambda one: one[:2], default=(False, most, {}))
    return {r: named.get(r) or host_of.get(r // block) or f"rank {r}" for r in sorted(ranks)}
