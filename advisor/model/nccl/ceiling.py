"""The bus bandwidth that links and NICs allow a collective, by data sheet.

A ring, tree or switch moves what nccl-tests calls bus bandwidth over every GPU's links and over
every host's NICs (doc/PERFORMANCE.md of NVIDIA/nccl-tests); what exchanges data in pairs is held
back by the links and the NIC of one GPU.


Of an all-reduce that the switch adds up (NVLink SHARP, NVLS) each GPU sends its buffer once and its
part of the result (``multimem.ld_reduce`` and ``multimem.st``, src/device/all_reduce.h of NCCL):
(n + 1) / n of the buffer, where bus bandwidth counts 2 (n - 1) / n.
"""

from typing import NamedTuple

from advisor.config.hardware import Device, Machine

_RINGS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
_PAIRS = frozenset({"all_to_all", "send_recv"})
BY_NVLS = "links with NVLS"


class Ceiling(NamedTuple):
    """GB/s of bus bandwidth, what sets it (``links``, :data:`BY_NVLS`, ``NICs``), where the figure
    is from."""

    gbps: float
    by: str
    source: str


def ceiling(
    op: str,
    ranks: int,
    hosts: int,
    device: Device,
    machine: Machine | None,
    *,
    switched: bool = False,
    nvls: bool = False,
) -> Ceiling | None:
    """What ``op`` can reach over ``hosts`` with the same number of ranks each.

    ``switched``: few GPUs of a board with a switch, where any two have all links between them.
    ``nvls``: the switch adds up what it carries (on one host).

    None for operations without such a figure, GPUs whose links are optional bridges, and hosts
    whose NICs nothing names.
    """
    if ranks < 2 or hosts < 1 or op not in _RINGS | _PAIRS:
        return None
    local = max(1, ranks // hosts)
    found = [_links(op, ranks, local, device, switched or nvls)] if local > 1 else []
    if hosts > 1:
        found.append(_nics(op, ranks, local, machine))
    known = [item for item in found if item is not None]
    if len(known) < len(found) and ((hosts > 1 and found[-1] is None) or not known):
        return None
    limit = min(known, key=lambda item: item.gbps, default=None)
    if nvls and hosts == 1 and limit is not None and op == "all_reduce":
        return Ceiling(limit.gbps * 2 * (ranks - 1) / (ranks + 1), BY_NVLS, limit.source)
    return limit


def _links(op: str, ranks: int, local: int, device: Device, switched: bool) -> Ceiling | None:
    if device.link_gbps is None or device.mesh_gpus is None:
        return None
    peers = 1 if op == "send_recv" else local - 1
    switched = switched or local > device.mesh_gpus
    part = 1.0 if switched else min(1.0, peers / max(1, device.mesh_gpus - 1))
    pairs = (ranks - 1) / (local - 1) if op == "all_to_all" else 1.0
    return Ceiling(device.link_gbps * part * pairs, "links", device.link_source or "")


def _nics(op: str, ranks: int, local: int, machine: Machine | None) -> Ceiling | None:
    """Every GPU has its part of the host's NICs: a host that is used in part has part of them."""
    if machine is None:
        return None
    of_gpu = machine.network.node_gbps / machine.gpus_per_node
    gbps = of_gpu * min(local, machine.gpus_per_node)
    if op == "send_recv":
        gbps = of_gpu
    elif op == "all_to_all":
        gbps = of_gpu * (ranks - 1) / (ranks - local)
    return Ceiling(gbps, "NICs", machine.network.source)
