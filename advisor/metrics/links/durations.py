"""How long like calls of different groups take: what the slow ones have in common is slow.

Calls of one operation, size, number of ranks and hosts over the same kind of link take equally
long. What a call takes the rank that comes last needs no common clock. Calls that share the rank's
link with others are counted as if they had had it alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.locations import Members
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.schedule import ring_of
from advisor.metrics.timeline.contention import exclusive_ns
from advisor.statistics import Floats, spread
from advisor.vocabulary.operations import POINT_TO_POINT

CALL = 0.10
"""A call's time is off what sizes and rates say by this share (benchmarks/calibration.py: 0.11 in
nccl-tests' tables above 64 KB)."""
FEWEST_CALLS = 3
"""Of which a median leaves out one that is odd; so many pairs, too."""
_SHARED_PATH = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send",
                          "exchange", "broadcast", "reduce"})  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What calls must share to take equally long over healthy links."""

    op: str
    bytes: int
    ranks: int
    hosts: int
    unread: int = 0
    """Of the ranks: where there are some a call takes its time or less, as one may be late."""

    @property
    def family(self) -> tuple[bool, int, int]:
        """Kinds of one family go over the same links: they are no independent evidence."""
        return self.op == "send", self.ranks, self.hosts


@dataclass(frozen=True)
class Durations:
    """One kind's calls by group: logarithm of the typical time (ns) with its error, the standard
    deviation from call to call, the fastest tenth's time over the mean, and the part of the time
    that a link's rate decides. Calls vary by no more than is left where all of a host's ranks share
    its network. ``whole_ns``: the typical time beside whatever shared the link, which makes no
    message arrive later. ``total_ns``: of all of them. ``alone``: the part of it that they would
    take if no calls of other groups shared their hosts' networks."""

    kind: Kind
    groups: tuple[Members, ...]
    log_ns: Floats
    errors: Floats
    spread: Floats
    fastest: Floats
    bandwidth: Floats
    whole_ns: Floats
    total_ns: float
    calls: int
    alone: float = 1.0


