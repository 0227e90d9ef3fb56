"""The hardware table: peaks of devices and machines by name, every figure with its source.

The data are the YAML files of advisor/model/hardware: devices.yaml (looked up by the device name
that a trace carries) and one file per machine. Peaks are dense; unknown hardware is None, never a
guess.
"""

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from advisor.config.loader import FileModel, load_model
from advisor.errors import AdvisorError
from advisor.vocabulary.dtypes import short_name

_FOLDER = Path(__file__).resolve().parent.parent / "model" / "hardware"
_VARIANT = r"(?!\s*(?:ti|super|d|laptop|max-q)\b)"

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]


PCIE_GBPS: Mapping[int, float] = {70: 15.75, 80: 31.5, 90: 63.0, 100: 126.0, 120: 63.0}
"""What a GPU's PCIe x16 carries one way, from this compute capability on: generations 3 to 6
(PCI-SIG; Volta, Ampere and Ada, Hopper, Blackwell by their data sheets; GeForce's has 5)."""


class Device(FileModel):
    """One accelerator. Bandwidths in GB/s (1e9); `link_gbps` is one direction, all links.

    `mesh_gpus`: GPUs of the smallest board that joins each to each other by an equal part of its
    links; 1 where every board has a switch, None where links are bridges that a card may lack.
    `gpudirect`: whether a NIC may reach its memory by itself (GPUDirect RDMA).
    """

    name: str
    match: list[str] = Field(min_length=1)
    vendor: Literal["nvidia", "amd", "intel"]
    compute_capability: int | None = None
    peak_tflops: dict[Dtype, float]
    peak_source: str = Field(min_length=5)
    memory_gb: float = Field(gt=0)
    memory_gbps: float = Field(gt=0)
    memory_source: str = Field(min_length=5)
    link_gbps: float | None = Field(default=None, gt=0)
    link_source: str | None = None
    mesh_gpus: int | None = Field(default=None, ge=1)
    gpudirect: bool = True

    @field_validator("peak_tflops")
    @classmethod
    def _positive(cls, value: dict[Dtype, float]) -> dict[Dtype, float]:
        if not value or min(value.values()) <= 0:
            raise ValueError("every peak must be above zero")
        return value

    @model_validator(mode="after")
    def _link_has_source(self) -> "Device":
        if (self.link_gbps is None) != (self.link_source is None):
            raise ValueError("link_gbps and link_source belong together")
        return self

    @property
    def pcie_gbps(self) -> float | None:
        """What its PCIe x16 carries one way; None where its generation is not known."""
        own = self.compute_capability or 0
        return next((PCIE_GBPS[c] for c in sorted(PCIE_GBPS)[::-1] if c <= own), None)

    def peak_flops(self, dtype: str) -> float | None:
        """Dense FLOP/s for 'bf16', 'float32', ...; None where the source names none."""
        key: Any = short_name(dtype) or dtype.lower()
        peak = self.peak_tflops.get(key)
        return None if peak is None else peak * 1e12


class _Devices(FileModel):
    devices: list[Device]


class Network(FileModel):
    """What connects the nodes: `nics` per node of `nic_gbps` GB/s each, one direction."""

    kind: Literal["infiniband", "roce", "efa", "tcp", "gpudirect-tcpx"]
    nics: int = Field(ge=1)
    nic_gbps: float = Field(gt=0)
    gpudirect: bool
    source: str = Field(min_length=5)

    @property
    def node_gbps(self) -> float:
        """GB/s out of one node."""
        return self.nics * self.nic_gbps


class Intra(FileModel):
    """What connects the GPUs of a node: GB/s per GPU, one direction."""

    kind: Literal["nvswitch", "nvlink", "infinity-fabric", "pcie"]
    gpu_gbps: float = Field(gt=0)
    source: str = Field(min_length=5)


def _shared_out(graph: dict[str, Any]) -> dict[str, Any]:
    """What groups on a part of a node get a share of are numbers. Raises ValueError."""
    for name in ("channels", "bw_intra", "bw_inter"):
        value = graph.get(name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} must be a number")
    return graph


_Graph = Annotated[dict[str, Any], AfterValidator(_shared_out)]


