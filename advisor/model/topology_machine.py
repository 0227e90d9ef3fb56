"""The NCCL topology of a process group on machines of the hardware table.

The table holds graphs for whole nodes. A group with fewer ranks per node than the node has GPUs
(tensor parallelism inside, data parallelism across nodes) gets its share of the channels that
NICs limit, and of their bandwidth where it is less than a channel: the node's other ranks are in
groups that do the same at the same time. NVSwitch gives every pair full speed, so inside one node
nothing is shared out.
"""

from typing import Any

from advisor.config.hardware import GraphSet, Machine, device_of
from advisor.errors import AdvisorError
from advisor.model.topology import Topology, build_topology

_GFX942 = 94  # what HIP gives for the compute capability of an MI300X


def topology_of(machine: Machine, nodes: int, ranks_per_node: int | None = None) -> Topology:
    """The topology of a group on `nodes` nodes; `ranks_per_node` defaults to all GPUs.

    Raises AdvisorError when the machine has no such graphs, or fewer GPUs than asked; on a mesh
    (Infinity Fabric) also for fewer than all, which have links of their own.
    """
    per_node = machine.gpus_per_node if ranks_per_node is None else ranks_per_node
    if not 1 <= per_node <= machine.gpus_per_node:
        raise AdvisorError(
            f"{per_node} ranks per node on {machine.name}, which has {machine.gpus_per_node} GPUs"
        )
    graphs = machine.nccl_one_node if nodes == 1 else machine.nccl_several_nodes
    device = device_of(machine)
    if device.vendor == "amd" and per_node < machine.gpus_per_node:
        raise AdvisorError(
            f"{per_node} of {machine.gpus_per_node} GPUs of {machine.name}: RCCL's model is of all",
            hint="fewer have fewer links of the mesh, and other tables",
        )
    if graphs is None:
        raise AdvisorError(
            f"{machine.name} has no NCCL graphs in the table for "
            + ("one node" if nodes == 1 else "several nodes"),
            hint="take them from a log of it: advisor nccl-model --log FILE, "
            "written with NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING",
        )
    fields: dict[str, Any] = {
        "name": machine.name,
        "source": f"{graphs.basis}: {graphs.source}",
        "nodes": nodes,
        "ranks_per_node": per_node,
        "library": "rccl" if device.vendor == "amd" else "nccl",
        "compute_capability": device.compute_capability or _GFX942,
        "cpu_vendor": machine.cpu_vendor,
        "nvswitch": machine.intra.kind == "nvswitch",
        **_graphs(graphs, machine, nodes, per_node),
    }
    return build_topology(fields, machine.name)


def _graphs(graphs: GraphSet, machine: Machine, nodes: int, per_node: int) -> dict[str, Any]:
    result = {"ring": dict(graphs.ring), "tree": dict(graphs.tree)}
    if graphs.nvls is not None and per_node > 1:
        result["nvls"] = dict(graphs.nvls)
        # One head, hence one channel, per GPU of the node.
        result["nvls"]["channels"] = min(graphs.nvls["channels"], per_node)
    share = per_node / machine.gpus_per_node
    if nodes > 1 and share < 1:
        for graph in result.values():
            due = graph["channels"] * share
            graph["channels"] = max(1, round(due))
            # Fewer NICs than groups: one channel is more than a group's share of them.
            slower = min(1.0, due / graph["channels"])
            for name in ("bw_intra", "bw_inter"):
                graph[name] = float(graph[name]) * slower
            if per_node == 1:
                graph["type_intra"] = "LOC"
    return result
