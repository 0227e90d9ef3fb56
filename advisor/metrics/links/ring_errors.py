"""How far rings' ends are off what is said of them: by clocks, by noise, by the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.metrics.clocks.joint import NORMALLY_RIGHT
from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.clocks.pairs import HOST_WAKE_NS, RANGE_NS, WAKE_NS
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.ring_blocks import RESOLUTION_NS, Block
from advisor.metrics.rings.locations import Home
from advisor.metrics.timeline.intervals import Bools
from advisor.metrics.timeline.statistics import Floats

_MODEL_ERRORS = (0.001, 0.003, 0.01, 0.03, 0.1)
"""Ends are off the pattern by this share of the call's time, alike in like calls of all groups."""
_OTHER_ERRORS, _OTHER_RINGS = (0.03, 0.1), 0.1
"""The same where a group's calls do not go the way that the patterns take them to, and the chance
of that: how a slow edge staggers a ring's ends depends on how its last loop is cut, and a tree or a
switch has no such order. Without it one group whose order fits nothing would outweigh that its
calls take four times as long as the others'."""
_BY_NTP_NS = (1e5, 1e6)
"""NTP keeps hosts of one network within tenths of a millisecond, at worst within one (RFC 5905)."""
_AS_RECORDED = ((1e4, 0.5), (1e5, 0.45), (3e5, 0.05))
"""How far off clocks are that nobody found to be off, ns (standard deviation), with its chance: by
PTP some us, by NTP a tenth of a millisecond, and at worst one, which is three of these."""


def freed(
    clocks: Mapping[int, Clock], home: Mapping[int, Home], free: frozenset[Home]
) -> dict[int, Clock]:
    """Clocks as recorded but for their drift; and those that are free as far off as estimated,
    beside the middle one of the others."""
    others = sorted(one.offset_ns for rank, one in clocks.items() if home[rank] not in free)
    base = others[len(others) // 2] if others else 0
    return {
        rank: one._replace(offset_ns=one.offset_ns - base)
        if home[rank] in free
        else one._replace(offset_ns=0, residual_ns=round(HOST_WAKE_NS))
        for rank, one in clocks.items()
    }


def whitening(
    chosen: Sequence[Block],
    data: Inputs,
    home: Mapping[int, Home],
    free: frozenset[Home] | None,
) -> tuple[tuple[tuple[Floats, float], ...], tuple[float, ...]]:
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
    longest = max(one.time_ns for one in chosen)
    if free is None:
        known = [data.clocks[rank] for rank in ranks if rank in data.clocks]
        clocks = [(math.log(p), by**2 * same_host) for p, by in _clock_errors(known, longest)]
        errors = [
            *((by, off_pattern, (1 - _OTHER_RINGS) / len(_MODEL_ERRORS)) for by in _MODEL_ERRORS),
            *((by, np.diag(time_of**2), _OTHER_RINGS / len(_OTHER_ERRORS)) for by in _OTHER_ERRORS),
        ]
    else:
        block_of = np.repeat(np.arange(len(sizes)), sizes)
        centred = np.eye(len(ranks)) - np.equal.outer(block_of, block_of) / np.repeat(sizes, sizes)
        clocks = _freed_errors([home[r] for r in ranks], free, same_host, longest, centred)
        errors = [(by, off_pattern, 1.0) for by in _MODEL_ERRORS]
    wake_ns = HOST_WAKE_NS if data.gloo else RESOLUTION_NS
    found = []
    for error, pattern, likely in errors:
        own = np.diag(noise**2 + wake_ns**2) + error**2 * pattern
        for chance, clock in clocks:
            lower = np.linalg.cholesky(shared + clock + own)
            scale = -float(np.log(np.diag(lower)).sum()) + chance + math.log(likely)
            found.append((np.linalg.inv(lower), scale))
    told = [error for error, *_ in errors for _ in clocks] if free is not None else []
    return tuple(found), tuple(told)


def _freed_errors(
    own: Sequence[Home],
    free: frozenset[Home],
    same_host: Bools,
    longest_ns: float,
    centred: Floats,
) -> list[tuple[float, Floats]]:
    """How far off hosts' clocks are, as covariances of their ranks' ends with the logarithm of the
    chance of each. A free clock is as likely off by one time as by any other of ``RANGE_NS``, so
    that the calls that it is told from hold but a small part of that. Ends are told against their
    block's mean (``centred`` takes it off), which a free clock moves for the others' ranks."""
    of_free = np.array([one in free for one in own])
    moved = centred @ (same_host * np.outer(of_free, of_free)) @ centred.T * longest_ns**2
    still = same_host * ~np.outer(of_free, of_free)
    # Where all are free, one is as it is, and the others beside it.
    count = len(free & {*own}) - (free >= {*own})
    occam = count * math.log(longest_ns / RANGE_NS)
    kept = [(by, p) for by, p in _AS_RECORDED if by < longest_ns and not of_free.all()]
    return [(math.log(p) + occam, moved + by**2 * still) for by, p in kept or _AS_RECORDED[:1]]


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
