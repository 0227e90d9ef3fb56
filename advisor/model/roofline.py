"""Communication roofline: whether a job is limited by compute or by a level of its network.

CCR = FLOPs / bytes communicated per step; the ridge is peak FLOP/s over bandwidth. Below the ridge
the network is the limit, above it the arithmetic (Williams, Waterman, Patterson, "Roofline", 2009,
applied to the bytes of collectives). Regimes at 0.2, 0.8 and 1.2 of the ridge (METRICS section 7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Regime = Literal["communication-bound", "mostly-communication", "balanced", "compute-bound"]

_COMMUNICATION, _MOSTLY, _BALANCED = 0.2, 0.8, 1.2


@dataclass(frozen=True)
class Roofline:
    """One level (NVLink, network) of one job. ``ratio`` = CCR / ridge."""

    ccr_flops_per_byte: float
    ridge_flops_per_byte: float
    ratio: float
    regime: Regime


def ridge_flops_per_byte(peak_flops_per_s: float, bandwidth_gbps: float) -> float:
    """FLOPs that must be done per byte sent for arithmetic to take as long as sending.

    ``bandwidth_gbps`` is decimal GB/s of one rank at this level; the peak is dense, per rank.
    """
    if peak_flops_per_s <= 0 or bandwidth_gbps <= 0:
        raise ValueError("peak and bandwidth must be positive")
    return peak_flops_per_s / (bandwidth_gbps * 1e9)


def roofline(
    flops_per_step: float, bytes_per_step: float, peak_flops_per_s: float, bandwidth_gbps: float
) -> Roofline:
    """Where a job stands at one level. FLOPs and wire bytes are those of one rank and step."""
    if flops_per_step < 0 or bytes_per_step < 0:
        raise ValueError("FLOPs and bytes must not be negative")
    ridge = ridge_flops_per_byte(peak_flops_per_s, bandwidth_gbps)
    ccr = flops_per_step / bytes_per_step if bytes_per_step else math.inf
    return Roofline(ccr, ridge, ccr / ridge, regime(ccr / ridge))


def regime(ratio: float) -> Regime:
    """The regime of CCR / ridge."""
    if ratio < _COMMUNICATION:
        return "communication-bound"
    if ratio < _MOSTLY:
        return "mostly-communication"
    return "balanced" if ratio <= _BALANCED else "compute-bound"


def critical_batch(
    flops_per_sample: float, bytes_per_step: float, peak_flops_per_s: float, bandwidth_gbps: float
) -> int:
    """Smallest number of samples per rank and step at which the job reaches the ridge.

    For traffic that does not grow with the batch (gradients, parameters): FLOPs grow, bytes do not.
    """
    if flops_per_sample <= 0:
        raise ValueError("FLOPs per sample must be positive")
    ridge = ridge_flops_per_byte(peak_flops_per_s, bandwidth_gbps)
    return max(1, math.ceil(ridge * bytes_per_step / flops_per_sample))
