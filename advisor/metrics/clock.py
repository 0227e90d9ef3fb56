"""Offsets and drifts of the hosts' clocks, from collectives that end together (METRICS 5-6).

After a synchronising collective every rank has heard from every other, so that the true ends differ
little, and what differs grows with the message (a slow edge staggers the ends) while a clock does
not. So the ends of two ranks are regressed on the bytes on the wire, operation by operation, and on
time: the intercept is the offset, the slope over time the drift. Ranks of one host share the result
unless one of them disagrees beyond doubt (an edited trace, a virtual machine). An offset that its
own uncertainty cannot tell from zero is zero: hosts normally are synchronised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.metrics.calls import Call
from advisor.metrics.clock_starts import one_clock_off
from advisor.metrics.groups import RankInfo
from advisor.metrics.operations import SYNCHRONISING
from advisor.metrics.robust import Floats, huber, spread

# An offset must exceed this many standard errors, and ranks of one host differ by as many.
_SIGNIFICANT = 4.0
# Ranks of one host read one clock; below this they are not told apart whatever the fit says.
_ONE_HOST_NS = 200_000
# Largest message over smallest that lets a slope be told from an intercept.
_SIZE_RANGE = 2.0
# A drift needs this much time to show (50 ppm, a poor clock, is 50 us after one second).
_DRIFT_SPAN_NS = 2_000_000_000
_MOST_CALLS = 4_000
# A slow edge sets ranks apart by at most half of the transfer (two ranks), less with more.
_STAGGER_SHARE = 0.6
# A rank that leaves a call before another came, by more than this and in more of the calls than
# spans that were paired wrongly make up, has another clock.
_TOLERANCE_NS = 200_000
_MOST_EARLY = 0.05


@dataclass(frozen=True)
class Clock:
    """Add ``offset_ns + drift_ppm * 1e-6 * (t - origin_ns)`` to a rank's time t.

    ``identified``: messages of several sizes told the clock from the stagger of a slow edge.
    ``ambiguous``: they did not, and an offset was taken all the same, which may hold stagger: the
    ends of this rank are no evidence of a slow edge.
    """

    offset_ns: int
    drift_ppm: float
    residual_ns: int
    origin_ns: int = 0
    ambiguous: bool = False
    identified: bool = True

    def correction(self, time_ns: int) -> int:
        """What to add at a time of this rank, ns."""
        return self.offset_ns + round(self.drift_ppm * 1e-6 * (time_ns - self.origin_ns))


def aligned(time_ns: int, rank: int, clocks: Mapping[int, Clock]) -> int:
    """A rank's time on the run's common clock; as it is when its clock was not estimated."""
    clock = clocks.get(rank)
    return time_ns if clock is None else time_ns + clock.correction(time_ns)


@dataclass(frozen=True)
class _Difference:
    """Ends of one rank less another's: intercept with error, drift and spread."""

    offset: float
    error: float
    drift: float
    spread: float
    identified: bool
    transfer: float


def clocks(
    columns: Sequence[Mapping[int, Call]], infos: Mapping[int, RankInfo]
) -> dict[int, Clock]:
    """The clock of every rank that shares a synchronising collective with another; else none.

    The lowest rank's host is the reference (offset 0).
    """
    usable = [c for c in columns if len(c) > 1 and next(iter(c.values())).op in SYNCHRONISING]
    if not usable:
        return {}
    origin = min(call.end for column in usable for call in column.values())
    neighbours: dict[int, set[int]] = defaultdict(set)
    for column in usable:
        for rank in column:
            neighbours[rank].update(column)
    raw: dict[int, _Difference] = {}
    for root in sorted(neighbours):
        if root in raw:
            continue
        raw[root] = _Difference(0.0, 0.0, 0.0, 0.0, True, 0.0)
        queue = [root]
        while queue:
            known = queue.pop(0)
            for rank in sorted(neighbours[known] - set(raw)):
                step = _difference(usable, known, rank, origin)
                base = raw[known]
                raw[rank] = _Difference(
                    base.offset + step.offset,
                    float(np.hypot(base.error, step.error)),
                    base.drift + step.drift,
                    max(base.spread, step.spread),
                    base.identified and step.identified,
                    step.transfer,
                )
                queue.append(rank)
    return _checked(_by_host(raw, infos, origin, usable), infos, usable)


