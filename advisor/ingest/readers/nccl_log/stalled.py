"""Horovod's list of ranks that did not come: «Missing ranks:», then a line for each of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r"(?:Missing|Stalled) ranks:\s{0,8}$")
# A rank's number looks like what srun puts before a line, and is taken off as such.
_RANK = re.compile(r"(?:^|\s)(\d{1,7}):\s$")


@dataclass
class Stalled:
    """``see`` the lines of a file in their order."""

    _lists: bool = False

    def see(self, launcher: str, text: str) -> str | None:
        """What a line of the list says, with its heading; None for other lines."""
        if not self._lists:
            self._lists = text.endswith(":") and _HEAD.match(text) is not None
            return None
        found = _RANK.search(launcher) if text.startswith("[") else None
        self._lists = found is not None
        return f"Missing ranks: {found[1]}: {text}" if found else None
