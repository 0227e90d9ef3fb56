"""Topologies from what NCCL's debug log or its dumped graphs say, as their readers stored it.

The log needs the GRAPH subsystem (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING): its
``Pattern`` lines are the model's inputs, its tables check the model. Without such lines its tables
are the model. A dump (NCCL_GRAPH_DUMP_FILE) also has the latency of a network plugin; it does not
say how many nodes there are, nor the GPUs and CPUs. What is not said is assumed, and that is told.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb

from advisor.errors import AdvisorError
from advisor.model.nccl.printed import Cells, Check, best_match, cells_of
from advisor.model.nccl.version import NcclVersion, parse_version
from advisor.model.topology import COLLNET, Topology, build_topology, compute_capability

_KINDS = ("ring", "tree", "nvls", "collnet")
# What a table needs of a graph that no line shows: that it is there.
_NO_GRAPH: dict[str, Any] = {"pattern": 4, "bw_intra": 1.0, "type_intra": "NVL"}
# GB/s of all links of one GPU to its switch, as NCCL counts them -> compute capability.
_NVLINK_SUMS = ((700.0, 100), (300.0, 90), (200.0, 80), (100.0, 70))


@dataclass(frozen=True)
class Read:
    """A topology, the NCCL release if the input names it, and what had to be assumed.

    `check` compares the model with the table that the log prints, where it prints one;
    `environment` is what the log says NCCL_ALGO and NCCL_PROTO were set to, and the check uses.
    `printed` are the cells of its table where it has no graphs: then the topology has a size only.
    """

    topology: Topology
    version: NcclVersion | None
    assumptions: tuple[str, ...]
    check: Check | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    printed: Cells | None = None


def topology_of_run(
    con: duckdb.DuckDBPyConnection,
    *,
    where: str,
    nodes: int | None = None,
    capability: int | None = None,
    cpu_vendor: str | None = None,
    release: NcclVersion | None = None,
) -> Read:
    """The largest communicator of a store; figures are the least over its ranks, as NCCL's are.

    Raises AdvisorError when there are neither graphs nor a table, or nothing tells the size.
    """
    said = _Said(con)
    graphs, cells = said.graphs(), cells_of(con, said.ranks)
    printed = cells if cells and not graphs else None
    assumptions = []
    if printed:
        graphs["ring"] = _NO_GRAPH | {"channels": max(1, (said.channels("coll") or 2) // 2)}
        assumptions.append("latencies and bandwidths as the log's table prints them")
    _refuse_nothing(said, graphs, where)
    if nodes is None:
        nodes, how = said.nodes()
        assumptions += how
    known_capability, known_cpu = capability is not None, bool(cpu_vendor or said.of("cpu"))
    if capability is None:
        capability, guess = said.guess_capability(graphs)
        assumptions.append(guess)
    if not known_cpu:
        assumptions.append("CPU vendor intel: nothing in the input tells it (--cpu-vendor)")
    fields: dict[str, Any] = {
        "name": Path(where).name,
        "source": where,
        "nodes": nodes,
        "ranks_per_node": said.ranks / nodes if said.ranks else said.ranks_per_node,
        "compute_capability": capability,
        "cpu_vendor": cpu_vendor or said.of_cpus("vendor", "mixed") or "intel",
        "cpu_arch": said.of_cpus("arch", None),
        "coll_channels": said.channels("coll"),
        "nvls_channels": said.channels("nvls"),
        **{kind: graph for kind, graph in graphs.items() if graph["channels"] != 0},
    }
    read = Read(
        build_topology(fields, where),
        next((parse_version(text) for name, text in said.facts["version"] if name == "nccl"), None),
        tuple(assumptions),
        environment={n: v for n, v in said.facts["env"] if n in ("NCCL_ALGO", "NCCL_PROTO")},
        printed=printed,
    )
    version = release or read.version
    if printed or not cells or version is None:
        return read
    return _settled(read, cells, version, known_capability, known_cpu)


def _refuse_nothing(said: "_Said", graphs: Mapping[str, Any], where: str) -> None:
    if not graphs:
        raise AdvisorError(
            "neither graphs ('Pattern' lines) nor a tuning table: this does not hold NCCL's model",
            where=where,
            hint="record with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,ENV",
        )
    if not said.ranks and not said.ranks_per_node:
        raise AdvisorError(
            "nothing says how many ranks there are",
            where=where,
            hint="keep the 'Init START' or 'Init COMPLETE' lines (NCCL_DEBUG_SUBSYS=INIT) of a "
            "log, and the channels of a dump",
        )


class _Said:
    """The rows of ``topology`` by kind; ``ranks`` of the largest communicator, 0 of a dump."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.facts: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        for kind, name, value in con.execute(
            "SELECT kind, name, value FROM topology ORDER BY rowid"
        ).fetchall():
            plain = value[:1] not in ("{", "[")
            self.facts[kind].append((name, value if plain else json.loads(value)))
        sizes = [graph["ranks"] for graph in self.of("graph") if "ranks" in graph]
        self.ranks = max(sizes or [one["ranks"] for one in self.of("communicator")], default=0)
        paths = [path for graph in self.of("graph") for path in graph["paths"]]
        self.ranks_per_node = max(
            (sum(step.startswith("GPU/") for step in set(path)) for path in paths), default=0
        )
        self._leaves = any(step.startswith("NET/") for path in paths for step in path)

    def of(self, kind: str) -> list[Any]:
        """The values of a kind."""
        return [value for _, value in self.facts[kind]]

    def of_cpus(self, what: str, mixed: str | None) -> str | None:
        """What all CPUs are, or ``mixed``; None without any."""
        names = {cpu[what] for cpu in self.of("cpu")}
        return names.pop() if len(names) == 1 else mixed if names else None

    def graphs(self) -> dict[str, dict[str, Any]]:
        """Of the largest communicator by kind, but not the tree of a log's CollNet chain."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for kind, graph in self.facts["graph"]:
            chain = "latency_inter" not in graph and graph["pattern"] != COLLNET
            if graph.get("ranks", self.ranks) == self.ranks and not (kind == "collnet" and chain):
                found[kind].append(graph)
        return {kind: _least(found[kind]) for kind in _KINDS if found[kind]}

    def channels(self, what: str) -> int | None:
        """How many the largest communicator has in the end."""
        counts = [one for one in self.of("channels") if one.get("ranks", self.ranks) == self.ranks]
        return next((one[what] for one in counts if one.get(what)), None)

    def nodes(self) -> tuple[int, list[str]]:
        """How many there are, and what that assumes."""
        for one in self.of("communicator"):
            if one["ranks"] == self.ranks and one["nodes"]:
                return one["nodes"], []
        number = max(1, len(self.facts["node"])) if self.ranks else 1 + self._leaves
        why = "hosts that wrote the log" if self.ranks else "a dump does not say (--nodes)"
        return number, [f"{number} node{'s' * (number > 1)}: {why}"]

    def guess_capability(self, graphs: Mapping[str, Any]) -> tuple[int, str]:
        """By what links a GPU has, and what that assumes."""
        nvlink = max((gpu.get("nvlink_gbps") or 0.0 for gpu in self.of("gpu")), default=0.0)
        for least, capability in _NVLINK_SUMS:
            if nvlink >= least:
                return capability, f"compute capability {capability}: NVL[{nvlink:g}]"
        if "nvls" in graphs and graphs["nvls"]["channels"]:
            return 90, "compute capability 90: the input has an NVLS graph"
        return 80, "compute capability 80: nothing in the input tells it (--compute-capability)"


def _settled(
    read: Read, cells: Cells, release: NcclVersion, known_capability: bool, known_cpu: bool
) -> Read:
    """Let the printed table decide what the log does not say."""
    guessed = read.topology
    capabilities = {guessed.compute_capability: None}
    vendors = {guessed.cpu_vendor: None}
    if not known_capability:
        capabilities |= dict.fromkeys((70, 80, 90, 100))
    if not known_cpu:
        vendors |= {"amd": None}
    candidates = [
        guessed.model_copy(update={"compute_capability": value, "cpu_vendor": vendor})
        for value in capabilities
        for vendor in vendors
    ]
    best = best_match(cells, read.environment, candidates, release)
    if best is None:
        return read
    topology, check = best
    fits = f"reproduces {check.equal} of {check.cells} printed cells"
    found = {
        "compute capability": f"compute capability {topology.compute_capability}: {fits}",
        "CPU vendor": f"CPU vendor {topology.cpu_vendor}: {fits}",
    }
    assumptions = tuple(
        next((said for about, said in found.items() if text.startswith(about)), text)
        for text in read.assumptions
    )
    return replace(read, topology=topology, assumptions=assumptions, check=check)


def _least(graphs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    result = {key: graphs[0].get(key) for key in ("pattern", "type_intra", "type_inter")}
    for key in ("channels", "bw_intra", "bw_inter", "latency_inter"):
        result[key] = min((graph.get(key) for graph in graphs), key=lambda figure: figure or 0)
    result["cross_nic"] = min(graphs[0]["cross_nic"] or 0, 2)
    result["same_channels"] = all(graph["same_channels"] != 0 for graph in graphs)
    return result


def parse_capability(text: str | None) -> int | None:
    """90 from '9.0', '90' or 'sm90'; None stays None. Raises AdvisorError."""
    if text is None:
        return None
    try:
        return int(compute_capability(text))
    except ValueError as error:
        raise AdvisorError(f"'{text}': {error}", hint="write it like 9.0 or 90") from error
