"""How far rings' ends are off what is said of them: by clocks, by noise, by the model."""

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.clocks.pairs import HOST_WAKE_NS, MODEL_ERRORS, RANGE_NS, WAKE_NS
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.ring_blocks import RESOLUTION_NS, Block
from advisor.metrics.rings.locations import Home
from advisor.metrics.timeline.intervals import Bools
from advisor.statistics import Floats

_KEPT = ((1e4, 0.5), (1e5, 0.45), (3e5, 0.05))
"""How far off clocks are that nobody found to be off, ns (standard deviation), with its chance: PTP
keeps hosts within some us, NTP those of one network within tenths of a millisecond and at worst
within one (RFC 5905), which is three of these."""


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
    patterns: tuple[Floats, ...] = (off_pattern,)
    if free is None:
        known = [data.clocks[rank] for rank in ranks if rank in data.clocks]
        clocks = [(0.0, by**2 * same_host) for by in _clock_errors(known, longest)]
        # A group whose calls do not go as the patterns have it (a tree, another last loop) does not
        # outweigh by an order that fits nothing what its calls take.
        patterns = (off_pattern, np.diag(time_of**2))
    else:
        block_of = np.repeat(np.arange(len(sizes)), sizes)
        centred = np.eye(len(ranks)) - np.equal.outer(block_of, block_of) / np.repeat(sizes, sizes)
        clocks = _freed_errors([home[r] for r in ranks], free, same_host, longest, centred)
    wake_ns = HOST_WAKE_NS if data.gloo else RESOLUTION_NS
    found = []
    errors = [*product(MODEL_ERRORS, patterns)]
    for error, pattern in errors:
        own = np.diag(noise**2 + wake_ns**2) + error**2 * pattern
        for chance, clock in clocks:
            lower = np.linalg.cholesky(shared + clock + own)
            scale = -float(np.log(np.diag(lower)).sum()) + chance
            found.append((np.linalg.inv(lower), scale))
    told = [error for error, _ in errors for _ in clocks] if free is not None else []
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
    kept = [(by, p) for by, p in _KEPT if by < longest_ns and not of_free.all()]
    return [(math.log(p) + occam, moved + by**2 * still) for by, p in kept or _KEPT[:1]]


def _clock_errors(clocks: Sequence[Clock], longest_ns: float) -> list[float]:
    """How well hosts' clocks are known, ns, each as likely: as well as they should be kept, or only
    as the calls tell, or in between, or as NTP keeps many.

    That calls fit clocks that are right does not make these right: a constant of some 100 us is
    within what rings stagger by, until like calls of several sizes are compared. Off by more than
    the longest call, one would show: ranks would leave before others came.
    """
    sure = max((clock.residual_ns / 2 for clock in clocks), default=0.0)
    least = min(max((clock.doubt_ns for clock in clocks), default=0.0), longest_ns)
    if least <= sure:
        return [sure]
    between = math.sqrt(max(sure, RESOLUTION_NS) * least)
    return [sure, between, least, *(by for by, _ in _KEPT if least < by < longest_ns)]
