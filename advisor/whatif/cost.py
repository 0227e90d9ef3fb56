"""What a call costs alone on the network, as a function of its size: service = a + b * bytes.

Fitted on the service times of the traced calls (never on their raw durations, which contain the
waiting for late ranks and the sharing with other calls). ``a`` holds the latency terms
(k * alpha), ``b`` the bytes each link carries (m * beta) of METRICS section 7.

Calls that were in flight together are taken as one observation (their number, their bytes, their
time): how they shared the network is a guess, that it was busy all the while is not. Where the
trace does not tell latency from bandwidth (calls of one size, or nearly), a prior does
(latency_prior.py), or a calibration of the machine: its curve then goes through the traced calls.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.vocabulary.bandwidth import bus_factor
from advisor.whatif.program import Call, Program

Floats = NDArray[np.float64]

# Beyond this many times the largest size seen a prediction is called extrapolation.
EXTRAPOLATION = 2.0
# Latency of one hop that is assumed before any call is seen, and its uncertainty as a share: a
# message between two sockets and the wake-up of the thread that reads it (gloo over TCP); a hop of
# NCCL between two GPUs (its own tuning constants hold 0.6 to 14 us per hop, by link and protocol).
_HOP_NS = {"sockets": 75_000.0, "device": 5_000.0}
_HOP_SPREAD = 1.0
# The trace tells nothing of the latency where it leaves this share of the prior's uncertainty.
_INCONCLUSIVE = 0.9
# Relative error of one observation that no repetition removes: the model is a straight line.
_MODEL_SPREAD = 0.03


class Curve(Protocol):
    """What a measured machine says of calls of one operation and group, by their bytes."""

    def time_ns(self, size: int) -> float:
        """Time of a call."""

    def latency(self, size: int) -> tuple[float, float]:
        """The share of that time that no byte takes, and its standard deviation."""


Curves = Callable[[Call], Curve | None]
"""The curve of calls like one; None where no measured machine tells."""


class ServiceModel(NamedTuple):
    """``a_ns`` + ``b_ns_per_byte`` * bytes, with what it rests on.

    ``a_sigma_ns`` is the uncertainty of the latency; a larger latency goes with a smaller
    ``b_ns_per_byte``, such that a call of ``typical_bytes`` costs the same. ``identified`` is
    whether the trace says anything of how the two part; where it does not, and at sizes that it
    does not hold, ``curve`` gives how a call's time grows with its bytes. ``excess_by_call``: what
    calls took beyond the model goes with each call, and not with its bytes. ``least_b_ns_per_byte``
    is that of the slowest link that is used for training.
    """

    a_ns: float
    b_ns_per_byte: float
    sizes: int
    samples: int
    largest_bytes: int
    spread: float
    a_sigma_ns: float = 0.0
    typical_bytes: float = 1.0
    identified: bool = True
    curve: Curve | None = None
    excess_by_call: bool = False
    least_b_ns_per_byte: float = 0.0

    def by_call(self) -> "ServiceModel":
        """The reading in which each call pays again what no byte of it surely takes."""
        bytes_ns = self.least_b_ns_per_byte * self.typical_bytes
        typical = self.a_ns + self.b_ns_per_byte * self.typical_bytes
        model = self if self.is_known else self.with_latency(max(self.a_ns, typical - bytes_ns))
        return model._replace(excess_by_call=True)

    def with_latency(self, a_ns: float) -> "ServiceModel":
        """The same calls explained by another latency (kept between 0 and the typical call)."""
        typical = self.a_ns + self.b_ns_per_byte * self.typical_bytes
        a = min(max(a_ns, 0.0), typical)
        return self._replace(a_ns=a, b_ns_per_byte=(typical - a) / self.typical_bytes)

    def service_ns(self, size: int) -> float:
        """Time of a call of ``size`` bytes that has the network for itself."""
        line = self.a_ns + self.b_ns_per_byte * size
        if self.curve is None or self.tells(size):
            return line
        if not self.identified:
            typical = round(self.typical_bytes)
            time, (share, _) = self.curve.time_ns(typical), self.curve.latency(typical)
            straight = time * (share + (1 - share) * size / self.typical_bytes)
            return line * self.curve.time_ns(size) / straight
        held = round(EXTRAPOLATION * self.largest_bytes)
        most = self.a_ns + self.b_ns_per_byte * held
        return most * self.curve.time_ns(size) / self.curve.time_ns(held)

    def as_one_ns(self, parts: Sequence[tuple[Call, float]]) -> float:
        """What these shares of traced calls take as one call.

        They took what they took: of that the model only says how much less it is as one call. What
        a call took beyond the model its bytes meet in a larger call too where it is other traffic
        (larger buckets beside such neighbours gained nothing, measured), or every call anew where
        it is a wait for a core (on cores that others hold one call for 14 gained 26 %, measured).
        """
        took = [share * call.service_ns for call, share in parts]
        apart = sum(share * self.service_ns(call.bytes or 0) for call, share in parts)
        whole = self.service_ns(round(sum(share * (call.bytes or 0) for call, share in parts)))
        if self.excess_by_call:  # as long a wait as the others' on average, not as the longest
            return max((sum(took) - apart) / sum(share for _, share in parts), 0.0) + whole
        return max((sum(took) - apart + whole, *took))

    @property
    def is_known(self) -> bool:
        """Whether the trace, or a calibration of the machine, tells latency from bandwidth."""
        return self.identified or self.curve is not None

    def tells(self, size: int) -> bool:
        """Whether the trace itself says what calls of ``size`` bytes take."""
        return self.identified and not self.extrapolates(size)

    def extrapolates(self, size: int) -> bool:
        """Whether ``size`` lies beyond twice the largest size seen."""
        return size > EXTRAPOLATION * self.largest_bytes


def fit_service(
    programs: Sequence[Program], op: str, group_size: int, curve: Curve | None = None
) -> ServiceModel | None:
    """Fit the calls of one operation and group size; None when there are none with a size.

    Observations are bursts of calls in flight together, as medians over the bursts of the same
    make-up; least squares on relative errors with the prior on the latency, both terms kept
    non-negative. ``spread`` is the median relative deviation of the observations.
    """
    observed: dict[tuple[int, int], list[float]] = {}
    sizes: set[int] = set()
    for program in programs:
        for count, size, time in _observations(program, op, group_size, sizes):
            observed.setdefault((count, size), []).append(time)
    if not observed:
        return None
    counts = np.array([key[0] for key in observed], dtype=float)
    volumes = np.array([key[1] for key in observed], dtype=float)
    times = np.array([float(np.median(values)) for values in observed.values()])
    repeats = np.array([len(values) for values in observed.values()], dtype=float)
    kind = "sockets" if any(program.shared for program in programs) else "device"
    prior = _HOP_NS[kind] * _hops(op, group_size)
    sigma = np.sqrt(_MODEL_SPREAD**2 + (_scatter(observed) ** 2) / repeats)
    a, b, a_sigma = _fit(counts, volumes, times, sigma, prior)
    identified = a_sigma < _INCONCLUSIVE * _HOP_SPREAD * prior
    typical = float((volumes * repeats).sum() / (counts * repeats).sum())
    wire = typical * (bus_factor(op, group_size) or 1.0)
    if not identified and curve is not None:
        time, (share, sigma_share) = a + b * typical, curve.latency(round(typical))
        a, a_sigma = share * time, sigma_share * time
        b = (time - a) / typical
    elif not identified and not _is_plausible(b * typical, wire):
        time = a + b * typical
        quickest = min(min(values) / count for (count, _), values in observed.items())
        a, a_sigma = _split(time, wire, prior, quickest)
        b = (time - a) / typical
    deviation = [
        abs(value - (a * count + b * volume)) / max(a * count + b * volume, 1.0)
        for (count, volume), values in observed.items()
        for value in values
    ]
    return ServiceModel(
        a_ns=a,
        b_ns_per_byte=b,
        sizes=len(sizes),
        samples=sum(count * len(values) for (count, _), values in observed.items()),
        largest_bytes=max(sizes),
        spread=float(np.median(deviation)),
        a_sigma_ns=a_sigma,
        typical_bytes=typical,
        identified=identified,
        curve=curve,
        least_b_ns_per_byte=wire / typical / _LEAST_RATE * 1e9,
    )


def _observations(
    program: Program, op: str, group_size: int, sizes: set[int]
) -> Iterator[tuple[int, int, float]]:
    """(calls, bytes, ns) of each burst that holds calls of this kind only; their sizes noted."""
    bursts: dict[tuple[int, int], list[Call]] = {}
    for key, call in program.calls.items():
        # Calls of unknown burst stand for themselves.
        bursts.setdefault((call.burst, key if call.burst < 0 else 0), []).append(call)
    pure = [calls for calls in bursts.values() if all(_fits(c, op, group_size) for c in calls)]
    if not pure:
        pure = [[call] for call in program.calls.values() if _fits(call, op, group_size)]
    for calls in pure:
        volumes = [int(call.bytes or 0) for call in calls]
        if sum(volumes):
            sizes.update(volumes)
            yield len(calls), sum(volumes), sum(call.service_ns for call in calls)


def _fits(call: Call, op: str, group_size: int) -> bool:
    return (
        call.op == op
        and len(call.ranks) == group_size
        and call.bytes is not None
        and call.service_ns > 0
    )


def _hops(op: str, group_size: int) -> int:
    """Messages in a row of a ring."""
    return max(1, (2 if op == "all_reduce" else 1) * (group_size - 1))


def _scatter(observed: dict[tuple[int, int], list[float]]) -> float:
    """Relative scatter of observations of the same make-up: 1.4826 * median deviation."""
    deviations = [
        abs(value / float(np.median(values)) - 1)
        for values in observed.values()
        if len(values) > 1
        for value in values
    ]
    return 1.4826 * float(np.median(deviations)) if deviations else 0.1


def _fit(
    counts: Floats, volumes: Floats, times: Floats, sigma: Floats, prior_ns: float
) -> tuple[float, float, float]:
    """a, b >= 0 and the uncertainty of a: least squares of (a*count + b*volume - time) / time.

    The prior is one more observation of a: ``prior_ns`` with _HOP_SPREAD.
    """
    scale = 1 / (times * sigma)
    prior_scale = 1 / (_HOP_SPREAD * prior_ns)
    design = np.stack(
        [np.append(counts * scale, prior_scale), np.append(volumes * scale, 0.0)], axis=1
    )
    target = np.append(times * scale, prior_ns * prior_scale)
    # Columns of like size, or the normal equations lose their digits.
    unit = np.linalg.norm(design, axis=0)
    solution, *_ = np.linalg.lstsq(design / unit, target, rcond=None)
    a, b = (float(value) for value in solution / unit)
    inverse = np.linalg.inv((design / unit).T @ (design / unit))
    a_sigma = float(np.sqrt(inverse[0, 0]) / unit[0])
    if a < 0:
        return 0.0, float((design[:, 1] @ target) / (design[:, 1] @ design[:, 1])), a_sigma
    if b < 0:
        return float((design[:, 0] @ target) / (design[:, 0] @ design[:, 0])), 0.0, a_sigma
    return a, b, a_sigma


# How much of a call is latency where the trace does not tell: all its calls are of one make-up. A
# run whose calls always ran in one and the same burst gives one number, the time of a typical
# call. The latency assumed before any call is seen then leaves the rest to the bytes. Where that
# would be a link slower than any that is used for training, it is likelier that the hops are slow:
# eight processes that share two cores need a third of a millisecond for each. Latency and rate are
# then each taken as known to a factor only, and what is likeliest of those that give the time seen
# is told with how unsure it is. Every call pays its latency, so that it is no more than the
# quickest call of that make-up took: what others took longer is other traffic, or a wait for a
# core, which larger calls meet as well.
# Bytes per second that a rank's link has at least, as far as is assumed: 1 Gbit/s.
_LEAST_RATE = 1.25e8
# How far below that is still taken for the link's: what is shared among several calls and ranks.
_PLAUSIBLE = 0.4
# Standard deviations of the logarithms of a hop's latency (a factor of e) and of a link's rate
# below the least (a factor of three).
_HOP_FACTOR = 1.0
_RATE_FACTOR = float(np.log(3.0))


def _is_plausible(bytes_ns: float, wire_bytes: float) -> bool:
    """Whether ``wire_bytes`` may have taken ``bytes_ns`` on some link."""
    return wire_bytes >= _PLAUSIBLE * _LEAST_RATE * bytes_ns / 1e9


def _split(
    typical_ns: float, wire_bytes: float, latency_ns: float, quickest_ns: float
) -> tuple[float, float]:
    """The latency within a call of ``typical_ns``, ns, and its standard deviation, ns.

    ``wire_bytes`` is what each link carries for that call, ``latency_ns`` the latency assumed
    before any call is seen, ``quickest_ns`` what the quickest such call took.
    """
    share = np.linspace(0.0, min(1.0, quickest_ns / typical_ns), 1001)[1:-1]
    latency = np.log(share * typical_ns / latency_ns) / _HOP_FACTOR
    slower = np.log((1 - share) * typical_ns / 1e9 * _LEAST_RATE / wire_bytes)
    rate = np.maximum(slower, 0.0) / _RATE_FACTOR
    # Densities of logarithms, over the line on which both add up to what was seen.
    weight = np.exp(-(latency**2 + rate**2 - (latency**2 + rate**2).min()) / 2)
    weight /= share * (1 - share)
    weight /= weight.sum()
    mean = float((share * weight).sum())
    sigma = float(np.sqrt(((share - mean) ** 2 * weight).sum()))
    return mean * typical_ns, sigma * typical_ns
