"""Exceptions of Python that one error made of another: what the last is called, all of them are.

A traceback prints the exception that was raised first first, then «The above exception was the
direct cause of the following exception», then the traceback of that. Where the later one is known
by what it says, the earlier one is the same error and no cause of its own.

What an exception says may go on in the next lines: «1 validation error for EngineArgs».
"""

import re
from dataclasses import dataclass, field

from advisor.model.nccl.effects import by_form, named_by_class, told_by_itself

# What is raised while another is handled may be of another kind: the first is then its own cause.
_MARK = "The above exception was the direct cause of the following"
_RAISED = re.compile(
    r"(?:(?:[A-Za-z_][\w.]{0,120}\.)?[A-Z]\w{0,60}(?:Error|Exception|Timeout|Failed)|Exception)\b"
)
# Such a first line says nothing yet.
_GOES_ON = re.compile(r":\s{0,8}$|\b\d{1,4} validation errors? for\b")
_MOST_LINES = 2
# Whatever follows is what was raised: torch.compile of a backend.
_QUOTES = re.compile(r"\braised:\s{0,8}$")
# torch_npu gives a number, then CANN's own lines, of which a later one tells what it was.
_NUMBERED = re.compile(r"\berror code is \d{5,6}\b")
_MOST_NUMBERED = 6


@dataclass
class Chained:
    """The exceptions of one writer; ``see`` its lines in their order."""

    _open: list[int] = field(default_factory=list)
    _marked: bool = False
    _unfinished: int | None = None
    _quotes: bool = False
    _left: int = 0

    def see(self, text: str) -> int | None:
        """Take a line that says nothing by itself: the place of the exception that it goes on."""
        if self._open and text.lstrip().startswith(_MARK):
            self._marked = True
        if self._marked:
            self._left = 0
        if self._left == 0 or not text.strip():
            return None
        self._left -= 1
        return self._unfinished

    def quoting(self) -> int | None:
        """The place of an exception that the next line, itself an exception, was raised of."""
        quoting, self._quotes = self._quotes and self._left > 0, False
        return self._unfinished if quoting else None

    def named(self, text: str, message: str, place: int) -> list[int]:
        """The places of earlier exceptions of which ``message`` is the name too.

        ``place`` is where the fact of this line is kept.
        """
        if _RAISED.match(text) is None:
            if self._left > 0 and message in by_form():
                self._left -= 1
                return []
            goes_on = self._left > 0 and self._open[-1:] == [self._unfinished]
            self._left = 0
            return self._open[-1:] if goes_on else []
        self._unfinished, self._left = place, _lines_of(text)
        self._quotes = _QUOTES.search(text) is not None
        earlier = self._open if self._marked else []
        self._marked = False
        if told_by_itself(message):
            self._open = []
            return earlier
        self._open = [*earlier[-8:], place] if message in named_by_class() else []
        return []


def _lines_of(text: str) -> int:
    """How many lines behind the first one of an exception may be of what it says."""
    if _NUMBERED.search(text):
        return _MOST_NUMBERED
    return _MOST_LINES if _GOES_ON.search(text) else 0
