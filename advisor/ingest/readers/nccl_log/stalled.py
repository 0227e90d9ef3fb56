"""Lists of those that did not come, a line for each: Horovod's ranks, tasks of a JAX job."""

import re
from dataclasses import dataclass

_HEAD = re.compile(r"(?:^(?:Missing|Stalled) ranks|[Tt]imed out task names):\s{0,8}$")
_TASK = re.compile(r"^/job:\w{1,80}/replica:\d{1,7}/task:(\d{1,7})\s{0,8}$")
# A rank's number looks like what srun puts before a line, and is taken off as such.
_RANK = re.compile(r"(?:^|\s)(\d{1,7}):\s$")


def begins_list(text: str) -> bool:
    """Whether a line is the heading of a list."""
    return ":" in text[-9:] and _HEAD.search(text[-100:]) is not None


@dataclass
class Stalled:
    """``see`` the lines of a file in their order."""

    _lists: bool = False

    def see(self, launcher: str, text: str) -> str | None:
        """What a line of the list says, with its heading; None for other lines."""
        if not self._lists:
            self._lists = begins_list(text)
            return None
        if task := _TASK.match(text):
            return f"Barrier timed out: rank {task[1]}: {text}"
        found = _RANK.search(launcher) if text.startswith("[") else None
        self._lists = found is not None
        return f"Missing ranks: {found[1]}: {text}" if found else None
