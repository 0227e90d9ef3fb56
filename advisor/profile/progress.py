"""Where every rank is, in a small memory-mapped file that the launcher watches for hangs.

Each rank owns one slot and writes its step and phase there: a store into mapped memory, no system
call, so that it costs nothing in a step. A rank that stops while the others wait for it is the one
with the least progress.
"""

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_SLOT = struct.Struct("<qqqq")  # pid, step, phase, monotonic time of the last change in ns

PHASES = ("start", "step", "data", "forward", "backward", "optimizer", "after", "export", "done")


@dataclass(frozen=True)
class Position:
    """What one rank reported last. ``pid`` is 0 before it started."""

    rank: int
    pid: int
    step: int
    phase: str
    changed_ns: int

    @property
    def order(self) -> tuple[int, int]:
        """Sorts positions by progress."""
        return (self.step, PHASES.index(self.phase))

    def __str__(self) -> str:
        if self.phase == "start":
            return "before its first step"
        return f"in step {self.step}, {self.phase}"


class Board:
    """The file with one slot for each local rank."""

    def __init__(self, path: Path, slots: int) -> None:
        self.slots = slots
        size = slots * _SLOT.size
        # Grown, never cut: several processes may come here at once, one with it mapped already.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as handle:
            if os.fstat(handle.fileno()).st_size < size:
                os.ftruncate(handle.fileno(), size)
            self._memory = mmap.mmap(handle.fileno(), size)

    def write(self, slot: int, pid: int, step: int, phase: str) -> None:
        """Report this rank's position."""
        values = (pid, step, PHASES.index(phase), time.monotonic_ns())
        _SLOT.pack_into(self._memory, slot * _SLOT.size, *values)

    def read(self, first_rank: int = 0) -> list[Position]:
        """Positions of all slots; slot i is rank ``first_rank + i``."""
        positions = []
        for slot in range(self.slots):
            pid, step, phase, changed_ns = _SLOT.unpack_from(self._memory, slot * _SLOT.size)
            positions.append(Position(first_rank + slot, pid, step, PHASES[phase], changed_ns))
        return positions

    def close(self) -> None:
        """Unmap."""
        self._memory.close()


def laggards(positions: list[Position]) -> list[Position]:
    """The ranks that hold up the rest: least progress among those not done, or all if equal."""
    running = [position for position in positions if position.phase != "done"]
    least = min((position.order for position in running), default=None)
    return [position for position in running if position.order == least]
