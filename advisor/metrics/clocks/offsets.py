"""A rank's clock against the run's common one, and times on that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Clock(NamedTuple):
    """Add ``offset_ns + drift_ppm * 1e-6 * (t - origin_ns)`` to a rank's time t.

    ``identified``: messages of several sizes told the clock from the stagger of a slow edge.
    ``ambiguous``: they did not, and an offset was taken all the same, which may hold stagger: the
    ends of this rank are no evidence of a slow edge. ``fitted``: starts and ends gave the offset,
    as well as ``residual_ns`` says. ``doubt_ns``: how far off a clock that is taken as it is may be
    by what the calls tell (standard deviation).
    """

    offset_ns: int
    drift_ppm: float
    residual_ns: int
    origin_ns: int = 0
    ambiguous: bool = False
    identified: bool = True
    fitted: bool = False
    doubt_ns: float = 0.0

    def correction(self, time_ns: int) -> int:
        """What to add at a time of this rank, ns."""
        return self.offset_ns + round(self.drift_ppm * 1e-6 * (time_ns - self.origin_ns))


def aligned(time_ns: int, rank: int, clocks: Mapping[int, Clock]) -> int:
    """A rank's time on the run's common clock; as it is when its clock was not estimated."""
    clock = clocks.get(rank)
    return time_ns if clock is None else time_ns + clock.correction(time_ns)
