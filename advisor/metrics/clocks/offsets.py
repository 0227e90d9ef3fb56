"""A rank's clock beside the run's common one."""

from collections.abc import Mapping
from typing import NamedTuple


class Clock(NamedTuple):
    """Add ``offset_ns + drift_ppm * 1e-6 * (t - origin_ns)`` to a rank's time t.

    ``residual_ns``: how well that is known. ``doubt_ns``: how far off a clock that is taken as it
    is may be by what the calls tell (standard deviation).
    """

    offset_ns: int
    drift_ppm: float
    residual_ns: int
    origin_ns: int = 0
    doubt_ns: float = 0.0

    def correction(self, time_ns: int) -> int:
        """What to add at a time of this rank, ns."""
        return self.offset_ns + round(self.drift_ppm * 1e-6 * (time_ns - self.origin_ns))


def aligned(time_ns: int, rank: int, clocks: Mapping[int, Clock]) -> int:
    """A rank's time on the run's common clock; as it is when its clock was not estimated."""
    clock = clocks.get(rank)
    return time_ns if clock is None else time_ns + clock.correction(time_ns)
