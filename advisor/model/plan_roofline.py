"""The communication roofline: FLOPs per byte moved against what device and link can do.

CCR = FLOPs per step / bytes per step; ridge = peak FLOP/s / bandwidth. Below the ridge the link
is what limits. Thresholds as fractions of the ridge: 0.2, 0.8, 1.2.
"""

from typing import Literal

Regime = Literal["severely communication-bound", "communication-bound", "balanced", "compute-bound"]


def communication_ratio(flops: float, traffic_bytes: float) -> float | None:
    """CCR in FLOP per byte; None where nothing is moved."""
    return flops / traffic_bytes if traffic_bytes > 0 else None


def ridge(peak_flops: float, bandwidth_gbps: float) -> float:
    """FLOP per byte at which compute and link take equally long (bandwidth in GB/s, 1e9)."""
    return peak_flops / (bandwidth_gbps * 1e9)


def regime(ratio: float | None, ridge_point: float) -> Regime:
    """Which of the two limits, by the thresholds 0.2, 0.8 and 1.2 of the ridge."""
    if ratio is None or ratio > 1.2 * ridge_point:
        return "compute-bound"
    if ratio < 0.2 * ridge_point:
        return "severely communication-bound"
    return "communication-bound" if ratio < 0.8 * ridge_point else "balanced"


def critical_tokens(ridge_point: float, gradient_bytes_per_parameter: float = 2) -> float:
    """Tokens per rank and step at which data parallelism reaches the ridge."""
    return ridge_point * 2 * gradient_bytes_per_parameter / 6


def crossover_bytes(alpha_us: float, bandwidth_gbps: float) -> float:
    """n* = alpha x B: the message at which latency and transfer take equally long."""
    return alpha_us * bandwidth_gbps * 1000
