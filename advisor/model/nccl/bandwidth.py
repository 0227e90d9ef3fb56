"""Bandwidth NCCL expects of one (function, algorithm, protocol) on one topology.

Follows ncclTopoTuneModel (src/graph/tuning.cc) release by release; numbers in comments name the
release from which a rule holds. The result is in terms of the bytes NCCL compares: the total
size (ranks x count for AllGather and ReduceScatter). 0.0 means that the model rules it out.
"""

from __future__ import annotations

from advisor.model.nccl.constants import Constants
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import TREE, Graph, Topology

_GATHER = ("AllGather", "ReduceScatter")


def graph_of(topology: Topology, algorithm: str, version: NcclVersion) -> Graph | None:
    """The searched graph an algorithm runs on: PAT shares Tree's; NVLS used Ring's in 2.17."""
    if algorithm == "Ring" or (algorithm == "NVLS" and version < (2, 18, 0)):
        return topology.ring
    if algorithm in ("Tree", "PAT"):
        return topology.tree
    return topology.nvls if algorithm.startswith("NVLS") else topology.collnet


def searched_channels(topology: Topology, graph: Graph) -> int:
    """Channels of a graph; Ring and Tree are cut to the smaller of the two."""
    if graph in (topology.ring, topology.tree):
        both = [item.channels for item in (topology.ring, topology.tree) if item is not None]
        return min(both)
    return graph.channels


def capability_row(topology: Topology, version: NcclVersion) -> int:
    """0 Volta and older, 1 Ampere, 2 Hopper, 3 Blackwell, by the lowest capability of all GPUs."""
    low, high = topology.compute_capability, topology.highest_compute_capability
    if version < (2, 17, 0):
        if version >= (2, 15, 0) and low == high == 90:
            return 2
        return 1 if low == high == 80 else 0
    if low >= 100 and version >= (2, 25, 0):
        return 3
    return 2 if low >= 90 else 1 if low >= 80 else 0


def steps(function: str, ranks: int) -> int:
    """Steps of a ring for the function."""
    if function == "AllReduce":
        return 2 * (ranks - 1)
    return ranks - 1 if function in _GATHER else ranks


def bandwidth_gbps(
    topology: Topology,
    function: str,
    algorithm: str,
    protocol: str,
    version: NcclVersion,
    constants: Constants,
) -> float:
    """Algorithm bandwidth in GB/s, before switches and environment are looked at."""
    graph = graph_of(topology, algorithm, version)
    if graph is None or graph.channels == 0:
        return 0.0
    nodes, ranks = topology.nodes, topology.ranks
    per_node = ranks / nodes
    channels = searched_channels(topology, graph)
    row, column = capability_row(topology, version), min(nodes, 3) - 1
    if algorithm.startswith("NVLS"):
        bus = channels * _nvls_channel(topology, graph, function, algorithm, version, constants)
    elif nodes <= 2 or algorithm.startswith("CollNet"):
        bus = channels * graph.bw_intra
    else:
        bus = channels * graph.inter
    if version < (2, 18, 0):
        # Measured ceilings of a DGX A100 and, in 2.17, H100.
        ceiling = {1: 235.0, 2: 370.0 if version >= (2, 17, 0) else float("inf")}
        bus = min(bus, ceiling.get(row, float("inf")))
    if algorithm == "Ring":
        bus = _ring(topology, function, protocol, version, constants, bus, channels, row, column)
    elif algorithm == "Tree":
        bus = _tree(topology, graph, function, protocol, version, constants, bus, channels)
    elif algorithm == "PAT":
        bus *= 0.75 if version >= (2, 24, 0) else 0.85
    elif algorithm == "CollNetDirect":
        bus = _collnet_direct(graph, function, per_node, topology, version, bus, channels)
        bus /= 6 if protocol == "LL" else 1  # 2.8: without GPUDirect reads on both sides
    elif algorithm == "CollNetChain" and version < (2, 18, 0):
        bus *= 0.75
    return bus * _algorithm_ratio(function, algorithm, version, ranks, nodes)


def _nvls_channel(
    topology: Topology,
    graph: Graph,
    function: str,
    algorithm: str,
    version: NcclVersion,
    constants: Constants,
) -> float:
    nodes, per_node = topology.nodes, topology.ranks / topology.nodes
    intra, inter = graph.bw_intra, graph.nvls_inter
    gather = function in _GATHER
    if version >= (2, 28, 0):
        if graph.channels < 2:
            return 0.0
        row = capability_row(topology, version)
        intra *= constants.nvls_efficiency[row] * (graph.channels - 1) / graph.channels
        intra *= (per_node - 1) / per_node if gather else 2.0
        if algorithm == "NVLS":
            return min(intra, inter)
        inter *= 2 if nodes <= 2 else 1
        return min(intra, inter, constants.nvlstree_gbps[row][min(nodes, 3) - 1])
    if version >= (2, 27, 0) and gather:
        return min(intra * (per_node - 1) / per_node, 0.9 * inter)
    if version >= (2, 19, 0):
        if algorithm == "NVLSTree" and nodes > 2:
            inter /= 2
        return min(intra, inter)
    return intra if nodes <= 2 else inter


