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

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.statistics import Floats

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


def paths_after(
    op: str,
    takes: Floats,
    loops: Sequence[int],
    written: NDArray[np.bool_] | None = None,
    delays: Floats | float = 0.0,
    protocol: Protocol = SIMPLE,
) -> list[Floats]:
    """By number of loops, in ascending order: what fewer leave is on the way to more.

    Each a row per ring, position i, position j: from the arrival of j to when i leaves. j is so
    late that all others wait for it. With fixed times on the edges a ring is linear in max and
    plus: i leaves at the latest of arrival j plus path (i, j), whoever comes when.
    ``takes``: what a slice takes over the edge out of each position, row per ring, in any unit.
    ``loops``: how often all operations are gone through, chunk by chunk of a large message.
    ``written``: the edges over which the sender's own kernel writes, which takes it that long.
    ``delays``: by how much later what goes over each edge arrives, and the word that its buffer is
    free again; as ``takes``.
    """
    count = takes.shape[-1]
    starts: Floats = np.full((count, takes.shape[0], count), _LONG_AGO * takes.max())
    starts[np.arange(count), :, np.arange(count)] = 0.0
    return ends_after(op, starts, takes, loops, written, delays, protocol)


def ends_after(
    op: str,
    starts: Floats,
    takes: Floats,
    loops: Sequence[int],
    written: NDArray[np.bool_] | None = None,
    delays: Floats | float = 0.0,
    protocol: Protocol = SIMPLE,
) -> list[Floats]:
    """When positions leave by when they come: ``starts`` by position, ring and case, as ``takes``.

    By number of loops, in ascending order, each by ring, position and case.
    """
    asked = [min(n, MOST_LOOPS) for n in loops]
    count = takes.shape[-1]
    operations = PASSES[op] * (count - 1) + 1
    # Positions come first: what one sends to the next is a block of memory. Times of edges are as
    # long as starts: numpy adds blocks several times as fast as one number over few cases.
    apart, takes = (
        np.broadcast_to(by_edge.T[..., None], starts.shape).copy()
        for by_edge in (np.zeros_like(takes) + delays, takes)
    )
    own = np.zeros(count, dtype=np.bool_) if written is None else written
    delayed, writes = bool(apart.any()), bool(own.any())
    # The wire out of a position whose kernel writes is never behind it, and takes no more time.
    by_kernel, by_proxy = takes.copy(), takes
    by_kernel[~own], by_proxy[own] = 0.0, 0.0
    now, wire = starts.copy(), starts.copy()
    arrived: deque[Floats] = deque()  # from each position at the next, by slice
    used: deque[Floats] = deque()  # by the next position, by slice
    sent, found = 0, {}
    for number in range(asked[-1] * operations):
        sends, receives = (number + 1) % operations != 0, number % operations != 0
        for _ in range(protocol.slices):
            if receives:  # all operations but the first of a loop
                came = arrived.popleft()
                np.maximum(now[1:], came[:-1], out=now[1:])
                np.maximum(now[0], came[-1], out=now[0])
            if sends:  # all but the last
                if sent >= protocol.in_flight:
                    np.maximum(now, used.popleft(), out=now)
                if writes:
                    now += by_kernel
                np.maximum(wire, now, out=wire)
                wire += by_proxy
                arrived.append(wire + apart if delayed else wire.copy())
                sent += 1
            if receives:
                free = np.concatenate([now[1:], now[:1]])
                if delayed:
                    free += apart
                used.append(free)
        if not sends:
            found[(number + 1) // operations] = now.transpose(1, 0, 2).copy()
    return [found[n] for n in asked]
