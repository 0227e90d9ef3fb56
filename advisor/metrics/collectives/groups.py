"""Which process group a collective belongs to, and which ranks that group has.

GPU kernels carry the group's name. gloo's spans do not: our own recordings say which thread serves
which group; else there is only one group, or the threads are told apart (gloo_groups.py). Calls of
a rank whose group stays open, though it has several, are not compared with other ranks'.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.gloo import threads_of
from advisor.metrics.collectives.gloo_groups import (
    THREADS_PER_GROUP,
    may_have_wrapped,
    threads_by_consistency,
)
from advisor.vocabulary.numbers import INT64_MAX, MOST_RANKS, decimal
from advisor.vocabulary.operations import POINT_TO_POINT, parse_json

NOT_TOLD = "not recorded"
"""How the group of a call is named (with its rank) when a rank has several and none is told."""


@dataclass(frozen=True)
class Group:
    """A process group: global ranks in group order where known."""

    name: str
    description: str | None
    ranks: tuple[int, ...] | None
    size: int | None


class RankInfo(NamedTuple):
    """What the trace says of one rank."""

    rank: int
    host: str | None
    device: int | None
    world_size: int | None
    complete: bool
    gloo_threads: Mapping[int, str]


LISTED_GROUPS = rf"""
INSERT INTO process_group BY NAME
SELECT run, process_group, any_value(group_description) AS description, ranks, len(ranks) AS size
FROM (SELECT *, TRY_CAST(group_ranks AS INTEGER[]) AS ranks FROM comm_event
  WHERE run = $1 AND regexp_full_match(group_ranks, '\[\d+(, ?\d+)*\]'))
WHERE list_count(ranks) = len(ranks) AND list_max(ranks) < {MOST_RANKS}
  AND len(ranks) = coalesce(group_size, len(ranks))
  AND process_group NOT IN (SELECT process_group FROM process_group WHERE run = $1)
GROUP BY run, process_group, ranks
"""
"""Members that c10d gives with each call, of groups that no file's ``distributedInfo`` lists (torch
before 2.4). A list that was cut is no list, nor one with a number that no rank has."""


_SHARED_NAMES = """
CREATE OR REPLACE TEMP TABLE shared_name AS
WITH member AS (SELECT process_group, ranks[1] AS first, unnest(ranks) AS rank FROM process_group
  WHERE run = $1)
SELECT process_group, rank, process_group || '@' || first AS own FROM member
WHERE process_group IN (SELECT process_group FROM member GROUP BY process_group
    HAVING count(DISTINCT first) > 1)
  AND process_group NOT IN (SELECT process_group FROM member GROUP BY process_group, rank
    HAVING count(*) > 1)
"""


def name_apart(con: Any, run: str) -> None:
    """Give groups of one name, but of other ranks, a name each: with the lowest rank behind it.

    torch's ``split_group``, by which a device mesh makes its groups, numbers them by the calls: all
    groups along one dimension of the mesh have one number (2.5; hashed names since).
    """
    con.execute(_SHARED_NAMES, [run])
    if con.execute("SELECT count(*) FROM shared_name").fetchone() == (0,):
        return
    if con.execute("FROM duckdb_views() WHERE view_name = 'comm_event'").fetchone():  # of files
        con.execute(
            "CREATE TABLE kept AS FROM comm_event; DROP VIEW comm_event; "
            "ALTER TABLE kept RENAME TO comm_event"
        )
    for table in ("comm_event", "flight", "timed_call"):
        con.execute(
            f"UPDATE {table} t SET process_group = own FROM shared_name s WHERE t.run = ? "
            "AND t.process_group = s.process_group AND t.rank = s.rank",
            [run],
        )
    con.execute(
        "UPDATE process_group SET process_group = process_group || '@' || ranks[1] "
        "WHERE run = ? AND process_group IN (SELECT process_group FROM shared_name)",
        [run],
    )


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
    return {
        int(tid): str(name)
        for tid, name in threads.items()
        if decimal(str(tid), most=INT64_MAX) is not None
    }


def assign_groups(
    calls: Mapping[int, list[Call]],
    groups: Mapping[str, Group],
    infos: Mapping[int, RankInfo],
    on_host: Collection[int],
) -> None:
    """Fill ``group`` and ``group_size`` of calls that do not carry them, then their sizes.

    ``on_host``: the ranks whose collectives run on threads of the host (gloo).
    """
    mine = _of_ranks(groups, calls)
    threaded = {rank: own for rank, own in calls.items() if rank in on_host}
    told = _by_order_or_consistency(threaded, groups, mine, infos)
    several = set(threaded) if _several(threaded) else set()
    for rank, own in calls.items():
        info = infos[rank]
        by_thread = dict(info.gloo_threads) or told.get(rank, {})
        for call in own:
            if call.group is None and call.stream is not None:
                call.group = by_thread.get(call.stream)
            if call.group is None and len(mine[rank]) == 1:
                call.group = mine[rank][0].name
            if call.group is None and rank in several and call.op not in POINT_TO_POINT:
                call.group = f"{NOT_TOLD} (rank {rank})"
            group = groups.get(call.group) if call.group is not None else None
            if call.group_size is None:
                call.group_size = _size(call, group, info, len(infos))
            if call.bytes is None:
                call.set_size()


def world_group(
    calls: Mapping[int, Sequence[Call]], infos: Mapping[int, RankInfo], on_host: Collection[int]
) -> dict[str, Group]:
    """The one group of a gloo run that lists none; empty where there is more than one."""
    if not set(calls) <= set(on_host):
        return {}
    size = known_world_size(infos)
    spoken = [own for own in calls.values() if _open_threads(own)]
    if not spoken or len(spoken) < len(calls) or size <= max(infos) or _several(calls):
        return {}
    return {"world": Group("world", None, tuple(range(size)), size)}


def known_world_size(infos: Mapping[int, RankInfo]) -> int:
    """Ranks of the job as any of its recordings says; else as many as were read."""
    return max((info.world_size or 0 for info in infos.values()), default=0) or len(infos)


def _several(calls: Mapping[int, Sequence[Call]]) -> bool:
    """Whether more threads than one group has run collectives on some rank."""
    return any(len(_open_threads(own)) > THREADS_PER_GROUP for own in calls.values())


def _of_ranks(groups: Mapping[str, Group], ranks: Collection[int]) -> dict[int, list[Group]]:
    """Each rank's groups in the order they were made."""
    mine: dict[int, list[Group]] = {rank: [] for rank in ranks}
    made = sorted(groups.values(), key=lambda g: (decimal(g.name) is None, decimal(g.name) or 0))
    for group in made:
        for rank in mine.keys() if group.ranks is None else mine.keys() & set(group.ranks):
            mine[rank].append(group)
    return mine


