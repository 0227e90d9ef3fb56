"""What a call costs alone on the network, as a function of its size: service = a + b * bytes.

Fitted on the service times of the traced calls (never on their raw durations, which contain the
waiting for late ranks and the sharing with other calls). ``a`` holds the latency terms
(k * alpha), ``b`` the bytes each link carries (m * beta) of METRICS section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.whatif.program import Call, Program

# Beyond this many times the largest size seen a prediction is called extrapolation.
EXTRAPOLATION = 2.0
# Relative uncertainty of a cost known at one size only.
_ONE_SIZE_SPREAD = 0.3


@dataclass(frozen=True)
class ServiceModel:
    """``a_ns`` + ``b_ns_per_byte`` * bytes, with what it rests on."""

    a_ns: float
    b_ns_per_byte: float
    sizes: int
    samples: int
    largest_bytes: int
    spread: float

    def service_ns(self, size: int) -> float:
        """Time of a call of ``size`` bytes that has the network for itself."""
        return self.a_ns + self.b_ns_per_byte * size

    def extrapolates(self, size: int) -> bool:
        """Whether ``size`` lies beyond twice the largest size seen."""
        return size > EXTRAPOLATION * self.largest_bytes


def fit_service(programs: Sequence[Program], op: str, group_size: int) -> ServiceModel | None:
    """Fit the calls of one operation and group size; None when there are none with a size.

    Medians per size (robust against single slow calls), then least squares on relative errors
    with both terms kept non-negative. ``spread`` is the median relative deviation of the calls.
    With one size only the latency cannot be told: it is taken as zero, which understates what
    merging calls gives, and the spread says so.
    """
    calls = [
        call
        for program in programs
        for call in program.calls.values()
        if _fits(call, op, group_size)
    ]
    by_size: dict[int, list[float]] = {}
    for call in calls:
        by_size.setdefault(int(call.bytes or 0), []).append(call.service_ns)
    by_size.pop(0, None)
    if not by_size:
        return None
    sizes = np.array(sorted(by_size), dtype=float)
    times = np.array([float(np.median(by_size[int(size)])) for size in sizes])
    counts = np.array([len(by_size[int(size)]) for size in sizes], dtype=float)
    one_size = len(sizes) == 1
    a, b = (
        (0.0, float(times[0] / sizes[0]))
        if one_size
        else (_fit_relative(sizes, times, np.sqrt(counts)))
    )
    deviation = [
        abs(call.service_ns - (a + b * int(call.bytes or 0))) / max(a + b * int(call.bytes or 0), 1)
        for call in calls
    ]
    return ServiceModel(
        a_ns=a,
        b_ns_per_byte=b,
        sizes=len(sizes),
        samples=len(calls),
        largest_bytes=int(sizes[-1]),
        spread=max(float(np.median(deviation)), _ONE_SIZE_SPREAD if one_size else 0.0),
    )


def _fits(call: Call, op: str, group_size: int) -> bool:
    return (
        call.op == op
        and len(call.ranks) == group_size
        and call.bytes is not None
        and call.service_ns > 0
    )


def _fit_relative(sizes: np.ndarray, times: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Non-negative least squares of (a + b*size - time) / time, for two terms in closed form."""
    scale = weight / times
    design = np.stack([scale, sizes * scale], axis=1)
    target = times * scale
    solution, *_ = np.linalg.lstsq(design, target, rcond=None)
    a, b = float(solution[0]), float(solution[1])
    if a < 0:
        return 0.0, float((design[:, 1] @ target) / (design[:, 1] @ design[:, 1]))
    if b < 0:
        return float((design[:, 0] @ target) / (design[:, 0] @ design[:, 0])), 0.0
    return a, b
