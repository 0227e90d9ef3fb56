"""When each rank leaves a ring collective of NCCL, by when ranks come and which edges are slow.

A rank takes a ring collective's operations in order: it sends its own chunk, passes on n - 2 or
2n - 3 that it receives, and receives the last (all_gather.h, reduce_scatter.h, all_reduce.h of
NVIDIA/nccl src/device). Each waits for the data of the one before it in the ring, and until no
more than four slices, the eight steps of the buffer, lie unread at the next (prims_simple.h
waitPeer, NCCL_STEPS; collectives.h SLICESTEPS). So the rank that receives over the slow edge
leaves last, those after it in the ring one chunk earlier each, and those before it as much as the
buffers between hold, which is four times as many chunks by the protocols LL and LL128. What many
loops over a large message leave of that is a smaller share of it.
Through a NIC a proxy thread sends while the kernel goes on; over NVLink the kernel itself may
write.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.timeline.statistics import Floats

PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


class Protocol(NamedTuple):
    """Slices of a chunk, and how many of them the buffers between two ranks hold."""

    slices: int
    in_flight: int


SIMPLE = Protocol(2, 4)
"""ALLREDUCE_CHUNKSTEPS over SLICESTEPS; NCCL_STEPS over SLICESTEPS (src/include/collectives.h)."""
LOW_LATENCY = Protocol(1, 8)
"""LL and LL128 send a chunk as one of NCCL_STEPS (waitSend, src/device/prims_ll.h and _ll128.h)."""
MOST_LOOPS = 3
"""Later ones repeat the same pattern."""
_LONG_AGO = -1e6  # in times of a slice


def paths(
    op: str,
    takes: Floats,
    loops: int = 1,
    written: NDArray[np.bool_] | None = None,
    delays: Floats | float = 0.0,
    protocol: Protocol = SIMPLE,
) -> Floats:
    """Row per ring, position i, position j: from the arrival of j to when i leaves.

    j is so late that all others wait for it. With fixed times on the edges a ring is linear in max
    and plus: i leaves at the latest of arrival j plus path (i, j), whoever comes when.
    ``takes``: what a slice takes over the edge out of each position, row per ring, in any unit.
    ``loops``: how often all operations are gone through, chunk by chunk of a large message.
    ``written``: the edges over which the sender's own kernel writes, which takes it that long.
    ``delays``: by how much later what goes over each edge arrives, and the word that its buffer is
    free again; as ``takes``.
    """
    count = takes.shape[-1]
    sends = PASSES[op] * (count - 1)
    takes = takes[:, None, :]
    delays = (np.zeros(count) + delays)[..., None, :]
    busy = takes * written if written is not None else np.zeros_like(takes)
    before = np.roll(np.arange(count), 1)
    after = np.roll(before, -2)
    long_ago = _LONG_AGO * takes.max() * np.ones_like(takes)
    now: Floats = np.where(np.eye(count, dtype=bool), 0.0, long_ago)
    wire: Floats = np.array(now)
    arrived: list[Floats] = []  # at the next position, by slice
    used: list[Floats] = []  # by the next position, by slice
    for number in range(min(loops, MOST_LOOPS) * (sends + 1) * protocol.slices):
        within = number % ((sends + 1) * protocol.slices)
        if within >= protocol.slices:  # the first operation only sends
            now = np.maximum(now, arrived[len(used)][..., before])
        if within < sends * protocol.slices:  # the last only receives
            unread = len(arrived) - protocol.in_flight
            if 0 <= unread < len(used):
                now = np.maximum(now, used[unread])
            now = now + busy
            wire = np.where(busy > 0, now, np.maximum(wire, now) + takes)
            arrived.append(wire + delays)
        if within >= protocol.slices:
            used.append(now[..., after] + delays)
    return now.swapaxes(1, 2)
