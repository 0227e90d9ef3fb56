"""One offset per host from all that joins two hosts: ends of collectives, sends and receives.

A collective sets its ranks free together but for a stagger that grows with the time it takes, and
no rank leaves one before the last has come. A receive ends after its send. So two hosts' clocks
differ by what remains of the ends' difference in a call that takes no time, within those bounds.
Offsets are added up along the best known pairs of hosts, and weighed against none at all: hosts
are normally synchronised, and a clock that is off can be off by anything.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count

import numpy as np

from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.clocks.pairs import (
    HOST_WAKE_NS,
    RANGE_NS,
    SIGNIFICANT,
    WAKE_NS,
    Offset,
    Pair,
    middle_of,
    offset_of,
)
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import RankInfo, hosts_of
from advisor.vocabulary.operations import POINT_TO_POINT, SYNCHRONISING

Node = object
"""A host, or (``_RANK``, rank) where its clock is not its host's."""
_RANK = "own clock"


def joint_clocks(
    columns: Sequence[Mapping[int, Call]], infos: Mapping[int, RankInfo], *, on_host: bool = False
) -> dict[int, Clock]:
    """The clock of every rank that shares a call with another; the lowest rank's is the reference.

    ``on_host``: calls are made by hosts' threads, whose sends may end only when somebody asks.
    """
    usable = [column for column in columns if _joins(column)]
    if not usable:
        return {}
    wake_ns = HOST_WAKE_NS if on_host else WAKE_NS
    node = _nodes(usable, infos, wake_ns)
    origin = min(call.end for column in usable for call in column.values())
    pairs = _pairs(usable, node, on_host=on_host)
    offsets = _settled(_summed(pairs, origin, sorted(set(node.values()), key=str)), wake_ns)
    first = node[min(node)]
    reference = offsets[first]
    return {
        rank: Clock(
            offset_ns=round(offsets[own].value - reference.value),
            drift_ppm=offsets[own].drift_ppm - reference.drift_ppm,
            doubt_ns=offsets[own].doubt,
            residual_ns=0 if own == first else round(2 * math.hypot(
                offsets[own].error, reference.error)),
            origin_ns=origin,
        )
        for rank, own in sorted(node.items())
    }  # fmt: skip


def _joins(column: Mapping[int, Call]) -> bool:
    op = next(iter(column.values())).op
    return len(column) > 1 and (op in SYNCHRONISING or op in POINT_TO_POINT)


def _nodes(
    columns: Sequence[Mapping[int, Call]], infos: Mapping[int, RankInfo], wake_ns: float
) -> dict[int, Node]:
    """Each rank's clock: its host's, unless most of its host's ranks come after it left calls.

    Of two whose clocks differ neither is told to be off by their own calls, but by those of either
    with others.
    """
    host_of = hosts_of(infos)
    late: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
    for column in columns:
        shortest = min(call.end - call.start for call in column.values())
        mates: dict[Node, list[int]] = defaultdict(list)
        for rank in sorted(column):
            mates[host_of[rank]].append(rank)
        if next(iter(column.values())).op in POINT_TO_POINT:
            continue
        for ranks in mates.values():
            if len(ranks) > 1:
                middle = middle_of(column[rank].end for rank in ranks)
                late[*ranks].append([shortest, *(column[rank].end - middle for rank in ranks)])
    ends = {rank: call.end for column in columns for rank, call in column.items()}
    alike = {rank: frozenset({rank}) for rank in ends}  # those that read one clock
    for own, found in late.items():
        takes, *apart = np.median(np.array(found, dtype=np.int64), axis=0)
        near = [by <= takes + SIGNIFICANT * wake_ns for by in np.abs(apart)]
        joined = frozenset[int]().union(*(alike[rank] for rank in compress(own, near)))
        alike |= dict.fromkeys(joined, joined)
    node: dict[int, Node] = {rank: host_of[rank] for rank in ends}
    for own in late:
        # Of clocks that as many read the later is set: what lost its base time counts from 1970.
        hosts_own = alike[max(own, key=lambda one: (len(alike[one]), ends[one]))]
        node |= {rank: (_RANK, rank) for rank in own if rank not in hosts_own}
    return node


def _is_rank(node: Node) -> bool:
    return isinstance(node, tuple) and node[0] == _RANK


