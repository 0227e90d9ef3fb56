"""Which members of communicators of one size belong together, in logs that print no id.

A connection names both ends with their bus ids (``0[1a000] -> 1[1c000] via P2P/IPC``). Where one
member alone can be the other end, both are of one communicator.
"""

from __future__ import annotations

from collections.abc import Iterable

from advisor.ingest.readers.nccl_log.communicators import Member
from advisor.ingest.readers.nccl_log.facts import Connection

_OF_A_HOST = frozenset(("p2p", "shm"))
_Role = tuple[int, int, str]
"""Ranks of the communicator, rank in it, bus id."""


def together(
    members: list[Member], connections: Iterable[tuple[Member, Connection]]
) -> list[list[Member]]:
    """The communicators of which every rank is known, each by rank.

    ``members``: of which nothing else tells what they belong to; ``connections``: with the member
    that printed each.
    """
    by_role: dict[_Role, list[Member]] = {}
    for member in members:
        if (role := _role(member, member.line.rank, member.line.bus_id)) is not None:
            by_role.setdefault(role, []).append(member)
    groups = {id(member): [member] for member in members}
    asked: dict[tuple[_Role, str, int, int, bool], dict[int, Member]] = {}
    for member, connection in connections:
        ends = [(connection.src, connection.src_gpu), (connection.dst, connection.dst_gpu)]
        rank, gpu = ends[connection.local_rank == connection.src]
        role = _role(member, rank, gpu)
        if role is not None and id(member) in groups:
            is_near = connection.kind in _OF_A_HOST
            key = (role, member.host, member.pid, member.line.rank, is_near)
            asked.setdefault(key, {})[id(member)] = member
    for (role, host, _, _, is_near), askers in asked.items():
        others = [one for one in by_role.get(role, ()) if not is_near or one.host == host]
        # Each process makes its communicators in one order: the first is of the first.
        if len({(one.host, one.pid) for one in others}) == 1 and len(others) == len(askers):
            for left, right in zip(askers.values(), others, strict=True):
                _unite(groups, left, right)
    whole: dict[int, list[Member]] = {}
    for group in groups.values():
        held = {member.line.rank for member in group}
        if len(held) == len(group) == group[0].line.ranks:
            whole.setdefault(id(group), sorted(group, key=lambda member: member.line.rank))
    return list(whole.values())


def _role(member: Member, rank: int, gpu: str | None) -> _Role | None:
    return None if gpu is None else (member.line.ranks, rank, gpu)


def _unite(groups: dict[int, list[Member]], left: Member, right: Member) -> None:
    one, other = groups[id(left)], groups[id(right)]
    if one is other:
        return
    one.extend(other)
    for member in other:
        groups[id(member)] = one
