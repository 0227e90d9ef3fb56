"""Process groups that a recording does not name, told by who leaves collectives together.

Each group has a stream of its own. Ranks of one group end its kernels within microseconds of each
other, call after call, whatever their clocks are off: the difference of their ends stays the same.
Ranks of other groups end theirs when their own peers come. Of all meshes that the ranks may form
(groups of equal size whose members lie equally far apart) the one is taken whose members always
differ by less than those of different groups do. What a reduce-scatter left to a rank is reduced
further only with the ranks that hold the same piece.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group
from advisor.statistics import Floats
from advisor.vocabulary.operations import POINT_TO_POINT

_FEWEST_ALIKE = 3
"""Of which a median leaves out one that is odd."""
_MOST_CALLS = 512
_CLEARLY = 3.0
"""Times as much ranks of two groups differ at least as those of one at most."""


def groups_by_ends(calls: Mapping[int, Sequence[Call]], world: int) -> dict[str, Group]:
    """Give calls without a group the one that their ends tell; the groups by name.

    A stream on which ranks do not all call the same is left as it is, and so is one whose ends fit
    no mesh of ``world`` ranks.
    """
    streams: dict[int, dict[int, list[Call]]] = defaultdict(lambda: defaultdict(list))
    for rank, own in calls.items():
        for call in own:
            if call.group is None and call.stream is not None and call.op not in POINT_TO_POINT:
                streams[call.stream][rank].append(call)
    found: dict[str, Group] = {}
    unfit = []
    pieces: dict[int | None, tuple[tuple[int, ...], ...]] = {}
    for by_rank in streams.values():
        if len(by_rank) < len(calls):
            continue
        made = [call for own in by_rank.values() for call in own]
        groups = _mesh(_apart(by_rank), sorted(by_rank), world)
        if groups is None:
            unfit.append((by_rank, made))
            continue
        found |= _assigned(by_rank, groups)
        scattered = {call.out_elements for call in made if call.op == "reduce_scatter"}
        pieces |= dict.fromkeys(scattered - {None}, tuple(groups))
    for by_rank, made in unfit:
        held = {pieces.get(call.in_elements) if call.op == "all_reduce" else None for call in made}
        shards = held.pop() if len(held) == 1 else None
        found |= _assigned(by_rank, list(zip(*shards or (), strict=True)))
    return found


def _assigned(
    by_rank: Mapping[int, Sequence[Call]], groups: Sequence[tuple[int, ...]]
) -> dict[str, Group]:
    """Give calls the group of their rank; the groups by name."""
    found = {}
    for ranks in groups:
        group = Group(f"ranks {', '.join(map(str, ranks))}", None, ranks, len(ranks))
        found[group.name] = group
        for call in (call for rank in ranks for call in by_rank.get(rank, ())):
            call.group, call.group_size = group.name, len(ranks)
            call.set_size()
    return found


def _apart(by_rank: Mapping[int, Sequence[Call]]) -> Floats | None:
    """By how much the difference of two ranks' ends varies over like calls, ns; None where they do
    not make the same calls in the same steps."""
    rows = {rank: _in_steps(own) for rank, own in sorted(by_rank.items())}
    steps = set.intersection(*(set(own) for own in rows.values()))
    kinds: dict[tuple[str, int | None], list[list[int]]] = defaultdict(list)
    for step in sorted(steps):
        columns = [own[step] for own in rows.values()]
        if len({len(own) for own in columns}) > 1:
            return None
        for column in zip(*columns, strict=True):
            if len({(call.op, call.in_elements) for call in column}) > 1:
                return None
            kinds[column[0].op, column[0].in_elements].append([call.end for call in column])
    parts = []
    for own in kinds.values():
        if len(own) >= _FEWEST_ALIKE:
            ends = np.array(own[:_MOST_CALLS], dtype=np.int64)
            since = (ends - ends[:, :1]).astype(np.float64)
            parts.append(since - np.median(since, axis=0))
    if not parts:
        return None
    ends_ns = np.concatenate(parts)
    return np.array([np.median(np.abs(ends_ns - own[:, None]), axis=0) for own in ends_ns.T])


def _in_steps(calls: Sequence[Call]) -> dict[int, list[Call]]:
    result: dict[int, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda one: one.start):
        if call.step is not None:
            result[call.step].append(call)
    return result


def _mesh(apart: Floats | None, ranks: Sequence[int], world: int) -> list[tuple[int, ...]] | None:
    """The largest groups of a mesh that are clearly nearer together than they are to others."""
    if apart is None:
        return None
    for groups in _meshes(world):
        number = {rank: place for place, group in enumerate(groups) for rank in group}
        if not set(ranks) <= number.keys():
            continue
        own = np.array([number[rank] for rank in ranks])
        within = own[:, None] == own[None]
        between = ~within
        np.fill_diagonal(within, False)
        known = within.any() and between.any()
        if known and _CLEARLY * float(apart[within].max()) < float(apart[between].min()):
            return groups
    return None


def _meshes(world: int) -> Iterator[list[tuple[int, ...]]]:
    """Equal groups of ranks that lie equally far apart, the largest groups first."""
    for size in range(world // 2, 1, -1):
        if world % size:
            continue
        for stride in range(1, world // size + 1):
            if (world // size) % stride == 0:
                block = size * stride
                yield [
                    tuple(range(first + inner, first + inner + block, stride))
                    for first in range(0, world, block)
                    for inner in range(stride)
                ]
