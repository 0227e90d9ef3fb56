"""The names of NCCL's functions, algorithms and protocols, and which combinations exist."""

import re

from advisor.errors import AdvisorError
from advisor.model.nccl.version import NcclVersion

# In NCCL's own order: the choice scans algorithms, then protocols, and keeps the first of equals.
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")

# NCCL's element types by torch's names.
DTYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip

_ALIASES = {
    "allgatherbase": "allgather", "allgatherintotensor": "allgather", "bcast": "broadcast",
    "reducescatterbase": "reducescatter", "reducescattertensor": "reducescatter",
    "allreducecoalesced": "allreduce",
}  # fmt: skip

# First release with the algorithm; CollNet was one algorithm until 2.13.
_SINCE: dict[str, NcclVersion] = {
    "Tree": (2, 5, 0), "Ring": (2, 5, 0), "CollNetDirect": (2, 6, 0), "CollNetChain": (2, 14, 0),
    "NVLS": (2, 17, 0), "NVLSTree": (2, 18, 0), "PAT": (2, 23, 0),
}  # fmt: skip


def function_name(text: str) -> str:
    """'AllReduce' from 'allreduce', 'all_reduce', 'all-reduce' or torch's op names.

    Raises AdvisorError for an op without a cost model (send, recv, alltoall, gather, scatter).
    """
    key = re.sub(r"[^a-z0-9]", "", text.lower())
    key = _ALIASES.get(key, key)
    for name in FUNCTIONS:
        if name.lower() == key:
            return name
    raise AdvisorError(
        f"NCCL has no cost model for '{text}'",
        hint=f"known: {', '.join(name.lower() for name in FUNCTIONS)} "
        "(send, recv and all-to-all use no algorithm table)",
    )


def element_type(text: str) -> str:
    """`text` where it names an element type of NCCL. Raises AdvisorError where it does not."""
    if text not in DTYPES:
        raise AdvisorError(
            f"'{text}' is no element type of NCCL", where="--dtype", hint=", ".join(DTYPES)
        )
    return text


def algorithms(version: NcclVersion) -> tuple[str, ...]:
    """The algorithms that the release knows, in its order."""
    return tuple(name for name in ALGORITHMS if version >= _SINCE[name])


def legal(function: str, algorithm: str, protocol: str, version: NcclVersion) -> bool:
    """Whether the release has that combination at all, whatever the machine.

    The table of src/graph/tuning.cc: Broadcast and Reduce are rings only; Tree, CollNetChain and
    NVLSTree exist for AllReduce only; everything but Tree and Ring speaks Simple only.
    """
    if algorithm not in algorithms(version):
        return False
    if algorithm == "Ring":
        return True
    if algorithm == "Tree":
        return function == "AllReduce"
    if protocol != "Simple":
        only_in_2_8 = (function, algorithm, protocol) == ("AllReduce", "CollNetDirect", "LL")
        return only_in_2_8 and version < (2, 9, 0)
    if function == "AllReduce":
        return algorithm != "PAT"
    if function in ("AllGather", "ReduceScatter"):
        if algorithm == "NVLS":
            return version >= (2, 19, 0) or (2, 17, 0) <= version < (2, 18, 0)
        if algorithm == "CollNetDirect":
            return version >= (2, 20, 0)
        return algorithm == "PAT"
    return False