def _ring(
    topology: Topology,
    function: str,
    protocol: str,
    version: NcclVersion,
    constants: Constants,
    bus: float,
    channels: int,
    row: int,
    column: int,
) -> float:
    nodes = topology.nodes
    if protocol == "LL":
        if version >= (2, 21, 0):
            factor = 1 / 2
        else:
            factor = 1 / 4 if nodes > 1 or function in ("AllReduce", "Reduce") else 1 / 3
        return min(_ll_max(topology, version, constants), bus * factor)
    if protocol == "LL128":
        # One GPU per node sends and receives through the same NIC: discounted until 2.22.
        lone = topology.ranks / nodes < 2 and version < (2, 23, 0)
        per_channel = constants.ll128_per_function_gbps.get(function.lower())
        if per_channel is None:
            per_channel = constants.ring_ll128_gbps[row][column]
        return min(bus * (0.7 if lone else 0.92), channels * per_channel)
    return bus


def _tree(
    topology: Topology,
    graph: Graph,
    function: str,
    protocol: str,
    version: NcclVersion,
    constants: Constants,
    bus: float,
    channels: int,
) -> float:
    nodes = topology.nodes
    row, column = capability_row(topology, version), min(nodes, 3) - 1
    tree_row = min(row, len(constants.tree_gbps) - 1)
    bus = min(0.92 * bus, channels * constants.tree_gbps[tree_row][column])
    if protocol == "LL":
        bus = min(bus / 3.8, _ll_max(topology, version, constants))
    elif protocol == "LL128":
        between = 0.915 if version < (2, 10, 0) else 120 / 128
        per_channel = constants.ll128_per_function_gbps.get(function.lower())
        if per_channel is None:
            per_channel = constants.tree_ll128_gbps[row][column]
        bus = min(bus * (7 / 9 if nodes == 1 else between), channels * per_channel)
    if graph.pattern == TREE and version >= (2, 18, 3):
        bus *= 0.85
    return bus


def _ll_max(topology: Topology, version: NcclVersion, constants: Constants) -> float:
    """LL's ceiling: by GPU on one node, by CPU vendor on several, whatever the GPU."""
    if topology.nodes == 1:
        row = capability_row(topology, version)
    else:
        slow = ("amd", "mixed") if version >= (2, 24, 0) else ("amd",)
        row = 1 if topology.cpu_vendor in slow else 0
    return constants.ll_max_gbps[row][min(topology.nodes, 3) - 1]


def _collnet_direct(
    graph: Graph,
    function: str,
    per_node: float,
    topology: Topology,
    version: NcclVersion,
    bus: float,
    channels: int,
) -> float:
    if version < (2, 14, 0):
        return bus * 0.9 if version < (2, 10, 0) else bus
    if function in _GATHER:
        if version >= (2, 27, 0):
            return per_node * min(graph.bw_intra, 0.9 * graph.inter)
        weight = (per_node - 1) / 7
        return per_node * graph.bw_intra * (weight * 0.85 + (1 - weight) * 0.95)
    # Works at full speed only where every GPU has a NIC of its own.
    ratio = per_node / channels
    ratio -= (ratio - 1) / 2
    hopper = topology.compute_capability >= 90 and version >= (2, 18, 0)
    return bus / ratio * (0.85 if hopper else 1.0)


def _algorithm_ratio(
    function: str, algorithm: str, version: NcclVersion, ranks: int, nodes: int
) -> float:
    """What turns bus bandwidth into algorithm bandwidth."""
    if algorithm == "Ring":
        return ranks / steps(function, ranks)
    if function in _GATHER and (version >= (2, 23, 0) or algorithm == "CollNetDirect"):
        return 1.0
    if algorithm.startswith("NVLS"):
        if version >= (2, 28, 0):
            return ranks / steps(function, ranks)
        if algorithm == "NVLSTree" and version < (2, 19, 0):
            return 0.70 * nodes / (2 * (nodes - 1)) if nodes > 1 else 0.0
        return 5 / 6 if version >= (2, 18, 3) else 0.75
    return 0.5
