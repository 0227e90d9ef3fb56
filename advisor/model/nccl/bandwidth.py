"""Bandwidth NCCL expects of one cell of its table.

Follows ncclTopoTuneModel (src/graph/tuning.cc) release by release; numbers in comments name the
release from which a rule holds. The result is in terms of the bytes NCCL compares: the total
size (ranks x count for AllGather and ReduceScatter). 0.0 means that the model rules it out.
"""

from advisor.model.nccl.cell import Cell, searched_channels
from advisor.model.nccl.names import ALGORITHMS, PROTOCOLS
from advisor.model.topology import TREE, Graph


def bandwidth_gbps(cell: Cell) -> float:
    """Algorithm bandwidth in GB/s, before switches and environment are looked at."""
    algorithm, version, graph = cell.algorithm, cell.version, cell.graph
    if graph is None or graph.channels == 0:
        return 0.0
    channels = searched_channels(cell.topology, graph)
    if cell.topology.library == "rccl":
        return _rccl(cell, graph, channels) * _algorithm_ratio(cell)
    if algorithm.startswith("NVLS"):
        bus = channels * _nvls_channel(cell, graph)
    elif cell.topology.nodes <= 2 or algorithm.startswith("CollNet"):
        bus = channels * graph.bw_intra
    else:
        bus = channels * graph.inter
    if version < (2, 18, 0):
        # Measured ceilings of a DGX A100 and, in 2.17, H100.
        ceiling = {1: 235.0, 2: 370.0 if version >= (2, 17, 0) else float("inf")}
        bus = min(bus, ceiling.get(cell.row, float("inf")))
    if algorithm == "Ring":
        bus = _ring(cell, bus, channels)
    elif algorithm == "Tree":
        bus = _tree(cell, graph, bus, channels)
    elif algorithm == "PAT":
        bus *= 0.75 if version >= (2, 24, 0) else 0.85
    elif algorithm == "CollNetDirect":
        bus = _collnet_direct(cell, graph, bus, channels)
        bus /= 6 if cell.protocol == "LL" else 1  # 2.8: without GPUDirect reads on both sides
    elif algorithm == "CollNetChain" and version < (2, 18, 0):
        bus *= 0.75
    return bus * _algorithm_ratio(cell)


def _rccl(cell: Cell, graph: Graph, channels: int) -> float:
    """A measured share of the graph's bandwidth; inside one node no trees of Simple and no LL128.

    PAT is off (NCCL_PAT_ENABLE).
    """
    nodes, algorithm, protocol = cell.topology.nodes, cell.algorithm, cell.protocol
    within = nodes == 1 and ((algorithm, protocol) == ("Tree", "Simple") or protocol == "LL128")
    if within or algorithm == "PAT":
        return 0.0
    share = cell.constants.bandwidth_ratio[nodes > 2]
    bus = channels * (graph.bw_intra if nodes <= 2 else graph.inter)
    bus *= share[ALGORITHMS.index(algorithm)][PROTOCOLS.index(protocol)]
    rooted = nodes == 1 and protocol == "LL" and cell.function in ("Broadcast", "Reduce")
    return bus * cell.constants.rooted_ll_ratio if rooted else bus


def _nvls_channel(cell: Cell, graph: Graph) -> float:
    version, nodes = cell.version, cell.topology.nodes
    per_node = cell.topology.ranks / nodes
    intra, inter = graph.bw_intra, graph.nvls_inter
    if version >= (2, 28, 0):
        if graph.channels < 2:
            return 0.0
        intra *= cell.constants.nvls_efficiency[cell.row] * (graph.channels - 1) / graph.channels
        intra *= (per_node - 1) / per_node if cell.gathers else 2.0
        if cell.algorithm == "NVLS":
            return min(intra, inter)
        inter *= 2 if nodes <= 2 else 1
        return min(intra, inter, cell.constants.nvlstree_gbps[cell.row][cell.column])
    if version >= (2, 27, 0) and cell.gathers:
        return min(intra * (per_node - 1) / per_node, 0.9 * inter)
    if version >= (2, 19, 0):
        if cell.algorithm == "NVLSTree" and nodes > 2:
            inter /= 2
        return min(intra, inter)
    return intra if nodes <= 2 else inter


