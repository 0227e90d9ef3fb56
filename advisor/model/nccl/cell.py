"""One cell of NCCL's table: a function by an algorithm and a protocol, on one topology."""

from typing import NamedTuple

from advisor.model.nccl.constants import Constants
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Graph, Topology


class Cell(NamedTuple):
    """What latency, bandwidth and time of a cell follow from; ``constants`` are the release's."""

    topology: Topology
    version: NcclVersion
    constants: Constants
    function: str
    algorithm: str
    protocol: str

    @property
    def graph(self) -> Graph | None:
        """The graph that the algorithm runs on."""
        return graph_of(self.topology, self.algorithm, self.version)

    @property
    def gathers(self) -> bool:
        """Whether every rank gives or gets a part of its own."""
        return self.function in ("AllGather", "ReduceScatter")

    @property
    def row(self) -> int:
        """0 Volta and older, 1 Ampere, 2 Hopper, 3 Blackwell, by the lowest capability of all."""
        topology, version = self.topology, self.version
        low, high = topology.compute_capability, topology.highest_compute_capability
        if version < (2, 17, 0):
            if version >= (2, 15, 0) and low == high == 90:
                return 2
            return 1 if low == high == 80 else 0
        if low >= 100 and version >= (2, 25, 0):
            return 3
        return 2 if low >= 90 else 1 if low >= 80 else 0

    @property
    def column(self) -> int:
        """0 one node, 1 two, 2 more."""
        return min(self.topology.nodes, 3) - 1

    @property
    def steps(self) -> int:
        """Steps of a ring for the function."""
        ranks = self.topology.ranks
        if self.function == "AllReduce":
            return 2 * (ranks - 1)
        return ranks - 1 if self.gathers else ranks


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
