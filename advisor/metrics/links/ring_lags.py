"""When ranks come to rings and leave them, and how sure that is.

What a rank leaves late is the ring's doing (ring_patterns.py); what its clock is off, the same for
all ranks of a host; and how late its kernel ends after its data, the same in every call. The last
two are normal variables. How a rank leaves from call to call, by who came late, is neither: it
needs no clocks.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.collectives.match import widest
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import CALL, FEWEST_CALLS, alone, lacks_some, members_of
from advisor.metrics.links.locations import MOST_RANKS, Members
from advisor.metrics.links.ring_blocks import LONG, MOST_ENDS, Block, Lags, block_of
from advisor.metrics.links.ring_errors import freed, whitening
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import PASSES

_MOST_AT_ONCE = 8
"""Ranks of a ring, times when others came, up to which all is weighed in full at once."""
_MOST_KINDS = 3
"""The heaviest: they hold most of the time."""


class Kind(NamedTuple):
    """Calls of one group, operation and size; ``fixed_ns``: what each takes whatever its size."""

    members: Members
    kind: tuple[str, int]
    columns: Sequence[Mapping[int, Call]]
    fixed_ns: float


def ring_kinds(data: Inputs, lost: bool = False) -> list[Kind]:
    """Of every group's rings of at least three ranks the kinds of calls that take most time.

    Ranks leave a call that shares its links by what the others leave of these. ``lost``: those of
    which ranks were not read too.
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
            and 2 < len(members.ranks) <= (LONG if data.gloo else MOST_RANKS)
            and call.bytes
            and (data.gloo or alone(column, data) > 1 - CALL)
            and (
                (call.t_is == "matched" and set(members.ranks) == column.keys())
                or (
                    (lost or call.is_timed)
                    and len(members.ranks) <= LONG
                    and lacks_some(members, column)
                )
            )
        ):
            groups[members][wire_name(call), call.bytes].append(column)
    found = []
    for members, kinds in groups.items():
        enough = {
            k: alike for k, all_ in kinds.items() if len(alike := _alike(all_)) >= FEWEST_CALLS
        }
        heaviest = sorted(enough, key=lambda kind: (-kind[1] * len(enough[kind]), kind))
        # Smaller calls of many ranks go by trees.
        for kind in heaviest[: 1 if len(members.ranks) > LONG else _MOST_KINDS]:
            fixed_ns = _fixed_ns(kind, enough) if data.gloo else 0.0
            found.append(Kind(members, kind, enough[kind], fixed_ns))
    return found


def ring_lags(
    kinds: Sequence[Kind],
    data: Inputs,
    home: Mapping[int, Home],
    free: frozenset[Home] | None = None,
) -> list[Lags]:
    """The ends of these rings.

    ``free``: the hosts whose clocks may be anything, while the others' are as recorded; without it
    all are as estimated.
    """
    if free is not None:
        data = replace(data, clocks=freed(data.clocks, home, free))
    bundles: dict[frozenset[Home], list[Block]] = defaultdict(list)
    for members, kind, columns, fixed_ns in kinds:
        block = block_of(members, kind, columns, data, home, free, fixed_ns)
        if len(block.noise_ns) <= MOST_ENDS:
            bundles[frozenset(home[rank] for rank in members.ranks)].append(block)
    return [_lags(own, data, home, free) for own in bundles.values()]


def _fixed_ns(
    kind: tuple[str, int], kinds: Mapping[tuple[str, int], Sequence[Mapping[int, Call]]]
) -> float:
    """What such a call takes whatever its size: where the line through its fastest's time and that
    of the smallest of its operation begins."""
    least = min(own for own in kinds if own[0] == kind[0])
    if least == kind:
        return 0.0
    few, all_ = (
        min(c.end - c.start for one in kinds[own] for c in one.values()) for own in (least, kind)
    )
    part = least[1] / kind[1]
    return max(float(few - part * all_) / (1 - part), 0.0)


def _alike(columns: Sequence[Mapping[int, Call]]) -> list[Mapping[int, Call]]:
    """The calls of which the same ranks, and most, were read."""
    read = set(widest(columns))
    return [one for one in columns if one.keys() >= read]


def _lags(
    blocks: Sequence[Block],
    data: Inputs,
    home: Mapping[int, Home],
    free: frozenset[Home] | None,
) -> Lags:
    """Blocks of the same hosts, the longest calls' as far as they can be looked at together."""
    chosen: list[Block] = []
    for block in sorted(blocks, key=lambda one: -one.time_ns):
        if sum(len(one.noise_ns) for one in (*chosen, block)) <= MOST_ENDS:
            chosen.append(block)
    longest = max(chosen, key=lambda one: len(one.noise_ns) * max(1, len(one.unread)))
    first_look = None
    if len(longest.noise_ns) * max(1, len(longest.unread)) > _MOST_AT_ONCE:
        few = (_nearest(longest),)
        first_look = Lags(few, *whitening(few, data, home, free))
    return Lags(tuple(chosen), *whitening(chosen, data, home, free), first_look)


def _nearest(block: Block) -> Block:
    """The same by the calls whose ranks came nearest together, and with the clocks as they are."""
    few = min(block.near, FEWEST_CALLS)
    noise = block.noise_ns * math.sqrt(block.near / few)
    if block.long:  # as if all had come at once: then hosts only turn the ring
        return replace(block, starts_ns=np.zeros_like(block.starts_ns))
    return replace(
        block,
        starts_ns=block.starts_ns[:few], ends_ns=block.ends_ns[:few], noise_ns=noise,
        near=few, count=None,
        hosts=(~np.isin(np.arange(len(block.hosts)), block.read)).astype(np.intp),
    )  # fmt: skip
