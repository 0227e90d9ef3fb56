"""When a device's compute waits for its host's data loader while calls run that it needs not."""

import numpy as np

from advisor.metrics.host.activity import HostActivity
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import COMM, COMPUTE, Timeline
from advisor.store.columns import MISSING


def loading_beside_calls(line: Timeline, occupancy: Occupancy, activity: HostActivity) -> Intervals:
    """Stretches without compute in which the host loads data and only calls run, of which the last
    goes on beside the compute after them: that began as soon as it was launched.

    ZeRO's gather of the updated parameters runs so. The first call that ends in a stretch may be
    one that the next pass needs, so the stretch begins behind it.
    """
    compute, loading = occupancy.compute, activity.union("data-loading")
    if not line.on_device or len(compute) < 2 or not len(loading) or not len(occupancy.comm):
        return Intervals.empty()
    low, high = compute.end[:-1], compute.start[1:]
    rows = np.flatnonzero(line.kind == COMPUTE)
    launch = line.launch[rows[np.searchsorted(line.start[rows], high)]]
    ends = np.append(np.sort(line.end[line.kind == COMM]), np.iinfo(np.int64).max)
    ended = ends[np.searchsorted(ends, low, "right")]
    low = np.where(ended < high, ended, low)
    free = (launch != MISSING) & (launch > low) & (high - launch <= line.launch_delay_ns)
    free &= occupancy.comm.contains(high) & occupancy.comm.contains(high - 1)
    # Between calls the device may idle for microseconds; longer gaps have rows of their own.
    free &= 10 * occupancy.exposed_comm.covered(low, high) >= 9 * (high - low)
    return Intervals.of(low[free], high[free]) & loading
