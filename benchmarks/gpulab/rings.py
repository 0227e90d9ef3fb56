"""When each rank of an NCCL ring ends: the slice pipeline of its primitives, step by step.

From NVIDIA/nccl src/device/all_reduce.h (runRing), all_gather.h and reduce_scatter.h: per loop a
rank sends a chunk, passes on what it receives, and at last only receives. A chunk is two slices
(ALLREDUCE_SLICESTEPS = NCCL_STEPS/4, CHUNKSTEPS = NCCL_STEPS/2, src/include/collectives.h), the
buffer to the next rank holds NCCL_STEPS = 8 steps, so a sender is at most four slices ahead of its
reader. An edge carries slices one after another. Everything that the ends show of a slow edge
follows from this; nothing is fitted.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

import numpy as np

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


@lru_cache(maxsize=4096)
def ring_ends(
    edges: tuple[float, ...], network: tuple[bool, ...], op: str, loops: int
) -> tuple[float, ...]:
    """When each position of the ring ends, ns after the first one does.

    ``edges[i]``: ns that one slice takes from position i to i + 1, through a NIC where
    ``network[i]``: then a proxy thread sends while the kernel goes on; over NVLink the kernel
    itself writes into the next GPU. ``op``: all_reduce, all_gather or reduce_scatter.
    """
    n = len(edges)
    cost, proxied = np.array(edges), np.array(network)
    own_cost = np.where(proxied, 0.0, cost)
    sends = 2 * (n - 1) if op == "all_reduce" else n - 1
    posted = np.zeros(n)  # when a position last finished a primitive's slice
    arrived = np.zeros(n)  # when the edge out of a position delivered its last slice
    history: list[np.ndarray] = []  # arrival of each slice on each edge
    consumed: list[np.ndarray] = []  # when the reader of each edge freed each slice
    ended = np.zeros(n)
    for _ in range(min(loops, _MOST_LOOPS)):
        first = len(history)
        for message in range(sends):
            for part in range(_SLICES):
                ready = posted
                if message:
                    read = history[first + (message - 1) * _SLICES + part]
                    ready = np.maximum(ready, np.roll(read, 1))
                # The buffer of four slices must have room at the next rank.
                if len(consumed) >= 4:
                    back = len(history) - 4
                    if back < len(consumed):
                        ready = np.maximum(ready, consumed[back])
                posted = ready + own_cost
                if message:  # it freed what it read
                    consumed.append(np.roll(posted, -1))
                arrived = np.where(proxied, np.maximum(posted, arrived) + cost, posted)
                history.append(arrived)
        for part in range(_SLICES):  # the last primitive only receives
            read = history[first + (sends - 1) * _SLICES + part]
            posted = np.maximum(posted, np.roll(read, 1))
            consumed.append(np.roll(posted, -1))
        ended = posted
    ends = ended - ended.min()
    return tuple(ends.tolist())