def _checked(
    found: dict[int, Clock], infos: Mapping[int, RankInfo], columns: Sequence[Mapping[int, Call]]
) -> dict[int, Clock]:
    """The same, where messages have one size after a look at starts as well (clock_starts.py)."""
    if all(clock.identified for clock in found.values()):
        return found
    host = {rank: host_of(rank, infos) for rank in found}
    already = frozenset(host[rank] for rank, clock in found.items() if clock.ambiguous)
    before = {rank: clock.offset_ns for rank, clock in found.items()}
    one = one_clock_off(columns, host, before, already)
    if one is None:
        return found
    off = {rank: one.offset_ns * (host[rank] == one.host) for rank in found}
    return {
        rank: replace(
            clock,
            # The first rank's host stays the reference.
            offset_ns=clock.offset_ns + off[rank] - off[min(found)],
            identified=one.decided,
            ambiguous=not one.decided and (clock.ambiguous or off[rank] != 0),
        )
        for rank, clock in found.items()
    }


def _difference(
    columns: Iterable[Mapping[int, Call]], one: int, other: int, origin: int
) -> _Difference:
    pairs = [(c[one], c[other]) for c in columns if one in c and other in c]
    if len(pairs) > _MOST_CALLS:
        pairs = pairs[:: len(pairs) // _MOST_CALLS + 1]
    # In time relative to the pair's own median, so that any offset leaves the numbers small.
    ends = np.array([b.end - a.end for a, b in pairs], dtype=np.int64)
    middle = int(np.median(ends))
    late = (ends - middle).astype(np.float64)
    when = np.array([a.end - origin for a, _ in pairs], dtype=np.float64)
    sizes, identified = _sizes(pairs)
    transfer = float(np.median([a.transfer or (a.end - a.start) for a, _ in pairs]))
    columns_of = [np.ones(len(pairs))]
    if identified:
        columns_of.extend(sizes)
    with_drift = np.ptp(when) > _DRIFT_SPAN_NS and len(pairs) >= 20
    if with_drift:
        columns_of.append(when * 1e-6)
    design = np.stack(columns_of, axis=1)
    if len(pairs) <= design.shape[1] + 1:
        return _Difference(float(middle), spread(late) or 1e6, 0.0, spread(late), False, transfer)
    scale = np.maximum(np.abs(design).max(axis=0), 1e-12)
    fit = huber(design / scale, late)
    coefficients, errors = fit.coefficients / scale, fit.errors / scale
    drift = 0.0
    if with_drift and abs(coefficients[-1]) > _SIGNIFICANT * errors[-1]:
        drift = float(coefficients[-1])
    elif with_drift:
        fit = huber(design[:, :-1] / scale[:-1], late)
        coefficients, errors = fit.coefficients / scale[:-1], fit.errors / scale[:-1]
    return _Difference(
        middle + float(coefficients[0]),
        float(errors[0]),
        drift,
        fit.spread,
        identified,
        transfer,
    )


def _sizes(pairs: Sequence[tuple[Call, Call]]) -> tuple[list[Floats], bool]:
    """Wire bytes by operation, one regressor each; whether they tell size from offset."""
    by_op: dict[str, Floats] = {}
    for index, (call, _) in enumerate(pairs):
        op = call.wire_op or call.op
        column = by_op.setdefault(op, np.zeros(len(pairs)))
        column[index] = float(call.bytes or 0)
    regressors = []
    identified = False
    for column in by_op.values():
        if not column.any():
            identified = True  # a barrier has no size at all
            continue
        regressors.append(column)
        known = column[column > 0]
        if known.max() >= _SIZE_RANGE * known.min() and len(np.unique(known)) > 1:
            identified = True
    return regressors, identified


def _by_host(
    raw: Mapping[int, _Difference],
    infos: Mapping[int, RankInfo],
    origin: int,
    columns: Sequence[Mapping[int, Call]],
) -> dict[int, Clock]:
    rest = [found for rank, found in raw.items() if rank != min(raw)]
    first = replace(
        raw[min(raw)],
        error=max((found.error for found in rest), default=0.0),
        spread=max((found.spread for found in rest), default=0.0),
        identified=all(found.identified for found in rest),
        transfer=max((found.transfer for found in rest), default=0.0),
    )
    raw = {**raw, min(raw): first}  # what the others know about it
    hosts: dict[object, list[int]] = defaultdict(list)
    for rank in sorted(raw):
        hosts[host_of(rank, infos)].append(rank)
    # Offsets are what must be added, so the sign turns.
    offset = {rank: -found.offset for rank, found in raw.items()}
    for ranks in hosts.values():
        center = float(np.median([offset[rank] for rank in ranks]))
        for rank in ranks:
            found = raw[rank]
            doubt = max(_ONE_HOST_NS, _SIGNIFICANT * found.error, 2 * found.spread)
            if not found.identified:
                doubt = max(doubt, _STAGGER_SHARE * found.transfer)
            if len(ranks) > 1 and abs(offset[rank] - center) <= doubt:
                offset[rank] = center
    # One value per clock: ranks of one host share theirs. The middle one that is a clock's own.
    own = sorted({(str(host), offset[rank]) for host, ranks in hosts.items() for rank in ranks})
    values = sorted(value for _, value in own)
    median = values[(len(values) - 1) // 2]
    settled = {}
    for rank, found in raw.items():
        away = offset[rank] - median
        others = list(values)
        others.remove(offset[rank])
        zero = _zero(away, found, [abs(value - median) for value in others])
        if zero and abs(away) > _ONE_HOST_NS:
            same = {one for one in raw if offset[one] == median}
            zero = not _impossible(columns, rank, same)
        settled[rank] = 0.0 if zero else away
    reference = settled[min(raw)]
    return {
        rank: Clock(
            offset_ns=round(settled[rank] - reference),
            drift_ppm=-found.drift if found.drift else 0.0,
            residual_ns=0 if rank == min(raw) else round(2 * found.error),
            origin_ns=origin,
            ambiguous=not found.identified and settled[rank] != 0.0,
            identified=found.identified,
        )
        for rank, found in raw.items()
    }


def _zero(away: float, found: _Difference, others: Sequence[float]) -> bool:
    """Whether an offset against the median clock is no more than uncertainty or stagger.

    Messages of one size cannot tell an offset from the stagger of a slow edge. Then a single clock
    that stands far from all others is an offset; a spread over several clocks is stagger.
    """
    if found.identified:
        return abs(away) <= max(_SIGNIFICANT * found.error, 0.5 * found.spread)
    if len(others) <= 2:
        # In rings of two and three a slow edge too sets one rank apart, by under half the transfer.
        return abs(away) <= max(_STAGGER_SHARE * found.transfer, 2 * found.spread)
    return abs(away) <= 4 * max(others) + 2 * found.spread


def _impossible(columns: Sequence[Mapping[int, Call]], rank: int, others: set[int]) -> bool:
    """Whether calls ended before the last rank came, if this rank's clock were the others'."""
    early = [
        (column[rank].start > column[other].end + _TOLERANCE_NS)
        or (column[other].start > column[rank].end + _TOLERANCE_NS)
        for column in columns
        if rank in column
        for other in sorted(others & column.keys())
    ]
    return bool(early) and sum(early) > _MOST_EARLY * len(early)


def host_of(rank: int, infos: Mapping[int, RankInfo]) -> object:
    """What stands for a rank's host: its name where the trace has it.

    Unnamed hosts whose ranks use distinct devices are one machine, as far as anybody can tell.
    """
    info = infos[rank]
    if info.host is not None:
        return info.host
    unnamed = [i for i in infos.values() if i.host is None]
    devices = [i.device for i in unnamed]
    if None not in devices and len(set(devices)) == len(devices):
        return None
    return ("rank", rank)
