"""Latency NCCL expects of one cell of its table, in microseconds.

Follows ncclTopoTuneModel (src/graph/tuning.cc); release numbers in conditions say since when.
"""

from advisor.model.nccl.cell import Cell
from advisor.model.topology import Graph, PathType

# PAT's start: written into the formula until 2.27, in the table of base latencies since.
_PAT_START_US = 8.0


def floor_log2(value: int) -> int:
    """floor(log2(value)), and 0 for values below 2."""
    return max(value, 1).bit_length() - 1


def latency_us(cell: Cell) -> float:
    """Latency of one call."""
    graph = cell.graph
    if graph is None:
        return 0.0
    algorithm, protocol, version = cell.algorithm, cell.protocol, cell.version
    nodes, ranks = cell.topology.nodes, cell.topology.ranks
    in_node = ranks // nodes - 1
    base = cell.constants.base(algorithm, protocol)
    intra, inter = _intra(cell, graph), _inter(cell, graph)
    if nodes > 1 and protocol == "LL" and version < (2, 18, 0):
        intra *= 1.8
    if algorithm == "Ring":
        if cell.function in ("Broadcast", "Reduce"):
            return base + _rooted_ring(cell, graph)
        between = _inter_steps(cell)
        overhead = _net_overhead(cell)
        return base + (cell.steps - between) * max(intra, overhead) + between * inter
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
            net = cell.constants.hardware("net", algorithm, protocol)  # no plugin's share
            return base + intra + 2 * (nodes - 1) * net
        return base + intra + 2 * floor_log2(nodes) * inter
    return _PAT_START_US + floor_log2(nodes) * inter / 3.5 + 2.8 * ranks


def _intra(cell: Cell, graph: Graph) -> float:
    if graph.type_intra == PathType.NVL:
        return cell.constants.hardware("nvlink", cell.algorithm, cell.protocol)
    on_power = (cell.algorithm, cell.protocol, cell.topology.arch) == ("Tree", "Simple", "power")
    return cell.constants.hardware("pci", "Ring" if on_power else cell.algorithm, cell.protocol)


def _inter(cell: Cell, graph: Graph) -> float:
    # With one GPU per node latency cannot hide behind the node: Tree's figure for everybody.
    lone = cell.topology.ranks == cell.topology.nodes and cell.version >= (2, 23, 0)
    inter = cell.constants.hardware("net", "Tree" if lone else cell.algorithm, cell.protocol)
    plugin = graph.latency_inter
    if cell.version < (2, 12, 0):
        return inter
    if cell.topology.library == "rccl" and cell.version < (2, 23, 0):
        return (plugin or inter) + (plugin if cell.protocol == "Simple" else 0.0)
    if cell.version < (2, 18, 0):
        return plugin or inter
    # Simple pays it twice: once more for the flush.
    return inter + plugin * (2 if cell.protocol == "Simple" else 1)


def _inter_steps(cell: Cell) -> int:
    nodes = cell.topology.nodes
    if nodes == 1:
        return 0
    if cell.function != "AllReduce":
        return nodes - 1
    return 2 * nodes if (2, 12, 0) <= cell.version < (2, 23, 0) else 2 * (nodes - 1)


def _rooted_ring(cell: Cell, graph: Graph) -> float:
    topology, hardware = cell.topology, cell.constants.hardware
    intra = "nvlink" if graph.type_intra == PathType.NVL else "pci"
    link = intra if topology.nodes == 1 else "net"
    if graph.same_channels:
        return hardware(link, "Ring", cell.protocol)
    on_power = link == "pci" and topology.arch == "power"
    chunked = "Tree" if cell.protocol == "Simple" and not on_power else "Ring"
    return topology.ranks * hardware(link, chunked, cell.protocol)


def _net_overhead(cell: Cell) -> float:
    topology = cell.topology
    if topology.nodes == 1 or cell.version < (2, 18, 0):
        return 0.0
    overhead = 2.0 if topology.arch == "x86" and topology.cpu_vendor == "amd" else 1.0
    return overhead * (3 if cell.protocol == "Simple" else 1)
