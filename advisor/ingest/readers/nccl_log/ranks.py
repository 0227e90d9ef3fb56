"""Which global rank each rank of a communicator is, and what its communicator is named.

The communicator of all ranks gives global ranks; others are mapped through the GPU (process and
bus id) that holds the rank. Logs before 2.16 print no id: there a process's first, second …
communicator of a size is everyone's, unless a rank of it is held twice: then connections tell.
"""

from collections import Counter
from collections.abc import Iterable

from advisor.ingest.readers.nccl_log.communicators import Member, Registry
from advisor.ingest.readers.nccl_log.facts import Connection

_OF_A_HOST = frozenset(("p2p", "shm"))
_Role = tuple[int, int, str]
"""Ranks of the communicator, rank in it, bus id."""

WORLD = "world"


class Ranks:
    """Global ranks of all members, once everything has been read."""

    def __init__(
        self, registry: Registry, connections: Iterable[tuple[Member, Connection]] = ()
    ) -> None:
        self._members = list(registry.members.values())
        self._without_id = _in_order(self._members)
        self._grouped = self._names_of_groups(connections)
        largest = max((member.line.ranks for member in self._members), default=0)
        of_size: dict[str | None, list[Member]] = {}
        for member in self._members:
            if member.line.ranks == largest:
                of_size.setdefault(self._id(member), []).append(member)
        self.world_size = largest
        self.has_world = _same_devices(list(of_size.values()), largest)
        self._world = next(iter(of_size), None)
        self._device_rank: dict[tuple[str, int, str], int] = {}
        if self.has_world:
            for member in (member for members in of_size.values() for member in members):
                self._device_rank.setdefault(member.device, member.line.rank)
        self._global: dict[tuple[str, int], int] = {}
        moved: set[str | None] = set()
        for member in self._members:
            rank, ident = self.of(member), self._id(member)
            if rank is not None and ident is not None:
                self._global[ident, member.line.rank] = rank
            if rank != member.line.rank:
                moved.add(ident)
        # Of all ranks too, and in their order: torch sorts the ranks of a group (new_group in
        # distributed_c10d.py), MPI_Comm_dup keeps them.
        self._as_world = {self._id(one) for one in self._members if one.line.ranks == largest}
        self._as_world -= moved | {None}

    def _id(self, member: Member) -> str | None:
        """What tells its communicator from others; None where a log without ids cannot."""
        if member.line.comm_id is not None:
            return member.line.comm_id
        key = (member.line.ranks, member.order)
        if key not in self._without_id:
            return self._grouped.get(id(member))
        return _numbered(*key)

    def _names_of_groups(self, connections: Iterable[tuple[Member, Connection]]) -> dict[int, str]:
        """By member, where only connections tell its communicator."""
        not_apart = [
            member
            for member in self._members
            if member.line.comm_id is None
            and (member.line.ranks, member.order) not in self._without_id
        ]
        names: dict[int, str] = {}
        so_far: Counter[int] = Counter()
        for group in _together(not_apart, connections) if not_apart else ():
            names |= dict.fromkeys(map(id, group), _numbered(len(group), so_far[len(group)]))
            so_far[len(group)] += 1
        return names

    def of(self, member: Member | None) -> int | None:
        """Global rank of a member; None where the log does not tell."""
        if member is None or not self.has_world:
            return None
        if self.is_world(member):
            return member.line.rank
        return self._device_rank.get(member.device)

    def of_peer(self, member: Member, rank: int) -> int | None:
        """Global rank of rank ``rank`` in the communicator of ``member``."""
        if not 0 <= rank < member.line.ranks:
            return None
        if self.has_world and self.is_world(member):
            return rank
        ident = self._id(member)
        alike = rank if self.has_world and ident in self._as_world else None
        return None if ident is None else self._global.get((ident, rank), alike)

    def is_world(self, member: Member) -> bool:
        """Whether it belongs to the communicator that gives the global ranks."""
        return self.has_world and self._id(member) == self._world

    def name(self, member: Member | None) -> str | None:
        """Name of its communicator in the store."""
        if member is None:
            return None
        if member.line.comm_id is None and self.is_world(member):
            return WORLD
        return self._id(member)

    def not_apart(self) -> dict[int, int]:
        """By size how many communicators of it nothing tells apart."""
        held = Counter(
            (member.line.ranks, member.line.rank)
            for member in self._members
            if self._id(member) is None
        )
        counts: dict[int, int] = {}
        for (size, _), count in held.items():
            counts[size] = max(counts.get(size, 0), count)
        return counts

    def communicators(self) -> dict[str, list[Member]]:
        """Members by communicator name; those that cannot be named are left out."""
        out: dict[str, list[Member]] = {}
        for member in self._members:
            if (name := self.name(member)) is not None:
                out.setdefault(name, []).append(member)
        return out


def _numbered(ranks: int, order: int) -> str:
    return f"{ranks} ranks" + (f" #{order + 1}" if order else "")


def _in_order(members: list[Member]) -> set[tuple[int, int]]:
    """(ranks, order) of communicators without an id, of a size of which none holds a rank twice."""
    held: dict[tuple[int, int], list[int]] = {}
    for member in members:
        if member.line.comm_id is None:
            held.setdefault((member.line.ranks, member.order), []).append(member.line.rank)
    twice = {size for (size, _), ranks in held.items() if len(ranks) > len(set(ranks))}
    return {key for key in held if key[0] not in twice}


def _same_devices(communicators: list[list[Member]], size: int) -> bool:
    """Whether the largest communicators are all over one set of GPUs (so it is everyone).

    Two of the largest size over different GPUs are, e.g., two shard groups: the communicator of
    all ranks was never made, and their ranks are no global ranks. A script that starts a program
    several times has new processes with the same ranks on the same GPUs.
    """
    members = [member for members in communicators for member in members]
    devices = {member.device for member in members}
    seats = {(member.host, member.line.bus_id, member.line.rank) for member in members}
    again = len(seats) <= size and all(bus_id is not None for _, bus_id, _ in seats)
    return bool(communicators) and (len(devices) <= size or again)


def _together(
    members: list[Member], connections: Iterable[tuple[Member, Connection]]
) -> list[list[Member]]:
    """The communicators of which every rank is known, each by rank, in logs that print no id.

    A connection names both ends with their bus ids (``0[1a000] -> 1[1c000] via P2P/IPC``). Where
    one member alone can be the other end, both are of one communicator. ``members``: of which
    nothing else tells what they belong to; ``connections``: with the member that printed each.
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
