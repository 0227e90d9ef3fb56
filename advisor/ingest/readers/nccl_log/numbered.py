"""Ranks that two processes have: each host numbers its own from 0, and the others never come.

Lightning prints once in each process which rank it is, and of how many.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_NUMBERED = re.compile(r"\bGLOBAL_RANK: (\d{1,7}), MEMBER: \d{1,7}/(\d{1,7})\b")
SIGN = "GLOBAL_RANK: "
_NEAR = 64
"""Lines between the two of one start; more of them, and the job was started again."""


@dataclass
class Numbered:
    """``see`` the lines of a file that nothing else names."""

    twice: tuple[int, str] | None = None
    """The first line that gives a rank again, and its text."""
    _lines: dict[int, int] = field(default_factory=dict)
    _size: int = 0

    def see(self, text: str, line: int) -> None:
        """A line, and its number in the file."""
        if SIGN not in text or (found := _NUMBERED.search(text)) is None:
            return
        rank, self._size = int(found[1]), int(found[2])
        before = self._lines.get(rank)
        if self.twice is None and before is not None and line - before <= _NEAR:
            self.twice = line, text.strip()
        self._lines[rank] = line

    def wrong(self) -> None:
        """A process failed: those that start from here on may be of another try."""
        if self.twice is None:
            self._lines.clear()

    def repeated(self) -> tuple[int, str] | None:
        """``twice``, where ranks are missing for it."""
        return self.twice if len(self._lines) < self._size else None


def ranks_repeat(lines: Iterable[str]) -> bool:
    """Whether a job's first lines give a rank to two processes."""
    numbered = Numbered()
    for number, line in enumerate(lines):
        numbered.see(line, number)
    return numbered.repeated() is not None
