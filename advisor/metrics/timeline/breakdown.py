"""Each rank's time split without remainder, for the run and for each step (METRICS section 3)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import COMM, COMPUTE, MEMORY, SYNC, Timeline


class Occupancy(NamedTuple):
    """Unions of one rank's device time, for splitting any window of it."""

    compute: Intervals
    comm: Intervals
    exposed_comm: Intervals
    exposed_memory: Intervals
    other: Intervals
    busy: Intervals

    @classmethod
    def of(cls, line: Timeline) -> "Occupancy":
        """Unite a rank's spans, each class less the ones that have precedence over it."""
        compute, comm = line.spans(COMPUTE), line.spans(COMM)
        useful = compute | comm
        memory = line.spans(MEMORY)
        known = useful | memory
        # A record of waiting is no work of the device: what nothing else fills of it is idle.
        done = (COMPUTE, COMM, MEMORY, SYNC)
        rest = line.spans(*(k for k in np.unique(line.kind) if k not in done))
        return cls(
            compute=compute,
            comm=comm,
            exposed_comm=comm - compute,
            exposed_memory=memory - useful,
            other=rest - known,
            busy=known | rest,
        )

    def split(self, low: Sequence[int] | Int64s, high: Sequence[int] | Int64s) -> dict[str, Int64s]:
        """The columns of run_breakdown and step_breakdown for windows ``[low, high)``, ns.

        compute + exposed_comm + exposed_memory + other + idle = window, exactly.
        """
        lows, highs = np.asarray(low, dtype=np.int64), np.asarray(high, dtype=np.int64)
        comm = self.comm.covered(lows, highs)
        exposed = self.exposed_comm.covered(lows, highs)
        return {
            "window_ns": highs - lows,
            "compute_ns": self.compute.covered(lows, highs),
            "exposed_comm_ns": exposed,
            "exposed_memory_ns": self.exposed_memory.covered(lows, highs),
            "other_ns": self.other.covered(lows, highs),
            "idle_ns": highs - lows - self.busy.covered(lows, highs),
            "comm_ns": comm,
            "hidden_comm_ns": comm - exposed,
        }
