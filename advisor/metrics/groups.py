"""Which process group a collective belongs to, and which ranks that group has.

GPU kernels carry the group's name. gloo's spans do not: our own recordings say which thread serves
which group; else there is only one group, or the threads are told apart by their ids, which ascend
in the order the groups were made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.metrics.calls import Call
from advisor.metrics.calls_host import threads_of
from advisor.metrics.operations import POINT_TO_POINT, parse_json


@dataclass(frozen=True)
class Group:
    """A process group: global ranks in group order where known."""

    name: str
    description: str | None
    ranks: tuple[int, ...] | None
    size: int | None


@dataclass(frozen=True)
class RankInfo:
    """What the trace says of one rank."""

    rank: int
    host: str | None
    device: int | None
    world_size: int | None
    complete: bool
    gloo_threads: Mapping[int, str]


def process_groups(con: Any, run: str) -> dict[str, Group]:
    """The run's groups by name."""
    found = con.execute(
        "SELECT process_group, description, ranks, size FROM process_group WHERE run = ? "
        "ORDER BY process_group",
        [run],
    ).fetchall()
    return {
        name: Group(name, description, tuple(ranks) if ranks else None, size)
        for name, description, ranks, size in found
    }


def rank_infos(con: Any, run: str) -> dict[int, RankInfo]:
    """The run's ranks."""
    found = con.execute(
        "SELECT rank, host, device, world_size, complete, metadata FROM rank WHERE run = ? "
        "ORDER BY rank",
        [run],
    ).fetchall()
    return {
        rank: RankInfo(rank, host, device, world, complete is not False, _threads(metadata))
        for rank, host, device, world, complete, metadata in found
    }


def _threads(metadata: str | None) -> dict[int, str]:
    """The recording's own map of gloo's threads, from the "advisor" key of the metadata."""
    own = parse_json(metadata)
    own = own.get("advisor") if isinstance(own, dict) else None
    if isinstance(own, str):  # kineto keeps added metadata as text in some versions
        try:
            own = json.loads(own)
        except ValueError:
            own = None
    threads = own.get("gloo_threads") if isinstance(own, dict) else None
    if not isinstance(threads, dict):
        return {}
    return {int(tid): str(name) for tid, name in threads.items() if str(tid).isdigit()}


def assign_groups(
    calls: Mapping[int, list[Call]],
    groups: Mapping[str, Group],
    infos: Mapping[int, RankInfo],
) -> None:
    """Fill ``group`` and ``group_size`` of calls that do not carry them, then their sizes."""
    for rank, own in calls.items():
        info = infos[rank]
        mine = [g for g in groups.values() if g.ranks is None or rank in g.ranks]
        by_thread = dict(info.gloo_threads) or _by_order(own, mine)
        for call in own:
            if call.group is None and call.stream is not None:
                call.group = by_thread.get(call.stream)
            if call.group is None and len(mine) == 1:
                call.group = mine[0].name
            group = groups.get(call.group) if call.group is not None else None
            if call.group_size is None:
                call.group_size = _size(call, group, info, len(infos))
            if call.bytes is None:
                call.set_size()


def _by_order(own: list[Call], mine: Sequence[Group]) -> dict[int, str]:
    """gloo runs two threads per group, made with the group: ids ascend in the groups' order."""
    threads = threads_of([c for c in own if c.wire_op is not None and c.group is None])
    numbered = sorted(
        mine, key=lambda g: (not g.name.isdigit(), int(g.name) if g.name.isdigit() else 0)
    )
    if len(numbered) > 1 and len(threads) == 2 * len(numbered):
        return {tid: numbered[index // 2].name for index, tid in enumerate(threads)}
    return {}


def _size(call: Call, group: Group | None, info: RankInfo, ranks_read: int) -> int | None:
    if group is not None:
        return group.size or (len(group.ranks) if group.ranks else None)
    if call.op in POINT_TO_POINT:
        return 2
    if call.group is not None:
        return None
    return info.world_size or (ranks_read if ranks_read > 1 else None)