class GraphSet(FileModel):
    """NCCL's graphs for full nodes, as a log shows them or as NCCL's own search finds them."""

    basis: Literal["log", "search"]
    source: str = Field(min_length=5)
    ring: _Graph
    tree: _Graph
    nvls: _Graph | None = None


class Machine(FileModel):
    """A node type: its GPUs, links, NICs, host and, for NCCL, the graphs found on it."""

    name: str
    description: str
    device: str
    gpus_per_node: int = Field(ge=1, le=72)
    cpu_vendor: Literal["intel", "amd", "arm"]
    host_memory_gb: float = Field(gt=0)
    host_link_gbps: float = Field(gt=0, description="GB/s between a GPU and host memory")
    host_source: str = Field(min_length=5)
    intra: Intra
    network: Network
    nccl_one_node: GraphSet | None = None
    nccl_several_nodes: GraphSet | None = None


@cache
def devices() -> tuple[Device, ...]:
    """All devices of the table."""
    return tuple(load_model(_FOLDER / "devices.yaml", _Devices).devices)


@cache
def find_device(device_name: str) -> Device | None:
    """The device called e.g. 'NVIDIA H100 80GB HBM3'; the longest matching entry wins.

    None when the table does not have it: laptop, Ti and MIG variants are other devices.
    """
    best: tuple[int, Device] | None = None
    if re.search(r"\b(laptop|max-q|mig)\b", device_name, re.IGNORECASE):
        return None
    lower = device_name.lower()
    for device in devices():
        for phrase in device.match:
            if phrase.lower() not in lower:
                continue  # compiling a pattern takes longer than all else here
            pattern = rf"(?<![a-z0-9]){re.escape(phrase)}(?![a-z0-9]){_VARIANT}"
            if re.search(pattern, device_name, re.IGNORECASE) and (
                best is None or len(phrase) > best[0]
            ):
                best = (len(phrase), device)
    return best[1] if best else None


def peak_flops(device_name: str, dtype: str) -> tuple[float, str] | None:
    """Dense FLOP/s of a device by name, and the source; None when either is unknown."""
    device = find_device(device_name)
    peak = device.peak_flops(dtype) if device else None
    return None if device is None or peak is None else (peak, device.peak_source)


@cache
def machine_names() -> tuple[str, ...]:
    """Names of all machines."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml") if path.stem != "devices"))


def machine(name: str) -> Machine:
    """A machine by name, or by the path of a YAML file of the same form.

    Raises AdvisorError with near names, or naming file and line of every mistake in a file.
    """
    if name.endswith((".yaml", ".yml")):
        found = load_model(Path(name), Machine)
    else:
        key = name.strip().lower().replace("_", "-")
        if key not in machine_names():
            close = get_close_matches(key, machine_names(), n=3, cutoff=0.4)
            near = f"did you mean {' or '.join(close)}? " if close else ""
            raise AdvisorError(
                f"unknown hardware '{name}'",
                hint=f"{near}known: {', '.join(machine_names())}, or the path of a YAML file",
            )
        found = load_model(_FOLDER / f"{key}.yaml", Machine)
    device_of(found)
    return found


@cache
def _machines() -> tuple[Machine, ...]:
    return tuple(map(machine, machine_names()))


@cache
def machine_sold_as(instance: str) -> Machine | None:
    """The machine of an instance type (p5.48xlarge), as its description begins with it."""
    return next((one for one in _machines() if instance in one.description.split()[:2]), None)


@cache
def gpus_per_nic() -> tuple[int, ...]:
    """How many GPUs share a NIC on machines of the table that have several NICs."""
    several = [(one.gpus_per_node, one.network.nics) for one in _machines()]
    return tuple(sorted({max(gpus // nics, 1) for gpus, nics in several if nics > 1}))


@cache
def machines_with(device: str) -> tuple[Machine, ...]:
    """The machines of the table with a device."""
    return tuple(one for one in _machines() if one.device == device)


def device_of(found: Machine) -> Device:
    """The device of a machine. Raises AdvisorError when devices.yaml does not have it."""
    for device in devices():
        if device.name == found.device:
            return device
    raise AdvisorError(
        f"device '{found.device}' is not in the table",
        where=found.name,
        hint=f"known: {', '.join(device.name for device in devices())}",
    )
