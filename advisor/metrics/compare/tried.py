"""Settings that were tried in a job since its earlier recording, and what they came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.findings import Finding
from advisor.metrics.compare.significance import Difference


@dataclass(frozen=True)
class Tried:
    """``changed``: each setting's earlier and present value; ``step_ns``: the earlier step;
    ``difference``: of the present ones; ``findings``: what the earlier recording said.
    """

    recording: str
    changed: Mapping[str, tuple[Any, Any]]
    step_ns: int
    difference: Difference
    findings: Sequence[Finding] = ()

    @property
    def helped(self) -> bool | None:
        """Whether steps are shorter beyond noise; None where they are too few to tell."""
        significant = self.difference.significant
        return None if significant is None else significant and self.difference.share < 0

    def gains_ns(self) -> tuple[float, float, float]:
        """What a step is shorter by: middle, low and high end, ns; negative where it is longer."""
        found = self.difference
        ends = (found.share, found.high or 0.0, found.low or 0.0)
        middle, low, high = (-share * self.step_ns for share in ends)
        return middle, low, high

    def promised(self) -> Finding | None:
        """The earlier finding whose fix this was; None where nothing proposed these values."""
        return next((item for item in self.findings if item.sets and self._has(item)), None)

    def repeats(self, item: Finding) -> bool:
        """Whether a finding proposes more of what did not help: the same setting, further on."""
        return self.helped is False and any(
            name in self.changed and _is_further(*self.changed[name], value)
            for name, value in item.sets.items()
        )

    def _has(self, item: Finding) -> bool:
        return all(
            name in self.changed and _is(self.changed[name][1], value)
            for name, value in item.sets.items()
        )


def _is(value: Any, written: str) -> bool:
    one, other = _number(value), _number(written)
    return str(value) == written if one is None or other is None else one == other


def _is_further(earlier: Any, present: Any, proposed: str) -> bool:
    before, now, then = _number(earlier), _number(present), _number(proposed)
    if before is None or now is None or then is None:
        return _is(present, proposed)
    return (then - before) * (now - before) > 0


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
