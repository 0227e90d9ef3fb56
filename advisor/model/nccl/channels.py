"""How many channels and threads NCCL gives a call once algorithm and protocol are chosen.

Restates the tail of the choice in src/enqueue.cc, scheduleCollTasksToPlan (2.22+) for the
channels a lone call really occupies, and the communicator's channel count of src/init.cc and
src/graph/connect.cc.
"""

from math import ceil

from advisor.model.nccl.cell import Cell, searched_channels
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
    if topology.library == "rccl":
        return 2 * searched if 2 * searched <= (128 if topology.nodes == 1 else 64) else searched
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


def max_threads(cell: Cell) -> int:
    """Threads per channel before shrinking: the log's ``Max NThreads``."""
    if cell.topology.library == "rccl":
        return 256
    if cell.algorithm not in ("Tree", "Ring") or cell.protocol == "LL128":
        return 640
    graph = cell.graph if (cell.algorithm, cell.protocol) == ("Ring", "Simple") else None
    if graph is None:
        return 512
    return 256 if graph.bw_intra * searched_channels(cell.topology, graph) <= _PCI_GBPS else 512


def threshold(cell: Cell) -> int:
    """Bytes per thread under which a channel or half the threads are dropped."""
    if cell.algorithm.startswith("CollNet"):
        return 512
    rules = cell.constants.rules if cell.topology.nodes > 1 else None
    if rules and (tuned := rules.thread_bytes.get(cell.function, {}).get(cell.protocol)):
        return tuned * cell.topology.ranks
    if cell.protocol == "Simple":
        return 64
    return 8 * cell.topology.ranks if (cell.algorithm, cell.protocol) == ("Ring", "LL") else 8


def channels_and_threads(cell: Cell, total_bytes: int) -> tuple[int, int]:
    """Channels allowed and threads per channel for a message of `total_bytes`."""
    algorithm, threads = cell.algorithm, max_threads(cell)
    if algorithm in ("NVLS", "NVLSTree"):
        return nvls_channels(cell.topology, cell.version), threads
    channels = communicator_channels(cell.topology, cell.version)
    per_thread = threshold(cell)
    while channels > 1 and total_bytes < channels * threads * per_thread:
        channels -= 1
    if cell.topology.library == "rccl":
        return channels, threads
    if algorithm != "CollNetDirect":
        while total_bytes < channels * threads * per_thread and threads % 128 == 0:
            threads //= 2
    if algorithm in ("Tree", "PAT"):
        return channels, 640
    if (algorithm, cell.protocol) == ("Ring", "Simple"):
        threads += _WARP
    return channels, max(threads, 3 * _WARP)


def scheduled_channels(cell: Cell, own_bytes: int, allowed: int) -> int:
    """Channels a lone call occupies: the size of the log's ``channel{Lo..Hi}`` (2.22+).

    `own_bytes` is the call's own count in bytes: per rank for AllGather and ReduceScatter.
    """
    version = cell.version
    if version < (2, 22, 0) or own_bytes <= 0:
        return allowed
    traffic = 2 if cell.function == "AllReduce" else cell.topology.ranks if cell.gathers else 1
    if cell.protocol == "LL" and version >= (2, 26, 0):
        traffic *= 4
    least = 512 if version < (2, 23, 0) else 16384 if version < (2, 29, 0) else 32768
    unit = _round_up(ceil(least / traffic))
    units = ceil(own_bytes / unit)
    per_channel = _round_up(ceil(max(least, own_bytes * traffic) / allowed))
    units_per_channel = min(units, ceil(per_channel / (unit * traffic)))
    return min(allowed, ceil(units / units_per_channel))


def _round_up(value: int) -> int:
    return (value + 15) // 16 * 16
