"""When ranks come to NCCL's rings and leave them, and how sure that is.

What a rank leaves late is the ring's doing (ring_patterns.py); what its clock is off, the same for
all ranks of a host; and how late its kernel ends after its data, the same in every call. The last
two are normal variables. How a rank leaves from call to call, by who came late, is neither: it
needs no clocks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.metrics.clocks.joint import NORMALLY_RIGHT
from advisor.metrics.clocks.offsets import Clock, aligned
from advisor.metrics.clocks.pairs import WAKE_NS
from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.collectives.match import widest
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import FEWEST_CALLS, lacks_some, members_of
from advisor.metrics.links.locations import Members
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import PASSES
from advisor.metrics.timeline.intervals import Int64s
from advisor.metrics.timeline.statistics import Floats, spread

_MODEL_ERRORS = (0.001, 0.003, 0.01, 0.03, 0.1)
"""Ends are off the pattern by this share of the call's time, alike in like calls of all groups."""
_OTHER_ERRORS, _OTHER_RINGS = (0.03, 0.1), 0.1
"""The same where a group's calls do not go the way that the patterns take them to, and the chance
of that: how a slow edge staggers a ring's ends depends on how its last loop is cut, and a tree or a
switch has no such order. Without it one group whose order fits nothing would outweigh that its
calls take four times as long as the others'."""
_BY_NTP_NS = (1e5, 1e6)
"""NTP keeps hosts of one network within tenths of a millisecond, at worst within one (RFC 5905)."""
MOST_RANKS = 512
"""Of a ring: to simulate one costs as the square of their number."""
LONG = 64
"""More ranks make a ring long: what each late start does costs as the cube of their number."""
_MOST_AT_ONCE = 8
"""Ranks of a ring, times when others came, up to which all is weighed in full at once."""
_MOST_KINDS = 3
"""The heaviest: they hold most of the time."""
_MOST_CALLS = 5  # of a kind: those whose ranks came nearest together, and as many others
_MOST_ENDS = 128
"""That are looked at together: of longer rings fewer calls, each of which tells more."""
UNREAD = (-1.0, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3, 1.0)
"""When ranks came that were not read, after the last of the others, in times of the call."""
RESOLUTION_NS = 1e3  # of Kineto's older files


@dataclass(frozen=True)
class Block:
    """Some of a group's calls of one operation and size: what such a call takes, and by call and
    rank the starts against the last, the ends against their mean; the ends' noise, ns. ``near``:
    the first of the calls, whose ranks came nearest together. ``hosts``: by rank, in order.
    ``read``: the places of the ranks that were read; the others, which count as one more host, came
    one of ``unread`` times of the call after the last of these.
    """

    members: Members
    op: str
    bytes: int
    time_ns: float
    starts_ns: Floats
    ends_ns: Floats
    noise_ns: Floats
    near: int
    hosts: Int64s
    read: Int64s
    rings: tuple[tuple[int, ...], ...] | None  # from NCCL's log
    unread: tuple[float, ...]
    long: bool
    """Its ranks' ends are simulated as they came, clocks as they are, and of each host one is read:
    what each late start does costs too much, and clocks that are off shift ends by much less."""


@dataclass(frozen=True)
class Lags:
    """Blocks whose hosts' clocks are wrong together; and what whitens their ranks' ends, one after
    another, for each of the model's errors, with the logarithm of its determinant."""

    blocks: tuple[Block, ...]
    whitening: tuple[tuple[Floats, float], ...]
    first_look: Lags | None = None
    """Of long rings, and where ranks were not read, a few calls: by these are chosen the locations,
    and the times that such ranks came, that are weighed by all calls."""

    @property
    def long(self) -> bool:
        """Whether some ring is."""
        return any(one.long for one in self.blocks)

    @property
    def unread(self) -> tuple[float, ...]:
        """When ranks that were not read may have come."""
        return max((one.unread for one in self.blocks), key=len)

    def came(self, unread: Sequence[float]) -> Lags:
        """The same for these times only."""
        own = [replace(one, unread=tuple(unread) if one.unread else ()) for one in self.blocks]
        return replace(self, blocks=tuple(own))

    @property
    def slices(self) -> list[slice]:
        """Where each block's ranks are."""
        stops = np.cumsum([len(one.noise_ns) for one in self.blocks]).tolist()
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]