def _ring(cell: Cell, bus: float, channels: int) -> float:
    nodes = cell.topology.nodes
    if cell.protocol == "LL":
        if cell.version >= (2, 21, 0):
            factor = 1 / 2
        else:
            factor = 1 / 4 if nodes > 1 or cell.function in ("AllReduce", "Reduce") else 1 / 3
        return min(_ll_max(cell), bus * factor)
    if cell.protocol == "LL128":
        # One GPU per node sends and receives through the same NIC: discounted until 2.22.
        lone = cell.topology.ranks / nodes < 2 and cell.version < (2, 23, 0)
        per_channel = cell.constants.ll128_per_function_gbps.get(cell.function.lower())
        if per_channel is None:
            per_channel = cell.constants.ring_ll128_gbps[cell.row][cell.column]
        return min(bus * (0.7 if lone else 0.92), channels * per_channel)
    return bus


def _tree(cell: Cell, graph: Graph, bus: float, channels: int) -> float:
    constants, row, column = cell.constants, cell.row, cell.column
    tree_row = min(row, len(constants.tree_gbps) - 1)
    bus = min(0.92 * bus, channels * constants.tree_gbps[tree_row][column])
    if cell.protocol == "LL":
        bus = min(bus / 3.8, _ll_max(cell))
    elif cell.protocol == "LL128":
        between = 0.915 if cell.version < (2, 10, 0) else 120 / 128
        per_channel = constants.ll128_per_function_gbps.get(cell.function.lower())
        if per_channel is None:
            per_channel = constants.tree_ll128_gbps[row][column]
        one_node = cell.topology.nodes == 1
        bus = min(bus * (7 / 9 if one_node else between), channels * per_channel)
    if graph.pattern == TREE and cell.version >= (2, 18, 3):
        bus *= 0.85
    return bus


def _ll_max(cell: Cell) -> float:
    """LL's ceiling: by GPU on one node, by CPU vendor on several, whatever the GPU."""
    if cell.topology.nodes == 1:
        row = cell.row
    else:
        slow = ("amd", "mixed") if cell.version >= (2, 24, 0) else ("amd",)
        row = 1 if cell.topology.cpu_vendor in slow else 0
    return cell.constants.ll_max_gbps[row][cell.column]


def _collnet_direct(cell: Cell, graph: Graph, bus: float, channels: int) -> float:
    version, per_node = cell.version, cell.topology.ranks / cell.topology.nodes
    if version < (2, 14, 0):
        return bus * 0.9 if version < (2, 10, 0) else bus
    if cell.gathers:
        if version >= (2, 27, 0):
            return per_node * min(graph.bw_intra, 0.9 * graph.inter)
        weight = (per_node - 1) / 7
        return per_node * graph.bw_intra * (weight * 0.85 + (1 - weight) * 0.95)
    # Works at full speed only where every GPU has a NIC of its own.
    ratio = per_node / channels
    ratio -= (ratio - 1) / 2
    hopper = cell.topology.compute_capability >= 90 and version >= (2, 18, 0)
    return bus / ratio * (0.85 if hopper else 1.0)


def _algorithm_ratio(cell: Cell) -> float:
    """What turns bus bandwidth into algorithm bandwidth."""
    algorithm, version, nodes = cell.algorithm, cell.version, cell.topology.nodes
    if algorithm == "Ring":
        return cell.topology.ranks / cell.steps
    if cell.gathers and (version >= (2, 23, 0) or algorithm == "CollNetDirect"):
        return 1.0
    if algorithm.startswith("NVLS"):
        if version >= (2, 28, 0):
            return cell.topology.ranks / cell.steps
        if algorithm == "NVLSTree" and version < (2, 19, 0):
            return 0.70 * nodes / (2 * (nodes - 1)) if nodes > 1 else 0.0
        return 5 / 6 if version >= (2, 18, 3) else 0.75
    return 0.5
