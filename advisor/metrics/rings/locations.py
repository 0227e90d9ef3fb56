"""What stands for each rank's host."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping

from advisor.vocabulary.words import named_ranks

Home = Hashable


def homes_of(ranks: Iterable[int], named: Mapping[int, str]) -> dict[int, str]:
    """What stands for each rank's host, by those that are known.

    Where the known hosts hold blocks of ranks, a rank that was not read is of its block's host;
    more than half of some host's ranks were read. A block without a known host is one, called by
    its ranks ("ranks 4-7"); where blocks do not divide the ranks, each stands for itself.
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
    odd, block, host_of = min(fitting, key=lambda one: one[:2], default=(True, 1, {}))
    found = {rank: named.get(rank) or host_of.get(rank // block) for rank in sorted(ranks)}
    beside: dict[int, list[int]] = defaultdict(list)
    for rank, host in found.items():
        if host is None:
            beside[rank if odd else rank // block].append(rank)
    nameless = {rank: named_ranks(own) for own in beside.values() for rank in own}
    return {rank: host or nameless[rank] for rank, host in found.items()}


def is_nameless(home: Home) -> bool:
    """Whether it is called by its ranks, as :func:`homes_of` does: no host's name has a blank."""
    return str(home).startswith(("rank ", "ranks "))
