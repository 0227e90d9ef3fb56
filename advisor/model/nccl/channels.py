"""How many channels and threads NCCL gives a call once algorithm and protocol are chosen.

Restates the tail of the choice in src/enqueue.cc, scheduleCollTasksToPlan (2.22+) for the
channels a lone call really occupies, and the communicator's channel count of src/init.cc and
src/graph/connect.cc.
"""

from __future__ import annotations

from math import ceil

from advisor.model.nccl.bandwidth import graph_of, searched_channels
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Topology

_WARP = 32
_PCI_GBPS = 12.0  # PCI gen3 x16: slower rings start with half the threads


def communicator_channels(topology: Topology, version: NcclVersion) -> int:
    """The log's ``coll channels``: twice the searched count, more across nodes."""
    if topology.coll_channels is not None:
        return topology.coll_channels
    graph = topology.ring or topology.tree
    assert graph is not None  # Topology checks it
    searched = searched_channels(topology, graph)
    count = 2 * searched
    ring_bw = topology.ring.bw_intra if topology.ring is not None else 0.0
    if topology.compute_capability >= 90 and topology.nodes > 1 and ring_bw > 45 and count < 16:
        count *= 2
    if topology.collnet is not None and topology.collnet.channels and topology.nodes > 1:
        count += count // 2
    return max(1, min(count, 64 if version >= (2, 25, 0) else 32))


def nvls_channels(topology: Topology, version: NcclVersion) -> int:
    """Channels of NVLS: 16, and from 2.27 on Blackwell 24 on one node, 32 on several."""
    if topology.nvls_channels is not None:
        return topology.nvls_channels
    if topology.compute_capability >= 100 and version >= (2, 27, 0):
        return 24 if topology.nodes == 1 else 32
    return 16


def max_threads(topology: Topology, algorithm: str, protocol: str, version: NcclVersion) -> int:
    """Threads per channel before shrinking: the log's ``Max NThreads``."""
    if algorithm not in ("Tree", "Ring"):
        return 640
    if protocol == "LL128":
        return 640
    if (algorithm, protocol) == ("Ring", "Simple"):
        graph = graph_of(topology, "Ring", version)
        slow = graph is not None and (
            graph.bw_intra * searched_channels(topology, graph) <= _PCI_GBPS
        )
        return 256 if slow else 512
    return 512


def threshold(algorithm: str, protocol: str, ranks: int) -> int:
    """Bytes per thread under which a channel or half the threads are dropped."""
    if algorithm.startswith("CollNet"):
        return 512
    if protocol == "Simple":
        return 64
    return 8 * ranks if (algorithm, protocol) == ("Ring", "LL") else 8


def channels_and_threads(
    topology: Topology, algorithm: str, protocol: str, total_bytes: int, version: NcclVersion
) -> tuple[int, int]:
    """Channels allowed and threads per channel for a message of `total_bytes`."""
    threads = max_threads(topology, algorithm, protocol, version)
    if algorithm in ("NVLS", "NVLSTree"):
        return nvls_channels(topology, version), threads
    channels = communicator_channels(topology, version)
    per_thread = threshold(algorithm, protocol, topology.ranks)
    while channels > 1 and total_bytes < channels * threads * per_thread:
        channels -= 1
    if algorithm != "CollNetDirect":
        while total_bytes < channels * threads * per_thread and threads % 128 == 0:
            threads //= 2
    if algorithm in ("Tree", "PAT"):
        return channels, 640
    if (algorithm, protocol) == ("Ring", "Simple"):
        threads += _WARP
    return channels, max(threads, 3 * _WARP)


def scheduled_channels(
    topology: Topology,
    function: str,
    protocol: str,
    own_bytes: int,
    allowed: int,
    version: NcclVersion,
) -> int:
    """Channels a lone call occupies: the size of the log's ``channel{Lo..Hi}`` (2.22+).

    `own_bytes` is the call's own count in bytes: per rank for AllGather and ReduceScatter.
    """
    if version < (2, 22, 0) or own_bytes <= 0:
        return allowed
    traffic = {"AllReduce": 2, "AllGather": topology.ranks, "ReduceScatter": topology.ranks}.get(
        function, 1
    )
    if protocol == "LL" and version >= (2, 26, 0):
        traffic *= 4
    least = 512 if version < (2, 23, 0) else 16384 if version < (2, 29, 0) else 32768
    cell = _round_up(ceil(least / traffic))
    cells = ceil(own_bytes / cell)
    per_channel = _round_up(ceil(max(least, own_bytes * traffic) / allowed))
    cells_per_channel = min(cells, ceil(per_channel / (cell * traffic)))
    return min(allowed, ceil(cells / cells_per_channel))


def _round_up(value: int) -> int:
    return (value + 15) // 16 * 16
