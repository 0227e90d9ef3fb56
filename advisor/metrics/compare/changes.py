"""Which kinds of time make a run longer or shorter than the base, the largest change first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.metrics.timeline.parts import KINDS, Parts

MOST_OF = 0.2  # of the whole difference: what makes less of it is not why


@dataclass(frozen=True)
class Change:
    """One kind of time (all idleness as ``idle``), ns per step in the base and in the other."""

    kind: str
    base_ns: float
    other_ns: float

    @property
    def ns(self) -> float:
        """How much more the other has."""
        return self.other_ns - self.base_ns


def changes(base: Parts, other: Parts) -> list[Change]:
    """Every kind that either run has, the largest change first.

    Where only one of them parts waiting from transfer, both count as exposed communication.
    """
    left, right = _merged(base.ns), _merged(other.ns)
    if bool(left["comm"]) != bool(right["comm"]):
        left, right = _unsplit(left), _unsplit(right)
    found = [Change(kind, left[kind], right[kind]) for kind in left if left[kind] or right[kind]]
    return sorted(found, key=lambda change: -abs(change.ns))


def because(found: Sequence[Change], share: float) -> Change | None:
    """What makes most of a difference of this sign; None where no kind makes much of it."""
    same = [change for change in found if change.ns * share > 0]
    total = sum(change.ns for change in found)
    if not same or abs(same[0].ns) < MOST_OF * abs(total):
        return None
    return same[0]


def _merged(ns: Mapping[str, float]) -> dict[str, float]:
    merged: dict[str, float] = {}
    for kind in KINDS:
        name = "idle" if kind.startswith("idle") else kind
        merged[name] = merged.get(name, 0.0) + ns[kind]
    return merged


def _unsplit(ns: dict[str, float]) -> dict[str, float]:
    ns["comm"] += ns.pop("wait") + ns.pop("transfer")
    return ns
