"""Times of collectives on a number of GPUs of one machine type, from NCCL's cost model.

Where the table has no NCCL graphs (AMD) link bandwidths and a flat latency stand in, and the
plan says so.
"""

from dataclasses import dataclass, field
from math import ceil

from advisor.config.hardware import Device, Machine, device_of
from advisor.errors import AdvisorError
from advisor.model.nccl.calibration import Calibration
from advisor.model.nccl.cost import predict
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Topology
from advisor.model.topology_machine import topology_of

# Stand-ins where NCCL's model does not apply: usual figures of link benchmarks, and said as such.
LINK_EFFICIENCY = 0.8
LATENCY_US = {"intra": 3.0, "inter": 10.0}
# What NCCL's model leaves out of every call: launch and synchronisation. nccl-tests on 8xA100
# shows 34 us where the model says 8 to 12 (superbenchmark's recordings); 16 to 35 us elsewhere.
CALL_OVERHEAD_US = 20.0


@dataclass(frozen=True)
class Group:
    """The shape of a process group: nodes x ranks on each."""

    nodes: int
    per_node: int

    @property
    def ranks(self) -> int:
        """Ranks in the group."""
        return self.nodes * self.per_node


@dataclass
class Cluster:
    """`gpus` GPUs on nodes of `machine`; times are seconds, sizes bytes."""

    machine: Machine
    gpus: int
    nccl: NcclVersion
    calibration: Calibration | None = None
    _topologies: dict[Group, Topology] = field(default_factory=dict, repr=False)
    _times: dict[tuple[str, int, Group], float] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        per_node = self.machine.gpus_per_node
        if self.gpus < 1 or (self.gpus > per_node and self.gpus % per_node):
            raise AdvisorError(
                f"{self.gpus} GPUs do not fill nodes of {per_node}",
                where=self.machine.name,
                hint=f"give up to {per_node}, or a multiple of {per_node}",
            )

    @property
    def device(self) -> Device:
        """The accelerator."""
        return device_of(self.machine)

    @property
    def nodes(self) -> int:
        """Nodes used."""
        return ceil(self.gpus / self.machine.gpus_per_node)

    @property
    def modelled_by_nccl(self) -> bool:
        """Whether NCCL's cost model gives the times; RCCL's ranks its options and gives none."""
        return self.machine.nccl_one_node is not None and self.device.vendor == "nvidia"

    def group(self, ranks: int, stride: int = 1) -> Group:
        """A group of `ranks` ranks, `stride` apart in the order of GPUs, packed into nodes."""
        per_node = max(1, min(ranks, min(self.machine.gpus_per_node, self.gpus) // stride))
        return Group(ceil(ranks / per_node), per_node)

    def collective_s(self, op: str, total_bytes: float, group: Group) -> float:
        """Time of one collective on `total_bytes` (all ranks' data for gathers)."""
        if group.ranks == 1 or total_bytes <= 0:
            return 0.0
        key = (op, round(total_bytes), group)
        if key not in self._times:
            self._times[key] = (
                self._by_nccl(*key) if self.modelled_by_nccl else self._by_links(*key)
            )
        return self._times[key]

    def _by_nccl(self, op: str, total_bytes: int, group: Group) -> float:
        topology = self._topologies.get(group)
        if topology is None:
            topology = topology_of(self.machine, group.nodes, group.per_node)
            self._topologies[group] = topology
        prediction = predict(topology, op, total_bytes, self.nccl, dtype="bfloat16")
        if prediction.choice is None:
            raise AdvisorError(f"NCCL has no algorithm for {op} here", where=self.machine.name)
        if self.calibration is not None and self.calibration.covers(group.nodes):
            return self.calibration.time_us(prediction)[0] * 1e-6
        return (prediction.choice.time_us + CALL_OVERHEAD_US) * 1e-6

    def _by_links(self, op: str, total_bytes: int, group: Group) -> float:
        rounds = 2 if op == "allreduce" else 1
        level = "intra" if group.nodes == 1 else "inter"
        bandwidth = self.link_gbps(group) * LINK_EFFICIENCY * 1e9
        if group.nodes > 1:
            # A ring enters and leaves each node once, over the NICs that the group's ranks share.
            bandwidth *= group.per_node
        volume = rounds * (group.ranks - 1) / group.ranks * total_bytes
        latency = (rounds * (group.ranks - 1) * LATENCY_US[level] + CALL_OVERHEAD_US) * 1e-6
        return volume / bandwidth + latency

    def link_gbps(self, group: Group) -> float:
        """GB/s of one rank's way to its peers: inside a node, or its share of the NICs.

        In a mesh each peer is behind a link of its own, and those to other GPUs are idle.
        """
        if group.nodes == 1:
            is_mesh = self.machine.intra.kind == "infinity-fabric"
            others = self.machine.gpus_per_node - 1 if is_mesh else 1
            return self.machine.intra.gpu_gbps * min(max(1, group.ranks - 1), others) / others
        return self.machine.network.node_gbps / self.machine.gpus_per_node

    def point_to_point_s(self, size: float, *, between_nodes: bool) -> float:
        """One send and receive of `size` bytes."""
        level = "inter" if between_nodes else "intra"
        group = Group(2, 1) if between_nodes else Group(1, 2)
        bandwidth = self.link_gbps(group) * LINK_EFFICIENCY * 1e9
        return size / bandwidth + LATENCY_US[level] * 1e-6

    def all_to_all_s(self, size: float, group: Group) -> float:
        """One all-to-all of `size` bytes per rank: the part that leaves the node sets the pace."""
        if group.ranks == 1:
            return 0.0
        outside = (group.ranks - group.per_node) / group.ranks * size
        inside = (group.per_node - 1) / group.ranks * size
        over_nic = outside / (self.link_gbps(Group(2, 1)) * LINK_EFFICIENCY * 1e9)
        peers = Group(1, group.per_node)
        over_link = inside / (self.link_gbps(peers) * LINK_EFFICIENCY * 1e9)
        level = "intra" if group.nodes == 1 else "inter"
        return max(over_nic, over_link) + LATENCY_US[level] * 1e-6