def durations(data: Inputs, home: Mapping[int, Home], lost: bool = False) -> list[Durations]:
    """Every kind of call whose links could be told, the one that takes most time first.

    ``lost``: those between hosts too of which ranks were not read.
    """
    times: dict[Kind, dict[Members, list[tuple[float, float, int, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    shares = _shares_of_hosts(data, home)
    for number, column in enumerate(data.columns):
        call = next(iter(column.values()))
        members = members_of(call, column, data)
        name = "send" if members is not None and members.message else wire_name(call)
        if call.messages:
            name = "exchange"
        if members is None or not call.bytes or name not in _SHARED_PATH:
            continue
        hosts = len({home[rank] for rank in members.ranks})
        if not call.is_timed and not (lost and hosts > 1 and lacks_some(members, column)):
            continue
        unread = 0 if members.message or call.is_timed else len(members.ranks) - len(column)
        kind = Kind(name, call.bytes, len(members.ranks), hosts, unread)
        time = _alone(column, data)
        if time > 0:
            share = 1.0 - (call.latency_share or 0.0)
            whole = min(one.end - one.start for one in column.values())
            times[kind][members].append((time, share, whole, whole * shares.get(number, 1.0)))
    found = []
    for kind, by_group in times.items():
        known = {g: np.array(own) for g, own in by_group.items() if len(own) >= FEWEST_CALLS}
        if not known:
            continue
        bandwidth = np.array([float(np.median(own[:, 1])) for own in known.values()])
        times_ns = [own[:, 0] for own in known.values()]
        logs = [np.log(own) for own in times_ns]
        spreads = np.array([spread(own) for own in logs])
        together = [own[:, 3] for own in known.values()]
        found.append(
            Durations(
                kind,
                tuple(known),
                _typical(logs, messages=kind.op == "send" and not data.gloo),
                1.2533 * spreads / np.sqrt([len(own) for own in logs]),
                np.minimum(spreads, [spread(np.log(own)) for own in together]),
                np.maximum(_fastest(times_ns), _fastest(together)),
                bandwidth,
                np.array([float(np.median(own[:, 2])) for own in known.values()]),
                float(sum(own.sum() for own in times_ns)),
                sum(len(own) for own in known.values()),
                float(np.median(np.concatenate([own[:, 3] / own[:, 2] for own in known.values()]))),
            )
        )
    return sorted(found, key=lambda one: -one.total_ns)


def _typical(logs: Sequence[Floats], *, messages: bool) -> Floats:
    """The median, by group. A message that waits or shares its way takes longer: what pairs move in
    their shortest, their links can, as far as the fastest pair usually does. Of gloo's the shortest
    may stay in a socket's buffer."""
    usual = np.array([float(np.median(own)) for own in logs])
    if not messages:
        return usual
    shortest = [float(np.median(np.sort(own)[:FEWEST_CALLS])) for own in logs]
    least: Floats = np.maximum(shortest, usual.min())
    return least


def _fastest(times_ns: Sequence[Floats]) -> Floats:
    """The fastest tenth's time over the mean, by group."""
    return np.array([float(np.quantile(own, 0.1) / own.mean()) for own in times_ns])


def _shares_of_hosts(data: Inputs, home: Mapping[int, Home]) -> dict[int, float]:
    """Of calls between hosts, by their number: the part of their time that each would take alone,
    if the calls of a host's ranks shared its network."""
    spans: dict[Home, list[tuple[int, int, int]]] = defaultdict(list)
    for number, column in enumerate(data.columns):
        hosts: dict[Home, list[Call]] = defaultdict(list)
        for rank, call in column.items():
            hosts[home[rank]].append(call)
        for host, own in hosts.items() if len(hosts) > 1 else ():
            begins = min(call.start + (call.wait or 0) for call in own)
            spans[host].append((number, begins, max(call.end for call in own)))
    shares: dict[int, float] = {}
    for every in spans.values():
        numbers, starts, ends = np.array(every, dtype=np.int64).T
        parts = exclusive_ns(starts, ends) / np.maximum(ends - starts, 1)
        for number, part in zip(numbers.tolist(), parts.tolist(), strict=True):
            shares[number] = min(part, shares.get(number, 1.0))
    return {number: part for number, part in shares.items() if part > 0}


def members_of(call: Call, column: Mapping[int, Call], data: Inputs) -> Members | None:
    """The ranks of a call in their group's order, or a message's two ends."""
    if call.messages:
        return _exchange(column)
    if call.op in POINT_TO_POINT:
        send = next((one for one in column.values() if one.op == "send"), None)
        if send is None or send.peer is None or len(column) < 2:
            return None
        return Members((send.rank, send.peer), message=True)
    group = data.groups.get(call.group) if call.group is not None else None
    ranks = group.ranks if group is not None and group.ranks else tuple(sorted(column))
    if len(ranks) < 2:
        return None
    if data.gloo:
        own = ring_of(wire_name(call), ranks) or ()
        return Members(ranks, edges=frozenset(pairwise([*own, *own[:1]])) or None)
    return Members(ranks, edges=data.rings.get(frozenset(ranks)))


def lacks_some(members: Members, column: Mapping[int, Call]) -> bool:
    """Whether the fewer of a collective's ranks were not read."""
    return not members.message and len(column) < len(members.ranks) < 2 * len(column)


def _exchange(column: Mapping[int, Call]) -> Members | None:
    """Two ranks whose kernels hold what each sends to the other, and nothing else."""
    ranks = tuple(sorted(column))
    held = [{(kind, peer) for kind, peer, _ in call.messages} for call in column.values()]
    whole = all({peer for _, peer in one} <= set(ranks) and len(one) == 2 for one in held)
    if len(ranks) != 2 or not whole:
        return None
    return Members(ranks, edges=frozenset({ranks, ranks[::-1]}))


def _alone(column: Mapping[int, Call], data: Inputs) -> float:
    """What the call takes the rank that comes last, the link to itself, ns."""
    return min(one.end - one.start for one in column.values()) * alone(column, data)


def alone(column: Mapping[int, Call], data: Inputs) -> float:
    """The part of its time that it would take the rank that comes last, the link to itself."""
    rank, last = min(column.items(), key=lambda item: (item[1].end - item[1].start, item[0]))
    own, transfer = data.exclusive[rank][last.event_id], last.transfer or 0
    return own / transfer if transfer > 0 and own > 0 else 1.0


def all_members(found: Iterable[Durations], rings: Sequence[Members]) -> list[Members]:
    """Every set of ranks that is compared."""
    return list(dict.fromkeys([*(g for one in found for g in one.groups), *rings]))
