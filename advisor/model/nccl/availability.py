"""Why NCCL would not use a combination on this machine, by default or by environment."""

from advisor.model.nccl.cell import Cell
from advisor.model.nccl.filters import Selection
from advisor.model.topology import PathType

_NVLS_DTYPES = {"float16", "bfloat16", "float32", "float64", "int32", "uint32", "int64", "uint64"}


def ll128_by_default(cell: Cell, *, cuda_11_8: bool) -> bool:
    """Whether NCCL trusts LL128 (128-byte stores seen in order) on these links."""
    topology, version, graph = cell.topology, cell.version, cell.graph
    if graph is None:
        return False
    low, high = topology.compute_capability, topology.highest_compute_capability
    farthest_intra = PathType.NVB if version >= (2, 18, 3) else PathType.NVL
    hopper = low >= 90 and version >= (2, 17, 0)
    farthest_inter = PathType.PXN if hopper else PathType.PXB
    inter = graph.type_inter
    if inter == PathType.P2C and version < (2, 27, 5):
        inter = PathType.PHB  # 2.27.3 had it behind PXN, releases before did not tell it from PHB
    if graph.type_intra > farthest_intra or inter > farthest_inter:
        return False
    if low != high and not (low >= 90 and version >= (2, 30, 0)):
        return False
    trusted = (70, 80, 90) if version >= (2, 15, 0) else (70, 80)
    if version < (2, 25, 0) and low not in trusted:
        return False
    pair = (cell.function, cell.algorithm, topology.ranks) == ("AllReduce", "Ring", 2)
    return low >= 70 and not (low == 90 and cuda_11_8 and pair)


def machine_reason(cell: Cell, dtype: str, reduce_op: str) -> str:
    """Why the machine or the call rules an algorithm out; empty when it does not."""
    topology, version, algorithm = cell.topology, cell.version, cell.algorithm
    if cell.graph is None:
        kind = {"Tree": "tree", "PAT": "tree", "Ring": "ring"}.get(
            algorithm, "nvls" if algorithm.startswith("NVLS") else "collnet"
        )
        return f"no {kind} graph"
    nodes, ranks = topology.nodes, topology.ranks
    if algorithm == "PAT":
        if nodes != ranks:
            return "PAT needs one rank per node"
        return "" if topology.compute_capability >= 60 else "PAT needs sm60"
    collnet = topology.collnet is not None and topology.collnet.channels > 0
    if algorithm.startswith("CollNet"):
        if algorithm == "CollNetDirect" and version >= (2, 14, 0):
            if not topology.nvswitch:
                return "CollNetDirect needs NVSwitch"
            if ranks / nodes > 8:
                return "CollNetDirect covers at most 8 ranks per node"
        if cell.gathers and nodes > 1 and not topology.collnet_gather:
            return "the CollNet plugin offers no all-gather or reduce-scatter"
    if algorithm in ("NVLS", "NVLSTree"):
        if topology.compute_capability < 90:
            return f"{algorithm} needs sm90"
        if algorithm == "NVLSTree" and nodes == 1:
            return "NVLSTree needs several nodes"
        if nodes > 1 and version < (2, 18, 0):
            return "NVLS of 2.17 covers one node"
        if algorithm == "NVLS" and nodes > 1 and not collnet:
            return "NVLS over several nodes needs CollNet"
        if cell.gathers and nodes > 1 and not topology.collnet_gather and version >= (2, 27, 0):
            return "the CollNet plugin offers no all-gather or reduce-scatter"
        if cell.function != "AllGather" and not _nvls_reduces(dtype, reduce_op):
            return f"NVLS does not do {reduce_op} of {dtype}"
    return ""


def _nvls_reduces(dtype: str, reduce_op: str) -> bool:
    if reduce_op == "sum":
        return dtype in _NVLS_DTYPES
    return reduce_op in ("min", "max") and dtype in _NVLS_DTYPES - {"float32", "float64"}


def filter_reason(
    cell: Cell, chosen_algorithms: Selection, chosen_protocols: Selection, *, cuda_11_8: bool
) -> str:
    """Why environment or NCCL's LL128 rule rules it out; empty when they do not."""
    # Until 2.18 NCCL_ALGO was applied to AllReduce alone.
    filtered = cell.function == "AllReduce" or cell.version >= (2, 19, 0)
    if filtered and not chosen_algorithms.allows(cell.function, cell.algorithm):
        return "excluded by NCCL_ALGO"
    named = chosen_protocols.names(cell.function)
    if cell.protocol == "LL128" and cell.topology.library == "rccl":
        # Its table says where. Until 2.27 NCCL_PROTO did not turn it off.
        named = named if cell.version >= (2, 27, 0) else None
        return "" if named is None or "LL128" in named else "excluded by NCCL_PROTO"
    if named is not None:
        return "" if cell.protocol in named else "excluded by NCCL_PROTO"
    if cell.protocol == "LL128" and not ll128_by_default(cell, cuda_11_8=cuda_11_8):
        return "LL128 is off by default on these links"
    return ""
