"""Topologies from NCCL's debug log.

The log needs the GRAPH subsystem (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING): its
``Pattern`` lines are the model's inputs, its tables check the model. Without such lines its tables
are the model. What it does not say is assumed, and said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.model.nccl.printed import Check, PrintedTable, best_match
from advisor.model.nccl.version import NcclVersion, parse_version
from advisor.model.topology import Topology, build_topology, compute_capability

_MAX_LINE = 65_536

_PREFIX = re.compile(
    r"(?<![^\s:\[\]])(?P<thread>(?P<host>[^\s:\[\]]++):\d+:\d+) \[\d+\] NCCL INFO (?P<text>.*)"
)
_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
_FIGURE = r"\d{1,9}(?:\.\d{1,9})?"
_PATTERN = re.compile(
    r"Pattern (?P<pattern>\d{1,3}), crossNic (?P<cross>\d{1,3}), nChannels (?P<channels>\d{1,6}), "
    rf"(?:bw|speed) (?P<intra>{_FIGURE})/(?P<inter>{_FIGURE}), "
    r"type (?P<type_intra>\w+)/(?P<type_inter>\w+), sameChannels (?P<same>\d)"
)
_NODES = re.compile(r"nRanks (\d{1,9}) nNodes (\d{1,9})(?!\d)")
_INIT = re.compile(r"nranks (\d{1,9}) .*Init (START|COMPLETE)")
_CHANNELS = re.compile(
    r"(?<!\d)(\d{1,6}) coll channels, (?:(\d{1,6}) collnet channels, )?"
    r"(?:(\d{1,6}) nvls channels, )?\d+ p2p"
)
_NVLINK = re.compile(rf"NVL\[({_FIGURE})\]")
_CPU = re.compile(r"CPU/[\w-]+ \((\d+)/(\d+)/(-?\d+)\)")
_CPU_ARCH = {"1": "x86", "2": "power", "3": "arm"}
_CPU_VENDOR = {"1": "intel", "2": "amd", "3": "zhaoxin", "4": "mixed"}

# What a table needs of a graph that no line shows: that it is there.
_NO_GRAPH: dict[str, Any] = {
    **{"pattern": 4, "cross_nic": 0, "bw_intra": 1.0, "bw_inter": 1.0},
    **{"type_intra": "NVL", "type_inter": "PIX", "same_channels": True},
}
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
    printed: Mapping[tuple[str, str, str], tuple[float, float]] | None = None


@dataclass
class _Communicator:
    ranks: int | None = None
    nodes: int | None = None
    graphs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    coll_channels: int | None = None
    nvls_channels: int | None = None

    def add(self, kind: str, graph: dict[str, Any]) -> None:
        self.graphs.setdefault(kind, []).append(graph)


def topology_from_log(
    lines: Iterable[str],
    *,
    where: str = "log",
    capability: int | None = None,
    cpu_vendor: str | None = None,
    release: NcclVersion | None = None,
) -> Read:
    """The largest communicator of a log; figures are the least over its ranks, as NCCL takes them.

    Raises AdvisorError when the log has neither ``Pattern`` lines nor a table, or does not tell its
    size.
    """
    version: NcclVersion | None = None
    hosts: set[str] = set()
    nvlink = 0.0
    cpus: set[tuple[str, str]] = set()
    threads: dict[str, _Communicator] = {}
    done: list[_Communicator] = []
    table = PrintedTable()
    for line in lines:
        if version is None and (found := _VERSION.search(line)):
            version = parse_version(found[1])
        prefix = _PREFIX.search(line)
        if prefix is None:
            continue
        hosts.add(prefix["host"])
        text = prefix["text"]
        table.feed(text)
        here = threads.setdefault(prefix["thread"], _Communicator())
        if found := _INIT.search(text):
            here.ranks = int(found[1])
            if found[2] == "COMPLETE":
                done.append(threads.pop(prefix["thread"]))
        elif found := _NODES.search(text):
            here.ranks, here.nodes = int(found[1]), int(found[2])
        elif found := _PATTERN.search(text):
            _add_pattern(here, found)
        elif found := _CHANNELS.search(text):
            here.coll_channels = int(found[1])
            here.nvls_channels = int(found[3]) if found[3] and found[3] != "0" else None
        elif found := _CPU.search(text):
            cpus.add((found[1], found[2]))
        if found := _NVLINK.search(text):
            nvlink = max(nvlink, float(found[1]))
    every = [*done, *threads.values()]
    communicators = [item for item in every if item.graphs]
    known_cpu = cpu_vendor is not None or bool(cpus)
    environment = {f"NCCL_{name}": value for name, value in table.environment.items()}
    if not communicators and table.cells:
        for item in every:
            item.add("ring", _NO_GRAPH | {"channels": max(1, (item.coll_channels or 2) // 2)})
        read = _assemble(every, version, hosts, nvlink, cpus, where, capability, cpu_vendor)
        said = ("latencies and bandwidths as the log's table prints them", *read.assumptions)
        return replace(read, assumptions=said, environment=environment, printed=table.cells)
    if not communicators:
        raise AdvisorError(
            "neither 'Pattern' lines nor a tuning table: this log does not hold NCCL's model",
            where=where,
            hint="record with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,ENV",
        )
    read = _assemble(communicators, version, hosts, nvlink, cpus, where, capability, cpu_vendor)
    settled = _settle(read, table, release or version, capability is not None, known_cpu)
    return replace(settled, environment=environment)


def _settle(
    read: Read,
    table: PrintedTable,
    release: NcclVersion | None,
    known_capability: bool,
    known_cpu: bool,
) -> Read:
    """Let the printed table decide what the log does not say."""
    if release is None or not table.cells:
        return read
    guessed = read.topology
    capabilities = [guessed.compute_capability]
    if not known_capability:
        capabilities += [value for value in (70, 80, 90, 100) if value not in capabilities]
    vendors = [guessed.cpu_vendor] if known_cpu else [guessed.cpu_vendor, "amd"]
    candidates = [
        guessed.model_copy(update={"compute_capability": value, "cpu_vendor": vendor})
        for value in capabilities
        for vendor in vendors
    ]
    best = best_match(table, candidates, release)
    if best is None:
        return read
    topology, check = best
    fits = f"reproduces {check.equal} of {check.cells} printed cells"
    settled = [
        f"compute capability {topology.compute_capability}: {fits}"
        if text.startswith("compute capability")
        else f"CPU vendor {topology.cpu_vendor}: {fits}"
        if text.startswith("CPU vendor")
        else text
        for text in read.assumptions
    ]
    return Read(topology, read.version, tuple(settled), check)


def _add_pattern(here: _Communicator, found: re.Match[str]) -> None:
    pattern = int(found["pattern"])
    kind = {4: "ring", 5: "nvls", 6: "collnet"}.get(pattern, "tree")
    if kind == "tree" and "tree" in here.graphs:
        return  # CollNetChain's search prints a second tree
    here.add(
        kind,
        {
            "pattern": pattern,
            "cross_nic": min(int(found["cross"]), 2),
            "channels": int(found["channels"]),
            "bw_intra": float(found["intra"]),
            "bw_inter": float(found["inter"]),
            "type_intra": found["type_intra"],
            "type_inter": found["type_inter"],
            "same_channels": found["same"] == "1",
        },
    )


def _assemble(
    communicators: list[_Communicator],
    version: NcclVersion | None,
    hosts: set[str],
    nvlink: float,
    cpus: set[tuple[str, str]],
    where: str,
    capability: int | None,
    cpu_vendor: str | None,
) -> Read:
    assumptions = []
    largest = max(item.ranks or 0 for item in communicators)
    if largest == 0:
        raise AdvisorError(
            "the log does not say how many ranks there are",
            where=where,
            hint="keep the 'Init START' or 'Init COMPLETE' lines (NCCL_DEBUG_SUBSYS=INIT)",
        )
    members = [item for item in communicators if item.ranks == largest]
    nodes = next((item.nodes for item in members if item.nodes), None)
    if nodes is None:
        nodes = max(1, len(hosts))
        assumptions.append(f"{nodes} node{'s' if nodes > 1 else ''}: hosts that wrote the log")
    graphs = {
        kind: _least([graph for item in members for graph in item.graphs.get(kind, [])])
        for kind in ("ring", "tree", "nvls", "collnet")
    }
    if capability is None:
        capability, how = guess_capability(nvlink, graphs)
        assumptions.append(how)
    if cpu_vendor is None and cpus:
        vendors = {_CPU_VENDOR.get(vendor, "other") for _, vendor in cpus}
        cpu_vendor = vendors.pop() if len(vendors) == 1 else "mixed"
    elif cpu_vendor is None:
        cpu_vendor = "intel"
        assumptions.append("CPU vendor intel: the log shows no CPU line")
    arch = {_CPU_ARCH.get(arch, "x86") for arch, _ in cpus}
    fields: dict[str, Any] = {
        "name": Path(where).name,
        "source": where,
        "nodes": nodes,
        "ranks_per_node": largest / nodes,
        "compute_capability": capability,
        "cpu_vendor": cpu_vendor,
        "cpu_arch": arch.pop() if len(arch) == 1 else None,
        "coll_channels": next((item.coll_channels for item in members if item.coll_channels), None),
        "nvls_channels": next((item.nvls_channels for item in members if item.nvls_channels), None),
        **{kind: graph for kind, graph in graphs.items() if graph and graph["channels"]},
    }
    return Read(build_topology(fields, where), version, tuple(assumptions))


def _least(graphs: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not graphs:
        return None
    result = dict(graphs[0])
    for key in ("channels", "bw_intra", "bw_inter"):
        result[key] = min(graph[key] for graph in graphs)
    result["same_channels"] = all(graph["same_channels"] for graph in graphs)
    return result


def guess_capability(nvlink: float, graphs: dict[str, dict[str, Any] | None]) -> tuple[int, str]:
    for least, capability in _NVLINK_SUMS:
        if nvlink >= least:
            return capability, f"compute capability {capability}: NVL[{nvlink:g}]"
    if graphs["nvls"] and graphs["nvls"]["channels"]:
        return 90, "compute capability 90: the log has an NVLS graph"
    return 80, "compute capability 80: nothing in the input tells it (--compute-capability)"


def read_log(
    path: Path,
    *,
    capability: int | None = None,
    cpu_vendor: str | None = None,
    release: NcclVersion | None = None,
) -> Read:
    """`topology_from_log` of a file; lines beyond 64 KiB are cut. Raises AdvisorError."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            lines = iter(lambda: stream.readline(_MAX_LINE), "")
            return topology_from_log(
                lines,
                where=str(path),
                capability=capability,
                cpu_vendor=cpu_vendor,
                release=release,
            )
    except OSError as error:
        raise AdvisorError(f"cannot be read: {error.strerror}", where=str(path)) from error


def parse_capability(text: str | None) -> int | None:
    """90 from '9.0', '90' or 'sm90'; None stays None. Raises AdvisorError."""
    if text is None:
        return None
    try:
        return int(compute_capability(text))
    except ValueError as error:
        raise AdvisorError(f"'{text}': {error}", hint="write it like 9.0 or 90") from error
