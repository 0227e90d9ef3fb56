"""What is kept of a run's logs: parsed records with who printed them, up to a bound."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from advisor.ingest.readers.nccl_log.communicators import Member, Registry, Slot
from advisor.ingest.readers.nccl_log.facts import Choice, CommLine, Connection, Fact, Parsed

MAX_KEPT = 1_000_000
"""Records kept of one run: about 0.5 GB. A log of 8,192 ranks has about 400,000 connections."""

P = TypeVar("P")
Where = tuple[str, int]
"""File and line."""

_NOWHERE: Where = ("", 0)
_BEYOND = "over the bound of kept records"


@dataclass(frozen=True, slots=True)
class Kept:
    """A parsed record, who printed it and where it was read.

    ``member`` is set for connections whose communicator was known when they were printed.
    """

    slot: Slot
    record: Parsed
    where: Where
    member: Member | None = None


@dataclass
class Collected:
    """The records of all logs of a run, and the communicators that they are of."""

    registry: Registry = field(default_factory=Registry)
    kept: list[Kept] = field(default_factory=list)
    choices: dict[tuple[Slot, Choice], int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """What was lost, by reason."""

    @property
    def is_full(self) -> bool:
        """Whether no further record is kept."""
        return len(self.kept) >= MAX_KEPT

    def of(self, kind: type[P]) -> Iterator[tuple[Kept, P]]:
        """What was kept of one kind of record, with the record itself."""
        return ((kept, kept.record) for kept in self.kept if isinstance(kept.record, kind))

    def keep(self, slot: Slot, found: list[Parsed], where: Where) -> int:
        """Add what a line said, or count it where the bound is reached; how much it was."""
        kept = [item for item in found if not isinstance(item, CommLine)]
        if len(self.kept) + len(kept) > MAX_KEPT:
            self.counts[_BEYOND] += len(kept)
            return len(found)
        for item in kept:
            if isinstance(item, Connection):  # many: their place is not stored
                settled = self.registry.settled(slot)
                known = self.registry.member_for(slot, item) if settled else None
                self.kept.append(Kept(slot, item, _NOWHERE, known))
            else:
                self.kept.append(Kept(slot, item, where if isinstance(item, Fact) else _NOWHERE))
        return len(found)

    def count_choice(self, slot: Slot, choice: Choice) -> int:
        """Add one call for which NCCL chose so."""
        key = (slot, choice)
        if key not in self.choices and len(self.choices) >= MAX_KEPT:
            self.counts[_BEYOND] += 1
        else:
            self.choices[key] = self.choices.get(key, 0) + 1
        return 1
