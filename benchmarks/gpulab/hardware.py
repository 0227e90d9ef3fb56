"""The simulated machines: GPUs, NVLink, NICs and NCCL's graphs, from the project's hardware table.

Only figures that have a source are used: data sheets for peaks and links, NCCL's search rule or a
log for its rings and trees (advisor/model/hardware). A group that spans hosts gets the rails that
its ranks sit next to; what several groups share is left to the fabric.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from advisor.config.hardware import Machine, device_of, machine
from advisor.model.nccl.cost import predict
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Topology

MATMUL_EFFICIENCY = 0.55
"""Share of the dense peak that well-shaped matrix products reach in training (Llama 3 report,
arXiv:2407.21783, section 3.3: 38-43 % of a whole step on H100; the products alone do better)."""

DEVICE_NAMES = {
    "H100 SXM": "NVIDIA H100 80GB HBM3",
    "A100 SXM 80GB": "NVIDIA A100-SXM4-80GB",
    "V100 SXM2 32GB": "Tesla V100-SXM2-32GB",
    "B200 SXM": "NVIDIA B200",
    "H200 SXM": "NVIDIA H200",
}
"""As the traces print them (deviceProperties)."""


@dataclass(frozen=True)
class Hardware:
    """One machine type. Rates are bytes per ns (= GB/s), memory too; peaks are FLOP per ns."""

    name: str
    device_name: str
    capability: int
    sms: int
    gpus_per_host: int
    nics: int
    nic_rate: float
    nvlink_rate: float
    memory_rate: float
    bf16_flops: float
    host_link_rate: float
    memory_bytes: int

    def flops(self, dtype: str) -> float:
        """Reached FLOP per ns in matrix products."""
        return self.bf16_flops * MATMUL_EFFICIENCY * (1.0 if dtype == "bf16" else 0.5)

    def nic_of(self, local_rank: int) -> int:
        """The NIC beside a GPU."""
        return local_rank * self.nics // self.gpus_per_host


_SMS = {70: 80, 80: 108, 90: 132, 100: 148}


@cache
def hardware(name: str) -> Hardware:
    """A machine of the project's hardware table by name. Raises AdvisorError when unknown."""
    found = machine(name)
    device = device_of(found)
    capability = device.compute_capability or 80
    return Hardware(
        name=name,
        device_name=DEVICE_NAMES.get(device.name, f"NVIDIA {device.name}"),
        capability=capability,
        sms=_SMS[capability // 10 * 10],
        gpus_per_host=found.gpus_per_node,
        nics=found.network.nics,
        nic_rate=found.network.nic_gbps,
        nvlink_rate=found.intra.gpu_gbps,
        memory_rate=device.memory_gbps,
        bf16_flops=device.peak_tflops.get("bf16", device.peak_tflops.get("fp16", 100.0)) * 1e3,
        host_link_rate=found.host_link_gbps,
        memory_bytes=int(device.memory_gb * 1e9),
    )


@dataclass(frozen=True)
class Chosen:
    """What NCCL takes for a call: ``latency_ns`` and ``rate`` bytes/ns of the call's total size.

    The wire carries ``inflation`` times the payload (flags of LL and LL128).
    """

    algorithm: str
    protocol: str
    channels: int
    latency_ns: float
    rate: float

    @property
    def inflation(self) -> float:
        """LL sends 4 bytes of flag with 4 of data, LL128 8 with 120 (NCCL src/device/prims_ll*)."""
        return {"LL": 2.0, "LL128": 16 / 15}.get(self.protocol, 1.0)


@cache
def choose(
    name: str, nodes: int, per_node: int, rails: int, op: str, total: int, version: NcclVersion
) -> Chosen:
    """NCCL's choice for ``total`` bytes of ``op`` in a group of nodes x per_node with ``rails``."""
    topology = _topology(machine(name), nodes, per_node, rails)
    prediction = predict(topology, op, total, version, algo=None)
    choice = prediction.choice
    assert choice is not None, (name, nodes, per_node, op)
    row = prediction.row(choice.algo, choice.proto)
    # The time is the model's own; the row's rate lacks the tree's correction by size.
    rate = total / (1000 * max(choice.time_us - row.latency_us, 1e-3)) if total else 1.0
    latency = choice.time_us - total / (1000 * rate)
    return Chosen(choice.algo, choice.proto, max(choice.channels, 1), latency * 1000, rate)


def _topology(found: Machine, nodes: int, per_node: int, rails: int) -> Topology:
    graphs = found.nccl_one_node if nodes == 1 else found.nccl_several_nodes
    assert graphs is not None, found.name
    fields: dict[str, Any] = {"ring": dict(graphs.ring), "tree": dict(graphs.tree)}
    if graphs.nvls is not None and nodes == 1 and per_node == found.gpus_per_node:
        fields["nvls"] = dict(graphs.nvls)
    if nodes > 1:
        for graph in fields.values():
            graph["channels"] = max(1, graph["channels"] * rails // found.network.nics)
    return Topology(
        name=found.name,
        nodes=nodes,
        ranks_per_node=per_node,
        compute_capability=device_of(found).compute_capability or 80,
        cpu_vendor=found.cpu_vendor if found.cpu_vendor != "arm" else "arm",
        nvswitch=found.intra.kind == "nvswitch",
        **fields,
    )
