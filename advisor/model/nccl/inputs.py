"""Topologies from what NCCL's debug log or its dumped graphs say, as their readers stored it.

The log needs the GRAPH subsystem (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING): its
``Pattern`` lines are the model's inputs, its tables check the model. Without such lines its tables
are the model. A dump (NCCL_GRAPH_DUMP_FILE) also has the latency of a network plugin; it does not
say how many nodes there are, nor the GPUs and CPUs. What is not said is assumed, and that is told.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
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
    said: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for kind, name, value in con.execute(
        "SELECT kind, name, value FROM topology ORDER BY rowid"
    ).fetchall():
        plain = kind in ("version", "env")
        said[kind].append((name, value if plain else _parsed(value)))
    communicators = [value for _, value in said["communicator"]]
    known = [value["ranks"] for _, value in said["graph"] if "ranks" in value]
    ranks = max(known or [value["ranks"] for value in communicators], default=0)
    graphs = {
        kind: _least(
            [
                graph
                for name, graph in said["graph"]
                if name == kind and graph.get("ranks", ranks) == ranks and _is_own(kind, graph)
            ]
        )
        for kind in _KINDS
    }
    cells = cells_of(con, ranks)
    printed = cells if cells and not any(graphs.values()) else None
    channels = [v for _, v in said["channels"] if v.get("ranks", ranks) == ranks]
    coll = next((value["coll"] for value in channels if value["coll"]), None)
    if printed:
        graphs["ring"] = _NO_GRAPH | {"channels": max(1, (coll or 2) // 2)}
    if not any(graphs.values()):
        raise AdvisorError(
            "neither graphs ('Pattern' lines) nor a tuning table: this does not hold NCCL's model",
            where=where,
            hint="record with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,ENV",
        )
    assumptions = ["latencies and bandwidths as the log's table prints them"] if printed else []
    listed = [path for _, graph in said["graph"] for path in graph["paths"]]
    per_node = max(
        (sum(step.startswith("GPU/") for step in set(path)) for path in listed), default=0
    )
    told = next((v["nodes"] for v in communicators if v["ranks"] == ranks and v["nodes"]), nodes)
    if told is None and ranks:
        told = max(1, len({name for name, _ in said["node"]}))
        assumptions.append(f"{told} node{'s' * (told > 1)}: hosts that wrote the log")
    elif told is None:
        told = 1 + any(step.startswith("NET/") for path in listed for step in path)
        assumptions.append(f"{told} node{'s' * (told > 1)}: a dump does not say (--nodes)")
    if not ranks and not per_node:
        raise AdvisorError(
            "nothing says how many ranks there are",
            where=where,
            hint="keep the 'Init START' or 'Init COMPLETE' lines (NCCL_DEBUG_SUBSYS=INIT) of a "
            "log, and the channels of a dump",
        )
    known_capability, cpus = capability is not None, [value for _, value in said["cpu"]]
    if capability is None:
        nvlink = max((value.get("nvlink_gbps") or 0.0 for _, value in said["gpu"]), default=0.0)
        capability, how = _guess_capability(nvlink, graphs)
        assumptions.append(how)
    known_cpu = cpu_vendor is not None or bool(cpus)
    if cpu_vendor is None:
        cpu_vendor = _one_of({cpu["vendor"] for cpu in cpus}, "mixed") if cpus else "intel"
    if not known_cpu:
        assumptions.append(f"CPU vendor {cpu_vendor}: nothing in the input tells it (--cpu-vendor)")
    fields: dict[str, Any] = {
        "name": Path(where).name,
        "source": where,
        "nodes": told,
        "ranks_per_node": ranks / told if ranks else per_node,
        "compute_capability": capability,
        "cpu_vendor": cpu_vendor,
        "cpu_arch": _one_of({cpu["arch"] for cpu in cpus}, None),
        "coll_channels": coll,
        "nvls_channels": next((v["nvls"] for v in channels if v.get("nvls")), None),
        **{kind: graph for kind, graph in graphs.items() if graph and graph["channels"] != 0},
    }
    version = next(
        (parse_version(value) for name, value in said["version"] if name == "nccl"), None
    )
    environment = {n: v for n, v in said["env"] if n in ("NCCL_ALGO", "NCCL_PROTO")}
    read = Read(
        build_topology(fields, where), version, tuple(assumptions), None, environment, printed
    )
    if printed or not cells or not (release or version):
        return read
    return _settled(read, cells, release or version, known_capability, known_cpu)


def _settled(
    read: Read,
    cells: Cells,
    release: NcclVersion | None,
    known_capability: bool,
    known_cpu: bool,
) -> Read:
    """Let the printed table decide what the log does not say."""
    assert release is not None
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
    told = {
        "compute capability": f"compute capability {topology.compute_capability}: {fits}",
        "CPU vendor": f"CPU vendor {topology.cpu_vendor}: {fits}",
    }
    assumptions = tuple(
        next((said for about, said in told.items() if text.startswith(about)), text)
        for text in read.assumptions
    )
    return replace(read, topology=topology, assumptions=assumptions, check=check)


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _is_own(kind: str, graph: Mapping[str, Any]) -> bool:
    """Not the tree that a log prints of the search for a CollNet chain."""
    return kind != "collnet" or "latency_inter" in graph or graph["pattern"] == COLLNET


def _least(graphs: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not graphs:
        return None
    result = {key: graphs[0].get(key) for key in ("pattern", "type_intra", "type_inter")}
    for key in ("channels", "bw_intra", "bw_inter", "latency_inter"):
        result[key] = min((graph.get(key) for graph in graphs), key=lambda figure: figure or 0)
    result["cross_nic"] = min(graphs[0]["cross_nic"] or 0, 2)
    result["same_channels"] = all(graph["same_channels"] != 0 for graph in graphs)
    return result


def _guess_capability(nvlink: float, graphs: dict[str, Any]) -> tuple[int, str]:
    for least, capability in _NVLINK_SUMS:
        if nvlink >= least:
            return capability, f"compute capability {capability}: NVL[{nvlink:g}]"
    if graphs["nvls"] and graphs["nvls"]["channels"]:
        return 90, "compute capability 90: the input has an NVLS graph"
    return 80, "compute capability 80: nothing in the input tells it (--compute-capability)"


def _one_of(names: set[str | None], otherwise: str | None) -> str | None:
    return names.pop() if len(names) == 1 else otherwise


def parse_capability(text: str | None) -> int | None:
    """90 from '9.0', '90' or 'sm90'; None stays None. Raises AdvisorError."""
    if text is None:
        return None
    try:
        return int(compute_capability(text))
    except ValueError as error:
        raise AdvisorError(f"'{text}': {error}", hint="write it like 9.0 or 90") from error