def ring_lags(data: Inputs, home: Mapping[int, Home], lost: bool = False) -> list[Lags]:
    """The ends of every group's rings of at least three ranks, of the kinds that take most time.

    ``lost``: those of which ranks were not read too.
    """
    groups: dict[Members, dict[tuple[str, int], list[Mapping[int, Call]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for column in data.columns:
        call = next(iter(column.values()))
        members = members_of(call, column, data)
        if (
            members is not None
            and not members.message
            and wire_name(call) in PASSES
            and 2 < len(members.ranks) <= MOST_RANKS
            and call.bytes
            and (
                (call.t_is == "matched" and set(members.ranks) == column.keys())
                or (lost and len(members.ranks) <= LONG and lacks_some(members, column))
            )
        ):
            groups[members][wire_name(call), call.bytes].append(column)
    bundles: dict[frozenset[Home], list[Block]] = defaultdict(list)
    for members, kinds in groups.items():
        enough = {
            k: alike for k, all_ in kinds.items() if len(alike := _alike(all_)) >= FEWEST_CALLS
        }
        heaviest = sorted(enough, key=lambda kind: (-kind[1] * len(enough[kind]), kind))
        # Smaller calls of many ranks go by trees.
        for kind in heaviest[: 1 if len(members.ranks) > LONG else _MOST_KINDS]:
            block = _block(members, kind, enough[kind], data, home)
            if len(block.noise_ns) <= _MOST_ENDS:
                bundles[frozenset(home[rank] for rank in members.ranks)].append(block)
    return [_lags(own, data, home) for own in bundles.values()]


def _alike(columns: Sequence[Mapping[int, Call]]) -> list[Mapping[int, Call]]:
    """The calls of which the same ranks, and most, were read."""
    read = set(widest(columns))
    return [one for one in columns if one.keys() >= read]


def _lags(blocks: Sequence[Block], data: Inputs, home: Mapping[int, Home]) -> Lags:
    """Blocks of the same hosts, the longest calls' as far as they can be looked at together."""
    chosen: list[Block] = []
    for block in sorted(blocks, key=lambda one: -one.time_ns):
        if sum(len(one.noise_ns) for one in (*chosen, block)) <= _MOST_ENDS:
            chosen.append(block)
    longest = max(chosen, key=lambda one: len(one.noise_ns) * max(1, len(one.unread)))
    first_look = None
    if len(longest.noise_ns) * max(1, len(longest.unread)) > _MOST_AT_ONCE:
        few = (_nearest(longest),)
        first_look = Lags(few, _whitening(few, data, home))
    return Lags(tuple(chosen), _whitening(chosen, data, home), first_look)


def _nearest(block: Block) -> Block:
    """The same by the calls whose ranks came nearest together, and with the clocks as they are."""
    few = min(block.near, FEWEST_CALLS)
    noise = block.noise_ns * math.sqrt(block.near / few)
    if block.long:  # as if all had come at once: then hosts only turn the ring
        return replace(block, starts_ns=np.zeros_like(block.starts_ns))
    return replace(
        block,
        starts_ns=block.starts_ns[:few], ends_ns=block.ends_ns[:few], noise_ns=noise, near=few,
        hosts=(~np.isin(np.arange(len(block.hosts)), block.read)).astype(np.intp),
    )  # fmt: skip


def _whitening(
    chosen: Sequence[Block], data: Inputs, home: Mapping[int, Home]
) -> tuple[tuple[Floats, float], ...]:
    ranks = np.concatenate([np.array(one.members.ranks)[one.read] for one in chosen])
    hosts = {host: number for number, host in enumerate(dict.fromkeys(home[r] for r in ranks))}
    host_of = np.array([hosts[home[rank]] for rank in ranks])
    shared = WAKE_NS**2 * np.equal.outer(ranks, ranks)
    same_host = np.equal.outer(host_of, host_of)
    noise = np.concatenate([one.noise_ns for one in chosen])
    sizes = [len(one.noise_ns) for one in chosen]
    time_of = np.repeat([one.time_ns for one in chosen], sizes)
    kinds = [(one.op, one.bytes, len(one.hosts)) for one in chosen]
    kind_of = np.repeat([kinds.index(one) for one in kinds], sizes)
    place_of = np.concatenate([one.read for one in chosen])
    alike = np.equal.outer(kind_of, kind_of) & np.equal.outer(place_of, place_of)
    off_pattern = alike * np.outer(time_of, time_of)
    known = [data.clocks[rank] for rank in ranks if rank in data.clocks]
    clocks = _clock_errors(known, max(one.time_ns for one in chosen))
    errors = [
        *((share, off_pattern, (1 - _OTHER_RINGS) / len(_MODEL_ERRORS)) for share in _MODEL_ERRORS),
        *((share, np.diag(time_of**2), _OTHER_RINGS / len(_OTHER_ERRORS))
          for share in _OTHER_ERRORS),
    ]  # fmt: skip
    whitening = []
    for error, pattern, likely in errors:
        own = np.diag(noise**2 + RESOLUTION_NS**2) + error**2 * pattern
        for chance, clock in clocks:
            lower = np.linalg.cholesky(shared + clock**2 * same_host + own)
            scale = -float(np.log(np.diag(lower)).sum()) + math.log(chance * likely)
            whitening.append((np.linalg.inv(lower), scale))
    return tuple(whitening)


def _clock_errors(clocks: Sequence[Clock], longest_ns: float) -> list[tuple[float, float]]:
    """How well hosts' clocks are known, ns, with the chance of each: as well as they should be
    kept, or only as the calls tell, or in between, or as NTP keeps many.

    That calls fit clocks that are right does not make these right: a constant of some 100 us is
    within what rings stagger by, until like calls of several sizes are compared. Off by more than
    the longest call, one would show: ranks would leave before others came.
    """
    sure = max((clock.residual_ns / 2 for clock in clocks), default=0.0)
    least = min(max((clock.doubt_ns for clock in clocks), default=0.0), longest_ns)
    if least <= sure:
        return [(1.0, sure)]
    between = math.sqrt(max(sure, RESOLUTION_NS) * least)
    others = [between, least, *(error for error in _BY_NTP_NS if least < error < longest_ns)]
    rest = (1 - NORMALLY_RIGHT) / len(others)
    return [(NORMALLY_RIGHT, sure), *((rest, error) for error in others)]


def _block(
    members: Members,
    kind: tuple[str, int],
    columns: Sequence[Mapping[int, Call]],
    data: Inputs,
    home: Mapping[int, Home],
) -> Block:
    """Of the calls whose ranks came nearest together, and of others that span how they came."""
    common = set.intersection(*({*one} for one in columns))
    read = np.array([place for place, rank in enumerate(members.ranks) if rank in common])
    ranks = [members.ranks[place] for place in read]
    when = np.array(
        [
            [[aligned(t, r, data.clocks) for t in (c[r].start, c[r].end)] for r in ranks]
            for c in columns
        ],
        dtype=np.int64,
    )
    starts = (when[:, :, 0] - when[:, :, 0].max(axis=1, keepdims=True)).astype(np.float64)
    came = np.zeros((len(columns), len(members.ranks)))
    came[:, read] = starts
    whole = len(read) == len(members.ranks)
    ends = (when[:, :, 1] - when[:, :, 1].max(axis=1, keepdims=True)).astype(np.float64)
    takes = np.array([min(x.end - x.start for x in c.values()) for c in columns], dtype=np.float64)
    apart = -starts.min(axis=1)
    if not whole:
        apart += takes  # whoever was not read came early where that is short
    order = apart.argsort(kind="stable")
    most = min(_MOST_CALLS, max(FEWEST_CALLS, _MOST_ENDS // len(ranks)))
    near, others = order[:most], order[most:]
    spanning = np.linspace(0, len(others), min(most, len(others)), endpoint=False)
    chosen = np.concatenate([near, others[spanning.astype(np.intp)]])
    known = list(dict.fromkeys(home[rank] for rank in ranks))
    hosts = np.full(len(members.ranks), len(known))
    hosts[read] = [known.index(home[rank]) for rank in ranks]
    if long := len(members.ranks) > LONG:
        chosen, read = near, np.unique(hosts, return_index=True)[1]
        ends, hosts = ends[:, read], np.zeros_like(hosts)
    late = ends[chosen] - ends[chosen].mean(axis=1, keepdims=True)
    return Block(
        members,
        *kind,
        max(float(np.median(takes[near])), 1.0),
        came[chosen],
        late,
        np.array([1.2533 * spread(own) / np.sqrt(len(near)) for own in late[: len(near)].T]),
        len(near),
        hosts,
        read,
        data.ring_orders.get(frozenset(members.ranks)),
        () if whole else UNREAD,
        long,
    )