def _pairs(
    columns: Iterable[Mapping[int, Call]], node: Mapping[int, Node], *, on_host: bool
) -> dict[tuple[Node, Node], Pair]:
    """Pairs of nodes that share calls; of a collective each node with the first one."""
    found: dict[tuple[Node, Node], Pair] = defaultdict(
        lambda: Pair(HOST_WAKE_NS if on_host else WAKE_NS)
    )
    for column in columns:
        own: dict[Node, list[Call]] = defaultdict(list)
        for rank in sorted(column, key=lambda one: (str(node[one]), one)):
            own[node[rank]].append(column[rank])
        if len(own) < 2:
            continue
        first = next(iter(column.values()))
        (one, base), *others = own.items()
        if first.op in POINT_TO_POINT:
            ((other, theirs),) = others
            pair = found[one, other]
            sends = base[0].op == "send"
            send, received = (base[0], theirs[0]) if sends else (theirs[0], base[0])
            late = received.end - (send.start if on_host else send.end)
            bounds = pair.least if sends else pair.most
            bounds.append((-late if sends else late, base[0].end))
            continue
        takes = min(call.end - call.start for call in column.values())
        for other, theirs in others:
            pair = found[one, other]
            pair.apart.append(middle_of(c.end for c in base) - middle_of(c.end for c in theirs))
            pair.takes.append(takes)
            pair.ops.append(first.wire_op or first.op)
            pair.when.append(base[0].end)
            pair.longer.append(
                middle_of(c.end - c.start for c in base)
                - middle_of(c.end - c.start for c in theirs)
            )
            least = max(c.start for c in base) - min(c.end for c in theirs)
            most = min(c.end for c in base) - max(c.start for c in theirs)
            pair.least.append((least, base[0].end))
            pair.most.append((most, base[0].end))
    return found


def _summed(
    pairs: Mapping[tuple[Node, Node], Pair], origin: int, nodes: Sequence[Node]
) -> dict[Node, Offset]:
    """Every node's offset by the best known way from the first one it can be reached from."""
    near: dict[Node, list[tuple[Node, Offset, int]]] = defaultdict(list)
    for (one, other), pair in pairs.items():
        offset = offset_of(pair, origin)
        near[one].append((other, offset, 1))
        near[other].append((one, offset, -1))
    found: dict[Node, Offset] = {}
    ways = count()  # of two that are known as well the first is taken: offsets have no order
    for root in nodes:
        queue: list[tuple[float, str, int, Node, Offset]] = [
            (0.0, str(root), next(ways), root, Offset())
        ]
        while queue:
            *_, own, offset = heapq.heappop(queue)
            if own in found:
                continue
            found[own] = offset
            for other, step, sign in near[own]:
                if other not in found:
                    on = offset.plus(step, sign)
                    heapq.heappush(queue, (on.error, str(other), next(ways), other, on))
    return found


def _settled(offsets: Mapping[Node, Offset], wake_ns: float) -> dict[Node, Offset]:
    """Offsets against the middle clock, 0 where that is likelier than any other and possible.

    What stagger may hide counts as error only where some host's clock is off: then any may be. A
    rank that has a clock of its own (a file that lost its base time) says nothing of the hosts'.
    """
    first = sorted(offsets, key=lambda node: (offsets[node].value, str(node)))
    middle = first[(len(first) - 1) // 2]
    base = offsets[middle]
    away = {node: base.plus(one, -1) for node, one in offsets.items()}
    off: dict[Node, float] = {}
    for _ in range(2):
        # Once a host's clock is off, nobody keeps them alike: others are as far off as not.
        reach = max((abs(by) for own, by in off.items() if not _is_rank(own)), default=RANGE_NS)
        off |= {
            node: -one.value
            for node, one in away.items()
            if node != middle
            and not (one.low <= 0 <= one.high and _likelier_none(one, reach, wake_ns))
        }
    unset = any(not _is_rank(node) for node in off)
    result = {}
    for node, one in away.items():
        error = (one.error if unset or node in off else one.noise) if node != middle else 0.0
        result[node] = offsets[node]._replace(
            value=off.get(node, 0.0),
            error=error,
            # Not NTP's millisecond: a clock that nobody keeps may be off by all that stagger hides.
            doubt=offsets[node].error,
            drift_ppm=offsets[node].drift_ppm - base.drift_ppm,
        )
    return result


def _likelier_none(seen: Offset, reach: float, wake_ns: float) -> bool:
    """Whether a clock that seems off by so much, of ``reach`` either way, is likelier right: clocks
    that nothing contradicts are as often right as not."""
    error = max(seen.error, 0.5 * wake_ns)
    wide = 2 * reach / (error * math.sqrt(2 * math.pi))
    return 0.5 * (seen.value / error) ** 2 < math.log(max(wide, 1.0))
