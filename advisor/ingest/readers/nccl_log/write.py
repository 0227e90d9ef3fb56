"""A parsed log into ``topology``, ``link`` and ``nccl_choice``."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from advisor.ingest.readers._rows import Row, insert
from advisor.ingest.readers.nccl_log.collected import Collected
from advisor.ingest.readers.nccl_log.communicators import Member, Slot
from advisor.ingest.readers.nccl_log.facts import (
    Choice,
    Connection,
    Fact,
    RingOrder,
    RingStep,
    TuningCell,
)
from advisor.ingest.readers.nccl_log.graphs import channel_orders
from advisor.ingest.readers.nccl_log.ranks import Ranks
from advisor.ingest.source import ReadContext

_FACT = ("kind", "rank", "host", "name", "value")
_OF_A_LINE = frozenset(("progress", "raised-at", "said-at", "survived"))
_NETWORK = ("net", "network")
_DIGITS_OF_DEVICE = 2
_LISTED_RANKS = 256
_LISTED_PER_MEMBER = 64
"""A communicator of more ranks than either allows is listed without them: a line can say any
number, and lines of thousands of communicators be in one log."""


def write_log(context: ReadContext, log: Collected) -> int:
    """Append all rows; how many. Losses are counted in ``log.counts``."""
    ranks = Ranks(log.registry, _connections(log))
    rows = insert(context, "topology", _topology(log, ranks))
    rows += insert(context, "link", _links(log, ranks))
    rows += insert(context, "nccl_choice", _tables(log))
    return rows + insert(context, "nccl_choice", _calls(log))


def _connections(log: Collected) -> Iterator[tuple[Member, Connection]]:
    for kept, connection in log.of(Connection):
        member = kept.member or log.registry.member_for(kept.slot, connection)
        if member is not None:
            yield member, connection


def _topology(log: Collected, ranks: Ranks) -> Iterator[Row]:
    seen: set[tuple[Any, ...]] = set()
    over = {kept.where for kept, fact in log.of(Fact) if fact.kind == "survived"}
    for kept, fact in log.of(Fact):
        member = log.registry.only_member_of_process(kept.slot)
        rank = ranks.of(member) if fact.per == "rank" and fact.rank is None else fact.rank
        rank = fact.started_as if rank is None else rank
        value = fact.value
        if fact.kind == "graph" and member is not None:
            value = {**value, "communicator": ranks.name(member), "ranks": member.line.ranks}
        if fact.kind == "channels" and member is not None:
            value = {**value, "ranks": member.line.ranks}
        if fact.kind == "tree" and member is not None:
            value = [_tree_of_run(entry, ranks, member) for entry in value]
        host = None if fact.per == "run" else kept.slot.host or None
        key = (fact.kind, rank, host, fact.name, _text(value))
        where = f"{kept.where[0]}:{kept.where[1]}"
        # What is said of another line belongs to that line, and of each file how it went on; what a
        # job got over once it may die of later.
        own = (*key, where if fact.kind in _OF_A_LINE else "", kept.where in over)
        if own not in seen:
            seen.add(own)
            yield {**dict(zip(_FACT, key, strict=True)), "source": where}
    yield from _of_members(ranks)
    yield from _devices(log)
    yield from _nodes(log, ranks)
    yield from _rings(log, ranks)


def _of_members(ranks: Ranks) -> Iterator[Row]:
    for size, count in ranks.not_apart().items():
        alike = {"ranks": size, "communicators": count}
        yield {"kind": "communicators-alike", "name": f"{size} ranks", "value": _text(alike)}
    for name, members in ranks.communicators().items():
        size = members[0].line.ranks
        value = {
            "ranks": size,
            "nodes": next((m.nodes for m in members if m.nodes is not None), None),
            "members": [ranks.of_peer(members[0], rank) for rank in range(size)]
            if size <= max(_LISTED_RANKS, _LISTED_PER_MEMBER * len(members))
            else None,
        }
        yield {"kind": "communicator", "name": name, "value": _text(value)}
        if not ranks.is_world(members[0]):
            continue
        for member in members:
            line = member.line
            device = {
                "pid": member.pid,
                "cuda_device": line.cuda_device,
                "nvml_device": line.nvml_device,
                "bus_id": line.bus_id,
            }
            key = ("rank", line.rank, member.host or None, line.bus_id or "", _text(device))
            yield dict(zip(_FACT, key, strict=True))


def _devices(log: Collected) -> Iterator[Row]:
    """How many GPUs a host has at least: devices are numbered by host, bus ids are longer."""
    numbers = [
        int(gpu)
        for _, connection in log.of(Connection)
        for gpu in (connection.src_gpu, connection.dst_gpu)
        if gpu is not None and gpu.isdecimal() and len(gpu) <= _DIGITS_OF_DEVICE
    ]
    for member in log.registry.members.values():
        line = member.line
        numbers += [number for number in (line.cuda_device, line.nvml_device) if number is not None]
    if numbers:
        yield {"kind": "devices", "name": "of a host", "value": str(max(numbers) + 1)}


def _nodes(log: Collected, ranks: Ranks) -> Iterator[Row]:
    nodes: dict[str, dict[str, Any]] = {}
    names: dict[tuple[str, str], set[str]] = {}
    for kept, fact in log.of(Fact):
        if not kept.slot.host:
            continue
        if fact.kind == "system":
            nodes.setdefault(kept.slot.host, {}).update(fact.value)
        if fact.kind in {"gpu", "nic", "net-port"}:
            names.setdefault((kept.slot.host, fact.kind), set()).add(fact.name)
    for member in log.registry.members.values():
        rank = ranks.of(member)
        if rank is not None and member.host:
            nodes.setdefault(member.host, {}).setdefault("ranks", set()).add(rank)
    for host, value in nodes.items():
        summary = {
            **value,
            "ranks": sorted(value.get("ranks", ())),
            "gpus": len(names.get((host, "gpu"), ())) or None,
            "nics": len(names.get((host, "nic"), ())) or None,
            "net_ports": len(names.get((host, "net-port"), ())) or None,
        }
        yield {"kind": "node", "host": host, "name": host, "value": _text(summary)}


def _rings(log: Collected, ranks: Ranks) -> Iterator[Row]:
    orders: dict[str, dict[int, tuple[int, ...]]] = {}
    steps: dict[str, dict[int, dict[int, int]]] = {}
    example: dict[str, Member] = {}
    for kept in log.kept:
        record = kept.record
        if not isinstance(record, RingOrder | RingStep):
            continue
        member = log.registry.only_member_of_process(kept.slot)
        name = ranks.name(member)
        if member is None or name is None:
            log.counts["ring of an unknown communicator"] += 1
            continue
        example.setdefault(name, member)
        if isinstance(record, RingOrder):
            orders.setdefault(name, {})[record.channel] = record.ranks
        else:
            following = steps.setdefault(name, {}).setdefault(record.channel, {})
            following[record.rank] = record.following
    for name, member in example.items():
        rings = channel_orders(orders.get(name, {}), steps.get(name, {}), member.line.ranks)
        for channel, (ring, complete) in rings.items():
            value = {
                "channel": channel,
                "ranks": [ranks.of_peer(member, rank) for rank in ring],
                "complete": complete,
                "communicator": name,
            }
            yield {"kind": "ring", "name": f"ring {channel}", "value": _text(value)}


def _tree_of_run(entry: dict[str, Any], ranks: Ranks, member: Member) -> dict[str, Any]:
    """One channel of a rank's trees with the ranks of the run instead of the communicator's."""
    parent = entry["parent"]
    return {
        **entry,
        "children": [ranks.of_peer(member, child) for child in entry["children"]],
        "parent": None if parent is None else ranks.of_peer(member, parent),
        "root": parent is None,
        "communicator": ranks.name(member),
    }


def _links(log: Collected, ranks: Ranks) -> Iterator[Row]:
    nics = _nic_names(log)
    links: dict[tuple[Any, ...], dict[str, tuple[Connection, str | None]]] = {}
    for kept, record in log.of(Connection):
        member = kept.member or log.registry.member_for(kept.slot, record)
        src = ranks.of_peer(member, record.src) if member else None
        dst = ranks.of_peer(member, record.dst) if member else None
        if not log.registry.members:  # cut before any line that names a communicator
            src, dst = record.src, record.dst
        if src is None or dst is None:
            log.counts["connection between ranks that cannot be told"] += 1
            continue
        nic = None
        if record.nic_index is not None:
            nic = nics.get((kept.slot.host, record.nic_index), str(record.nic_index))
        key = (src, dst, record.channel, ranks.name(member))
        links.setdefault(key, {})[record.side] = record, nic
    for (src, dst, channel, name), ends in links.items():
        # Both ends print a network connection: the sender's NIC, GDR only where both ends have it.
        record, nic = ends.get("send") or next(iter(ends.values()))
        gdr = {side: end.gdr for side, (end, _) in ends.items()}
        yield {
            "src": src,
            "dst": dst,
            "channel": channel,
            "transport": record.transport,
            "kind": record.kind,
            "nic": nic,
            "gdr": None if None in gdr.values() else all(gdr.values()),
            "ends_without_gdr": sorted(
                dst if side == "receive" else src for side, has in gdr.items() if has is False
            ),
            "ends_read": len(ends),
            "communicator": name,
        }


def _nic_names(log: Collected) -> dict[tuple[str, int], str]:
    """NIC names by (host, index in the list of the network in use)."""
    facts = [(kept.slot.host, fact) for kept, fact in log.of(Fact)]
    used = {host: fact.value for host, fact in facts if (fact.kind, fact.name) == _NETWORK}
    names: dict[tuple[str, int], str] = {}
    for host, fact in facts:
        if fact.kind == "nic":
            network = used.get(host, fact.value["net"])
            if str(network).startswith(fact.value["net"]):
                names[host, fact.value["index"]] = fact.name
    return names


def _tables(log: Collected) -> Iterator[Row]:
    cells = {(cell, _size(log, kept.slot)): None for kept, cell in log.of(TuningCell)}
    for cell, size in cells:
        yield {"source": "table", **asdict(cell), "ranks": size}


def _calls(log: Collected) -> Iterator[Row]:
    calls: dict[tuple[Choice, int | None], int] = {}
    for (slot, choice), count in log.choices.items():
        key = (choice, log.registry.size_if_certain(slot))
        calls[key] = calls.get(key, 0) + count
    for (choice, size), count in calls.items():
        printed = asdict(choice)
        printed["bytes"] = printed.pop("size_bytes")
        yield {"source": "call", **printed, "calls": count, "ranks": size}


def _size(log: Collected, slot: Slot) -> int | None:
    member = log.registry.only_member_of_process(slot)
    return member.line.ranks if member is not None else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
