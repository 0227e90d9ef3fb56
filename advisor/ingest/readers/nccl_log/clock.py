"""When lines of a job's several outputs were printed: no line number says which rank failed first.

Loggers write a time at the front of a line, in forms of their own. A line without one was printed
after the last before it that has one.
"""

import re
from collections import deque
from dataclasses import dataclass, field

from advisor.ingest.readers.nccl_log.collected import Where

_LONGEST = 200
_LINES_BACK = 256
"""A traceback of Python's has a time before it, if anywhere."""
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_TIME = re.compile(
    # ISO, and Python's and Go's; vLLM leaves the year out.
    r"(?:\b\d{4}[-/])?\b(\d\d)[-/](\d\d)[T ,]\s?(\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?"
    # glog: «E1206 18:44:12.75», of torch without the zero of a month.
    r"|(?:^|[^A-Za-z0-9])[DIWEF](\d{1,2})(\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?"
    # The system's log.
    r"|\b([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)()"
)


@dataclass
class Clock:
    """``see`` all lines in their order, and ``note`` those whose time matters."""

    _before: dict[str, deque[str]] = field(default_factory=dict)
    """The last lines of each file."""
    _noted: dict[Where, str | None] = field(default_factory=dict)

    def see(self, path: str, launcher: str, line: str) -> None:
        """Take the next line of a file, with what a launcher put before it."""
        before = self._before.get(path)
        if before is None:
            before = self._before[path] = deque(maxlen=_LINES_BACK)
        before.append(launcher[:_LONGEST] + line[:_LONGEST] if launcher else line[:_LONGEST])

    def note(self, where: Where) -> None:
        """The line that was seen last in its file is one to be ordered."""
        lines = self._before.get(where[0], ())
        times = (time_of(line) for line in reversed(lines))
        self._noted[where] = next((time for time in times if time is not None), None)

    def times(self) -> dict[Where, str]:
        """When each noted line was printed at the earliest, as text that sorts.

        Empty where all are of one file, which has an order of its own, where one of them has no
        time, and where a year ends between them: not all loggers write it.
        """
        known = {where: time for where, time in self._noted.items() if time is not None}
        if len({path for path, _ in self._noted}) < 2 or len(known) < len(self._noted):
            return {}
        return {} if {"01", "12"} <= {time[:2] for time in known.values()} else known


def time_of(line: str) -> str | None:
    """``MM-DD hh:mm:ss.fffffffff`` of what stands at the front of a line; None without one."""
    found = _TIME.search(line, 0, _LONGEST)
    if found is None:
        return None
    groups = found.groups()
    month, day, clock, fraction = next(
        groups[at : at + 4] for at in (0, 4, 8) if groups[at + 2] is not None
    )
    assert month is not None and day is not None and clock is not None
    if month.isalpha():
        at = _MONTHS.find(month)
        if at < 0 or at % 3:
            return None
        month = str(at // 3 + 1)
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    return f"{int(month):02}-{int(day):02} {clock}.{(fraction or '').ljust(9, '0')}"
