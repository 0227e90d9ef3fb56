"""Topologies from the file that NCCL_GRAPH_DUMP_FILE writes.

It holds per graph what the log's ``Pattern`` line shows and the latency of a network plugin,
which no log shows; it does not say how many nodes there are, nor the GPUs and CPUs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from advisor.errors import AdvisorError
from advisor.model.nccl.inputs import Read, guess_capability
from advisor.model.topology import build_topology

_MAX_XML_BYTES = 16 * 1024 * 1024


def read_graph(
    path: Path,
    *,
    nodes: int | None = None,
    capability: int | None = None,
    cpu_vendor: str | None = None,
) -> Read:
    """A graph dump (NCCL_GRAPH_DUMP_FILE). Raises AdvisorError on anything else.

    The dump does not say how many nodes there are: `nodes`, else 1 without network devices in
    its channels and 2 with them.
    """
    try:
        if path.stat().st_size > _MAX_XML_BYTES:
            raise AdvisorError("a graph dump is never larger than 16 MiB", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise AdvisorError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if b"<!" in data.replace(b"<!--", b""):
        raise AdvisorError("document type declarations are not accepted", where=str(path))
    try:
        root = ElementTree.fromstring(data)  # noqa: S314 - no declarations, so no entities
    except ElementTree.ParseError as error:
        raise AdvisorError(f"not valid XML: {error}", where=str(path)) from error
    if root.tag != "graphs":
        raise AdvisorError(
            f"expected <graphs>, found <{root.tag}>",
            where=str(path),
            hint="give the file that NCCL_GRAPH_DUMP_FILE wrote",
        )
    return _from_xml(root, path, nodes, capability, cpu_vendor)


def _from_xml(
    root: ElementTree.Element,
    path: Path,
    nodes: int | None,
    capability: int | None,
    cpu_vendor: str | None,
) -> Read:
    assumptions = []
    graphs: dict[str, dict[str, Any] | None] = dict.fromkeys(("ring", "tree", "nvls", "collnet"))
    per_node, has_net = 0, False
    for element in root.iter("graph"):
        read = element.attrib
        kind = {"0": "ring", "1": "tree", "2": "collnet", "3": "nvls"}.get(read.get("id", ""))
        if kind is None:
            continue
        for channel in element.iter("channel"):
            per_node = max(per_node, len({gpu.get("dev") for gpu in channel.iter("gpu")}))
            has_net = has_net or channel.find("net") is not None
        try:
            graphs[kind] = {
                "pattern": int(read["pattern"]),
                "cross_nic": min(int(read.get("crossnic", "0")), 2),
                "channels": int(read["nchannels"]),
                "bw_intra": float(read["speedintra"]),
                "bw_inter": float(read["speedinter"]),
                "latency_inter": float(read.get("latencyinter", "0")),
                "type_intra": read["typeintra"],
                "type_inter": read["typeinter"],
                "same_channels": read.get("samechannels", "1") == "1",
            }
        except (KeyError, ValueError) as error:
            raise AdvisorError(
                f"graph id={read.get('id')}: attribute {error} is missing or no number",
                where=str(path),
            ) from error
    if per_node == 0:
        raise AdvisorError("no <channel> lists any <gpu>", where=str(path))
    if nodes is None:
        nodes = 2 if has_net else 1
        assumptions.append(f"{nodes} node{'s' if nodes > 1 else ''}: a dump does not say (--nodes)")
    if capability is None:
        capability, how = guess_capability(0.0, graphs)
        assumptions.append(how)
    if cpu_vendor is None:
        cpu_vendor = "intel"
        assumptions.append("CPU vendor intel: a dump does not say (--cpu-vendor)")
    fields: dict[str, Any] = {
        "name": path.name,
        "source": str(path),
        "nodes": nodes,
        "ranks_per_node": per_node,
        "compute_capability": capability,
        "cpu_vendor": cpu_vendor,
        **{kind: graph for kind, graph in graphs.items() if graph and graph["channels"]},
    }
    return Read(build_topology(fields, str(path)), None, tuple(assumptions))
