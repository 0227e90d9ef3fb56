"""When each rank leaves a ring collective of NCCL, if some edges of its rings are slow.

A rank takes a ring collective's operations in order: it sends its own chunk, passes on n - 2 or
2n - 3 that it receives, and receives the last (all_gather.h, reduce_scatter.h, all_reduce.h of
NVIDIA/nccl src/device). Each waits for the data of the one before it in the ring, and until no
more than four slices, the eight steps of the buffer, lie unread at the next (prims_simple.h
waitPeer, NCCL_STEPS; collectives.h SLICESTEPS). So the rank that receives over the slow edge
leaves last, those after it in the ring one chunk earlier each, and those before it as much as the
buffers between hold. What many loops over a large message leave of that is a smaller share of it.
Through a NIC a proxy thread sends while the kernel goes on; over NVLink the kernel itself may
write.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.timeline.statistics import Floats

PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
_SLICES = 2
_IN_FLIGHT = 4
MOST_LOOPS = 3
"""Later ones repeat the same pattern, of which more loops leave a smaller share."""


def ring_ends(
    op: str,
    takes: Floats,
    starts: Floats | None = None,
    loops: int = 1,
    written: NDArray[np.bool_] | None = None,
) -> Floats:
    """Row per ring: when each position leaves, less when the last does, over the call's time.

    ``takes``: what a slice takes over the edge out of each position, row per ring, in any unit.
    ``starts``: when each comes, less when the last does, over the call's time from then.
    ``loops``: how often all operations are gone through, chunk by chunk of a large message.
    ``written``: the edges over which the sender's own kernel writes, which takes it that long.
    """
    count = takes.shape[-1]
    sends = PASSES[op] * (count - 1)
    length = loops * sends * _SLICES * takes.max(axis=-1, keepdims=True)
    busy = takes * written if written is not None else np.zeros_like(takes)
    before = np.roll(np.arange(count), 1)
    after = np.roll(before, -2)
    now: Floats = np.zeros_like(takes) if starts is None else starts * length
    wire: Floats = np.array(now)
    arrived: list[Floats] = []  # at the next position, by slice
    used: list[Floats] = []  # by the next position, by slice
    for number in range(min(loops, MOST_LOOPS) * (sends + 1) * _SLICES):
        within = number % ((sends + 1) * _SLICES)
        if within >= _SLICES:  # the first operation only sends
            now = np.maximum(now, arrived[len(used)][..., before])
        if within < sends * _SLICES:  # the last only receives
            unread = len(arrived) - _IN_FLIGHT
            if 0 <= unread < len(used):
                now = np.maximum(now, used[unread])
            now = now + busy
            wire = np.where(busy > 0, now, np.maximum(wire, now) + takes)
            arrived.append(wire)
        if within >= _SLICES:
            used.append(now[..., after])
    last = now.max(axis=-1, keepdims=True)
    result: Floats = (now - last) / length
    return result
