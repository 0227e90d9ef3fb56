"""What NCCL's cost model needs to know of a communicator: its size and its searched graphs.

A topology comes from a YAML file (`load_topology`), from a log or a graph dump
(`advisor.model.nccl.inputs`), or from the hardware table (`advisor.model.topology_search`).
Field names follow NCCL's log line ``Pattern 4, crossNic 0, nChannels 12, bw 30.0/30.0,
type NVL/PIX, sameChannels 1``.
"""

import re
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from advisor.config.loader import FileModel, load_model
from advisor.errors import AdvisorError
from advisor.vocabulary.numbers import decimal, real


class PathType(IntEnum):
    """Kinds of paths between devices, best first; the order is NCCL's and is compared."""

    LOC = 0
    NVL = 1
    NVB = 2
    C2C = 3
    PIX = 4
    PXB = 5
    P2C = 6
    PXN = 7
    PHB = 8
    SYS = 9
    NET = 10
    DIS = 11


BALANCED_TREE, SPLIT_TREE, TREE, RING, NVLS, COLLNET = 1, 2, 3, 4, 5, 6
_PATTERNS = {
    "balanced_tree": BALANCED_TREE, "split_tree": SPLIT_TREE, "tree": TREE, "ring": RING,
    "nvls": NVLS, "collnet": COLLNET, "collnet_direct": COLLNET,
}  # fmt: skip


def _path_type(value: Any) -> Any:
    if isinstance(value, str) and value.strip().upper() in PathType.__members__:
        return PathType[value.strip().upper()]
    if isinstance(value, PathType):
        return value
    raise ValueError(f"expected one of {', '.join(PathType.__members__)}")


def _pattern(value: Any) -> Any:
    if isinstance(value, str):
        name = value.strip().lower().replace("-", "_")
        if name in _PATTERNS:
            return _PATTERNS[name]
        number = decimal(name)
        if number is None:
            raise ValueError(f"expected 1 to 6 or one of {', '.join(_PATTERNS)}")
        return number
    return value


def compute_capability(value: Any) -> Any:
    """90 from 90, 9.0, '9.0', 'sm90' or 'sm_90a': major times ten plus minor."""
    text = re.sub(r"^(sm|compute)_?", "", str(value).strip().lower()).rstrip("af")
    number = real(text)
    if number is None:
        raise ValueError("expected a compute capability such as 90 or 9.0")
    return round(number * 10) if number < 20 else round(number)


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


_VENDOR_NAMES = {"genuineintel": "intel", "authenticamd": "amd", "power": "ibm", "grace": "nvidia"}


def _vendor(value: Any) -> Any:
    name = _lower(value)
    return _VENDOR_NAMES.get(name, name) if isinstance(name, str) else name


def _without_nulls(value: Any) -> Any:
    """`key: null` in a file means the default."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None}
    return value


PathTypeField = Annotated[PathType, BeforeValidator(_path_type)]
CpuVendor = Annotated[
    Literal["intel", "amd", "mixed", "arm", "nvidia", "ibm", "zhaoxin", "other"],
    BeforeValidator(_vendor),
]


class Graph(FileModel):
    """One searched graph: `channels` rings or trees of `bw_intra` GB/s inside a node.

    `channels` is the searched count (the log's ``nChannels``), not the doubled ``coll channels``.
    `bw_inter` is GB/s per channel between nodes; it defaults to `bw_intra`, for NVLS to twice
    that, the ceiling NCCL's search raises it to.
    `latency_inter` (microseconds) is what a network plugin adds; NCCL's own transports add none.
    """

    pattern: Annotated[int, BeforeValidator(_pattern), Field(ge=1, le=6)] | None = None
    channels: int = Field(ge=0, le=64)
    bw_intra: float = Field(ge=0, allow_inf_nan=False)
    bw_inter: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    type_intra: PathTypeField = PathType.NVL
    type_inter: PathTypeField = PathType.PIX
    same_channels: bool = True
    cross_nic: int = Field(default=0, ge=0, le=2)
    latency_inter: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    _defaults = model_validator(mode="before")(_without_nulls)

    @property
    def inter(self) -> float:
        """GB/s per channel between nodes."""
        return self.bw_intra if self.bw_inter is None else self.bw_inter

    @property
    def nvls_inter(self) -> float:
        """`inter` of an NVLS graph."""
        return 2 * self.bw_intra if self.bw_inter is None else self.bw_inter


class Graphs(FileModel):
    """The graphs under one key, for files that group them."""

    ring: Graph | None = None
    tree: Graph | None = None
    nvls: Graph | None = None
    collnet: Graph | None = None


class Topology(FileModel, frozen=False):
    """A communicator: `nodes` x `ranks_per_node` ranks and its graphs.

    `compute_capability` is the lowest of all ranks (90 or 9.0); `max_compute_capability` only
    where GPUs differ. `coll_channels` and `nvls_channels` are the final counts of the log's
    ``coll channels`` line, where known; else they are worked out.
    """

    name: str = ""
    source: str = ""
    library: Literal["nccl", "rccl"] = "nccl"
    nodes: int = Field(ge=1, le=1_000_000)
    ranks_per_node: float = Field(ge=1, le=1024)
    compute_capability: Annotated[int, BeforeValidator(compute_capability), Field(ge=30, le=300)]
    max_compute_capability: (
        Annotated[int, BeforeValidator(compute_capability), Field(ge=30, le=300)] | None
    ) = None
    cpu_vendor: CpuVendor = "intel"
    cpu_arch: Annotated[Literal["x86", "arm", "power"], BeforeValidator(_lower)] | None = None
    nvswitch: bool = True
    ring: Graph | None = None
    tree: Graph | None = None
    nvls: Graph | None = None
    collnet: Graph | None = None
    graphs: Graphs | None = None
    coll_channels: int | None = Field(default=None, ge=1, le=64)
    nvls_channels: int | None = Field(default=None, ge=1, le=64)
    collnet_gather: bool = False

    _defaults = model_validator(mode="before")(_without_nulls)

    @model_validator(mode="after")
    def _merge_graphs(self) -> "Topology":
        for kind in ("ring", "tree", "nvls", "collnet"):
            grouped = getattr(self.graphs, kind, None)
            if grouped is not None:
                if getattr(self, kind) is not None:
                    raise ValueError(f"'{kind}' stands both at the top and under 'graphs'")
                setattr(self, kind, grouped)
        self.graphs = None
        if self.ring is None and self.tree is None:
            raise ValueError("at least the 'ring' graph is needed")
        if abs(self.nodes * self.ranks_per_node - self.ranks) > 1e-6:
            raise ValueError("nodes x ranks_per_node is not a whole number of ranks")
        return self

    @property
    def ranks(self) -> int:
        """Ranks of the communicator."""
        return round(self.nodes * self.ranks_per_node)

    @property
    def arch(self) -> str:
        """CPU architecture, from the vendor where not given."""
        if self.cpu_arch is not None:
            return self.cpu_arch
        return {"arm": "arm", "nvidia": "arm", "ibm": "power"}.get(self.cpu_vendor, "x86")

    @property
    def highest_compute_capability(self) -> int:
        """The highest compute capability of all ranks."""
        return self.max_compute_capability or self.compute_capability


def load_topology(path: Path) -> Topology:
    """Read a topology file. Raises AdvisorError naming file and line of every mistake."""
    return load_model(path, Topology)


def build_topology(fields: dict[str, Any], where: str) -> Topology:
    """A topology of these fields. Raises AdvisorError with the first that cannot be."""
    try:
        return Topology.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise AdvisorError(f"{name}: {first['msg']}", where=where) from error
