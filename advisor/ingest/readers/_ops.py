"""One name per operation: NCCL, nccl-tests, the Inspector and torch spell them differently."""

from __future__ import annotations

import re

_CANONICAL = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherv": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "allgatherintotensor": "all_gather",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallbase": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "allbarrier": "barrier",
    "send": "send",
    "recv": "recv",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
}


def canonical_op(name: str) -> str | None:
    """The store's name of an operation (``AllReduce``, ``all_reduce_perf`` → ``all_reduce``).

    None when the name is not known.
    """
    base = name.rsplit("/", 1)[-1].rsplit(":", 1)[-1].lower()
    base = base.removesuffix("_perf").removeprefix("nccl")
    key = re.sub(r"[^a-z]", "", base).removesuffix("coalesced")
    return _CANONICAL.get(key)


def busbw_factor(op: str, ranks: int) -> float:
    """busbw / algbw as nccl-tests defines it (doc/PERFORMANCE.md of nccl-tests)."""
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "hypercube"}:
        return (ranks - 1) / ranks
    return 1.0
