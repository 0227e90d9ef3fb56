"""Latency NCCL expects of one (function, algorithm, protocol) on one topology, in microseconds.

Follows ncclTopoTuneModel (src/graph/tuning.cc); release numbers in conditions say since when.
"""

from __future__ import annotations

from advisor.model.nccl.bandwidth import graph_of, steps
from advisor.model.nccl.constants import Constants
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Graph, PathType, Topology

# PAT's start: written into the formula until 2.27, in the table of base latencies since.
_PAT_START_US = 8.0


def floor_log2(value: int) -> int:
    """floor(log2(value)), and 0 for values below 2."""
    return max(value, 1).bit_length() - 1


def latency_us(
    topology: Topology,
    function: str,
    algorithm: str,
    protocol: str,
    version: NcclVersion,
    constants: Constants,
    net_overhead_us: float | None = None,
) -> float:
    """Latency of one call. `net_overhead_us` stands for NCCL_NET_OVERHEAD (which is in ns)."""
    graph = graph_of(topology, algorithm, version)
    if graph is None:
        return 0.0
    nodes, ranks = topology.nodes, topology.ranks
    in_node = ranks // nodes - 1
    base = constants.base(algorithm, protocol)
    intra = _intra(topology, graph, algorithm, protocol, constants)
    inter = _inter(topology, graph, algorithm, protocol, version, constants)
    if nodes > 1 and protocol == "LL" and version < (2, 18, 0):
        intra *= 1.8
    if algorithm == "Ring":
        if function in ("Broadcast", "Reduce"):
            return base + _rooted_ring(topology, graph, protocol, constants)
        overhead = _net_overhead(topology, protocol, version, net_overhead_us)
        between = _inter_steps(function, nodes, version)
        total = steps(function, ranks)
        return base + (total - between) * max(intra, overhead) + between * inter
    if algorithm == "Tree":
        return base + 2 * (in_node * intra + floor_log2(nodes) * inter)
    if algorithm == "CollNetDirect":
        if version < (2, 10, 0):
            return base + 2 * in_node * intra + inter
        fan = 0.4 if version >= (2, 19, 0) else 0.5
        return base + 2 * (min(1, in_node) * intra + in_node * fan) + inter
    if algorithm == "CollNetChain":
        return base + 2 * in_node * intra + (inter if version >= (2, 18, 0) else 0.0)
    if algorithm == "NVLS":
        start = base if version < (2, 19, 0) else intra
        return start + (inter if nodes > 1 else 0.0)
    if algorithm == "NVLSTree":
        if version < (2, 19, 0):
            net = constants.hardware("net", algorithm, protocol)  # no plugin's share
            return base + intra + 2 * (nodes - 1) * net
        return base + intra + 2 * floor_log2(nodes) * inter
    return _PAT_START_US + floor_log2(nodes) * inter / 3.5 + 2.8 * ranks


def _intra(
    topology: Topology, graph: Graph, algorithm: str, protocol: str, constants: Constants
) -> float:
    if graph.type_intra == PathType.NVL:
        return constants.hardware("nvlink", algorithm, protocol)
    if (algorithm, protocol, topology.arch) == ("Tree", "Simple", "power"):
        return constants.hardware("pci", "Ring", protocol)
    return constants.hardware("pci", algorithm, protocol)


def _inter(
    topology: Topology,
    graph: Graph,
    algorithm: str,
    protocol: str,
    version: NcclVersion,
    constants: Constants,
) -> float:
    # With one GPU per node latency cannot hide behind the node: Tree's figure for everybody.
    lone = topology.ranks == topology.nodes and version >= (2, 23, 0)
    inter = constants.hardware("net", "Tree" if lone else algorithm, protocol)
    plugin = graph.latency_inter
    if version < (2, 12, 0):
        return inter
    if version < (2, 18, 0):
        return plugin or inter
    # Simple pays it twice: once more for the flush.
    return inter + plugin * (2 if protocol == "Simple" else 1)


def _inter_steps(function: str, nodes: int, version: NcclVersion) -> int:
    if nodes == 1:
        return 0
    if function != "AllReduce":
        return nodes - 1
    return 2 * nodes if (2, 12, 0) <= version < (2, 23, 0) else 2 * (nodes - 1)


def _rooted_ring(topology: Topology, graph: Graph, protocol: str, constants: Constants) -> float:
    intra = "nvlink" if graph.type_intra == PathType.NVL else "pci"
    link = intra if topology.nodes == 1 else "net"
    if graph.same_channels:
        return constants.hardware(link, "Ring", protocol)
    chunked = "Tree" if protocol == "Simple" else "Ring"
    if chunked == "Tree" and link == "pci" and topology.arch == "power":
        chunked = "Ring"
    return topology.ranks * constants.hardware(link, chunked, protocol)


def _net_overhead(
    topology: Topology, protocol: str, version: NcclVersion, given_us: float | None
) -> float:
    if topology.nodes == 1 or version < (2, 18, 0):
        return 0.0
    if given_us is not None:
        overhead = given_us
    else:
        overhead = 2.0 if topology.arch == "x86" and topology.cpu_vendor == "amd" else 1.0
    return overhead * (3 if protocol == "Simple" else 1)
