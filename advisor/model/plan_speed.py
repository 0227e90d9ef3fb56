"""How fast a device trains a transformer: three numbers, fitted to published runs.

Time of a token = matrix FLOPs / (share x peak) + attention FLOPs / (another share x peak) + bytes
that norms, activations and casts move / memory bandwidth. The last is what makes narrow models
slow (matrices grow with the square of the width, those bytes with the width), the second what
makes long sequences slow.
"""

from dataclasses import dataclass

from advisor.config.hardware import Device


@dataclass(frozen=True)
class Speed:
    """Shares of the dense 16-bit peak, and bytes moved per token, layer and unit of width.

    Attention counts 12 x layers x heads x head size x sequence FLOPs per token, the masked half
    included, as MFU does. ``rows`` is how many published runs it was fitted to, 0 for none.
    """

    matrices: float
    attention: float
    moved_bytes: float
    rows: int = 0


# By benchmarks/plan_setups.py on the rows of plan_setups.yaml marked `fit`; by compute capability,
# since H100, H200 and H800 differ in memory and links only.
FITTED: dict[int, Speed] = {
    80: Speed(0.71, 0.59, 277.5, rows=22),
    90: Speed(0.64, 0.30, 342.5, rows=20),
}
# Attention by kernels for Hopper is twice as fast and more: of the half that a causal mask leaves,
# FlashAttention-2 reaches 35 % of an H100's peak, those up to 75 (Shah et al. 2024,
# arXiv:2407.08608); counted as above, with the masked half, twice that.
TRANSFORMER_ENGINE: dict[int, Speed] = {90: Speed(0.56, 1.09, 70.0, rows=14)}
# Other devices: no published rows were fitted.
USUAL = Speed(0.45, 0.45, 0.0)


def speed_of(
    device: Device, efficiency: float | None = None, *, transformer_engine: bool = False
) -> Speed:
    """Fitted numbers of the device's kind, or one share of the peak for everything."""
    if efficiency is not None:
        return Speed(efficiency, efficiency, 0.0)
    kind = device.compute_capability or 0
    fitted = FITTED.get(kind, USUAL)
    return TRANSFORMER_ENGINE.get(kind, fitted) if transformer_engine else fitted
