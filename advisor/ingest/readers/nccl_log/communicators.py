"""Which communicator a thread's lines belong to.

A thread prints ``… comm 0x… rank r nranks n …`` when it creates a communicator; up to then its
lines wait in a slot without one. Logs to 2.14 print that line only at the end, so a slot can be
tied to its communicator later.
"""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

from advisor.ingest.readers.nccl_log.facts import CommLine, Connection
from advisor.ingest.readers.nccl_log.prefix import Thread


@dataclass(eq=False)
class Member:
    """One rank of one communicator, as its own process printed it."""

    host: str
    pid: int
    line: CommLine
    nodes: int | None = None
    order: int = 0
    """Of its process's communicators with this rank and size: the how manieth it is."""

    @property
    def device(self) -> tuple[str, int, str]:
        """What identifies the GPU behind it in this process."""
        return self.host, self.pid, str(self.line.bus_id or self.line.cuda_device)


@dataclass(eq=False)
class Slot:
    """Lines of one thread between two communicators; ``member`` once it is known."""

    host: str
    pid: int
    member: Member | None = None


@dataclass
class _Process:
    """The communicators of one process, so that no question looks at all of them.

    ``latest``, by rank: the last member, before it the last one that has more ranks, and so on.
    """

    first: Member
    roles: Counter[tuple[int, int]] = field(default_factory=Counter)
    latest: dict[int, list[Member]] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)
    devices: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    with_id: int = 0

    def add(self, member: Member) -> None:
        """Take a new member."""
        rank, ranks = role = member.line.rank, member.line.ranks
        member.order = self.roles[role]
        self.roles[role] += 1
        self.sizes.add(ranks)
        latest = self.latest.setdefault(rank, [])
        while latest and latest[-1].line.ranks <= ranks:
            latest.pop()
        latest.append(member)
        self._count(member, 1)

    def update(self, member: Member, line: CommLine) -> None:
        """Put ``line``, of the same rank and ranks, in the place of the member's."""
        self._count(member, -1)
        member.line = line
        self._count(member, 1)

    def latest_of(self, rank: int, least_ranks: int) -> Member | None:
        """The last member that is this rank of so many ranks or more."""
        latest = self.latest.get(rank, [])
        index = bisect_right(latest, -least_ranks, key=lambda member: -member.line.ranks) - 1
        return latest[index] if index >= 0 else None

    def _count(self, member: Member, one: int) -> None:
        self.with_id += one * (member.line.comm_id is not None)
        self.devices[member.device] += one
        if not self.devices[member.device]:
            del self.devices[member.device]


@dataclass
class Registry:
    """All communicators of a run's logs."""

    members: dict[tuple[str, int, str], Member] = field(default_factory=dict)
    _slots: dict[Thread, Slot] = field(default_factory=dict)
    _of_process: dict[tuple[str, int], _Process] = field(default_factory=dict)

    def slot(self, thread: Thread) -> Slot:
        """The open slot of a thread."""
        if thread not in self._slots:
            self._slots[thread] = Slot(thread.host, thread.pid)
        return self._slots[thread]

    def see(self, thread: Thread, line: CommLine) -> Member:
        """Take a line that names a communicator."""
        key = (thread.host, thread.pid, line.pointer)
        member = self.members.get(key)
        if member is None or (member.line.rank, member.line.ranks) != (line.rank, line.ranks):
            member = self.members[key] = Member(thread.host, thread.pid, line)
            process = (thread.host, thread.pid)
            if process not in self._of_process:
                self._of_process[process] = _Process(member)
            self._of_process[process].add(member)
        elif line.comm_id is not None or member.line.bus_id is None:
            self._of_process[thread.host, thread.pid].update(member, line)
        if line.nodes is not None:
            member.nodes = line.nodes
        slot = self.slot(thread)
        if slot.member is not member:
            if slot.member is not None or (line.begins and member.line is line):
                slot = self._slots[thread] = Slot(thread.host, thread.pid)
            slot.member = member
        if line.ends and line.comm_id is None:  # what follows is of the next one, until that ends
            self._slots[thread] = Slot(thread.host, thread.pid)
        return member

    def settled(self, slot: Slot) -> bool:
        """Whether no later line can say which communicator the slot's lines are of."""
        own = self._of_process.get((slot.host, slot.pid))
        return slot.member is not None or (own is not None and own.with_id > 0)

    def member_for(self, slot: Slot, connection: Connection) -> Member | None:
        """The member a connection line belongs to, of those known so far.

        The thread's own if it is that rank, else the latest of the process that is: connections
        are also made by other threads than the one that created the communicator.
        """
        local_rank = connection.local_rank
        least_ranks = max(connection.src, connection.dst) + 1
        if slot.member is not None and slot.member.line.rank == local_rank:
            return slot.member
        own = self._of_process.get((slot.host, slot.pid))
        return None if own is None else own.latest_of(local_rank, least_ranks)

    def size_if_certain(self, slot: Slot) -> int | None:
        """Ranks of the communicators of the slot's process, where they all have as many.

        A call can be for any communicator of the process, whatever its thread created last.
        """
        own = self._of_process.get((slot.host, slot.pid))
        return next(iter(own.sizes)) if own is not None and len(own.sizes) == 1 else None

    def only_member_of_process(self, slot: Slot) -> Member | None:
        """The slot's member, or that of its process where all its members are one GPU's."""
        if slot.member is not None:
            return slot.member
        own = self._of_process.get((slot.host, slot.pid))
        return own.first if own is not None and len(own.devices) == 1 else None