def _open_threads(own: Sequence[Call]) -> list[int]:
    """gloo's threads with collectives that do not carry a group."""
    return threads_of([c for c in own if c.wire_op is not None and c.group is None])


def _by_order_or_consistency(
    calls: Mapping[int, list[Call]],
    groups: Mapping[str, Group],
    mine: Mapping[int, Sequence[Group]],
    infos: Mapping[int, RankInfo],
) -> dict[int, dict[int, str]]:
    """rank -> {gloo's thread: group}, for ranks with several groups whose threads are not told."""
    result: dict[int, dict[int, str]] = {}
    unsure: dict[int, dict[int, list[Call]]] = {}
    for rank, own in calls.items():
        threads = _open_threads(own)
        if infos[rank].gloo_threads or len(mine[rank]) < 2 or not threads:
            continue
        if len(threads) == THREADS_PER_GROUP * len(mine[rank]) and not may_have_wrapped(threads):
            names = [group.name for group in mine[rank]]
            result[rank] = {
                tid: names[place // THREADS_PER_GROUP] for place, tid in enumerate(threads)
            }
            continue
        unsure[rank] = {tid: [] for tid in threads}
        for call in own:
            if call.stream in unsure[rank] and call.op not in POINT_TO_POINT:
                unsure[rank][call.stream].append(call)
    names_of = {rank: [group.name for group in mine[rank]] for rank in unsure}
    members = {name: group.ranks for name, group in groups.items()}
    return result | threads_by_consistency(unsure, names_of, members)


def _size(call: Call, group: Group | None, info: RankInfo, ranks_read: int) -> int | None:
    """Ranks of a call's group; None where nothing tells: a group need not be the whole job."""
    if group is not None:
        return group.size or (len(group.ranks) if group.ranks else None)
    if call.op in POINT_TO_POINT:
        return 2
    if call.group is not None:
        return None
    if info.world_size is None:
        return ranks_read if ranks_read > 1 else None
    return info.world_size if ranks_read >= info.world_size or info.world_size == 2 else None


def hosts_of(infos: Mapping[int, RankInfo]) -> dict[int, object]:
    """What stands for each rank's host: its name where the trace has it.

    Unnamed hosts whose ranks use distinct devices are one machine, as far as anybody can tell.
    """
    devices = [info.device for info in infos.values() if info.host is None]
    is_one = None not in devices and len(set(devices)) == len(devices)
    return {
        rank: (None if is_one else ("rank", rank)) if info.host is None else info.host
        for rank, info in infos.items()
    }


def link_kind(call: Call, groups: Mapping[str, Group], infos: Mapping[int, RankInfo]) -> str | None:
    """'intra' when the call's ranks share a host, 'inter' when not, None when unknown."""
    ranks: tuple[int, ...] | None
    if call.op in ("send", "recv"):
        ranks = (call.rank, call.peer) if call.peer is not None else None
    else:
        group = groups.get(call.group) if call.group is not None else None
        ranks = group.ranks if group is not None else None
    if ranks is None:
        return None
    known = [rank for rank in ranks if rank in infos and infos[rank].host is not None]
    if len({infos[rank].host for rank in known}) > 1:
        return "inter"  # whatever hosts the ranks have that were not read
    return "intra" if len(known) == len(ranks) else None
