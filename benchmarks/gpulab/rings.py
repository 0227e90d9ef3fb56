"""When each rank of an NCCL ring ends: the slice pipeline of its primitives, step by step.

From NVIDIA/nccl src/device/all_reduce.h (runRing), all_gather.h and reduce_scatter.h: per loop a
rank sends a chunk, passes on what it receives, and at last only receives. A chunk is two slices
(ALLREDUCE_SLICESTEPS = NCCL_STEPS/4, CHUNKSTEPS = NCCL_STEPS/2, src/include/collectives.h), the
buffer to the next rank holds NCCL_STEPS = 8 steps, so a sender is at most four slices ahead of its
reader. An edge carries slices one after another. Everything that the ends show of a slow edge
follows from this; nothing is fitted.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

Slices = NDArray[np.float64]

SIMPLE_CHUNK_BYTES = 2 << 20
"""Of the 4 MiB buffer a channel has per peer, CHUNKSTEPS / NCCL_STEPS (NCCL_BUFFSIZE's default)."""
LL_CHUNK_BYTES = {"LL": 32 << 10, "LL128": 300 << 10}
"""Payload of one step's buffer (src/include/device.h: NCCL_LL_SLICE_LINES; LL128 elems / steps)."""
_SLICES = 2
_MOST_LOOPS = 3  # later loops repeat the same pattern


def loops_of(per_channel: float, ranks: int, protocol: str) -> int:
    """How many times the ring's loop runs for the bytes of one channel (all ranks' part)."""
    chunk = LL_CHUNK_BYTES.get(protocol, SIMPLE_CHUNK_BYTES)
    return max(1, ceil(per_channel / (ranks * chunk)))


def ring_ends(
    edges: Slices,
    network: NDArray[np.bool_],
    op: str,
    loops: int,
    starts: Slices | float = 0.0,
    delays: Slices | float = 0.0,
) -> Slices:
    """When each position of rings of one size ends, ns; a row per ring.

    ``edges[.., i]``: ns that one slice takes from position i to i + 1, through a NIC where
    ``network[.., i]``: then a proxy thread sends while the kernel goes on; over NVLink the kernel
    itself writes into the next GPU. ``op``: all_reduce, all_gather or reduce_scatter. ``starts``:
    when each position comes, ns: who comes early has sent what the buffers hold. ``delays``: by how
    much later what goes over an edge arrives, and the word that its buffer is free again.
    """
    n = edges.shape[-1]
    own_cost = np.where(network, 0.0, edges)
    before = np.roll(np.arange(n), 1)
    after = np.roll(before, -2)
    sends = 2 * (n - 1) if op == "all_reduce" else n - 1
    posted = np.zeros_like(edges) + starts  # when a position last finished a primitive's slice
    sent = posted  # when the edge out of a position had carried its last slice
    history: list[Slices] = []  # arrival of each slice on each edge
    consumed: list[Slices] = []  # when each edge's sender knows that a slice was freed
    for _ in range(min(loops, _MOST_LOOPS)):
        first = len(history)
        for message in range(sends):
            for part in range(_SLICES):
                ready = posted
                if message:
                    read = history[first + (message - 1) * _SLICES + part]
                    ready = np.maximum(ready, read[..., before])
                # The buffer of four slices must have room at the next rank.
                if 4 <= len(history) < len(consumed) + 4:
                    ready = np.maximum(ready, consumed[len(history) - 4])
                posted = ready + own_cost
                if message:  # it freed what it read
                    consumed.append(posted[..., after] + delays)
                sent = np.where(network, np.maximum(posted, sent) + edges, posted)
                history.append(sent + delays)
        for part in range(_SLICES):  # the last primitive only receives
            read = history[first + (sends - 1) * _SLICES + part]
            posted = np.maximum(posted, read[..., before])
            consumed.append(posted[..., after] + delays)
    return posted


def added_ns(
    edges: Slices, network: NDArray[np.bool_], op: str, loops: int, delays: Slices
) -> float:
    """By how much longer the call takes for the delays of its edges: what the buffers do not hide,
    loop after loop."""

    def longer(count: int) -> float:
        ends = (ring_ends(edges, network, op, count, delays=by) for by in (delays, 0.0))
        return float(np.subtract(*(own.max() for own in ends)))

    few = min(loops, _MOST_LOOPS)
    return longer(few) + (loops - few) * max(longer(_MOST_LOOPS) - longer(_MOST_LOOPS - 1), 0.0)
