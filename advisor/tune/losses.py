"""Whether a setting changed what the job computes: its losses against those of the present ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from advisor.config.sweep import Configuration
from advisor.tune.points import key_of
from advisor.tune.sweep import Sweep

# Another order of the same sums moves a loss in float32 by less; bf16 gradients move it by more.
_ROUNDING = 1e-5
# Runs of the same settings that differ by more than this have no fixed seed.
_SEEDED = 0.01
_TIMES_OWN_SPREAD = 3.0


def numbers_changed(sweep: Sweep, configuration: Configuration) -> str:
    """What the losses say of ``configuration``, a sentence; '' where they agree or none is known.

    Steps are compared one by one, as far as all runs got.
    """
    before = [r.losses for r in sweep.results if r.is_baseline and r.status == "ok" and r.losses]
    key = key_of(configuration)
    after = [r.losses for r in sweep.results if key_of(r.configuration) == key and r.losses]
    if len(before) < 2 or not after:
        return ""
    own = max(_difference(a, b) for a, b in combinations(before, 2))
    if own > _SEEDED:
        return (
            f"losses cannot be compared: runs of the present settings differ by {own:.1%} "
            "themselves; fix the script's seed to see whether the numbers change"
        )
    found = max(_difference(a, b) for a in after for b in before)
    if found <= max(_TIMES_OWN_SPREAD * own, _ROUNDING):
        return ""
    steps = min(map(len, [*before, *after]))
    return (
        f"it changes the numbers: losses of the first {steps} steps differ by up to {found:.2g} "
        f"of their value (runs of the present settings: {own:.2g}); compare a longer training "
        "before keeping it"
    )


def _difference(left: Sequence[float], right: Sequence[float]) -> float:
    pairs = zip(left, right, strict=False)
    return max((abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs), default=0.0)
