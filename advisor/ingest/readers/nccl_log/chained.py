"""Exceptions of Python that one error made of another: what the last is called, all of them are.

A traceback prints the exception that was raised first first, then «The above exception was the
direct cause of the following exception», then the traceback of that. Where the later one is known
by what it says, the earlier one is the same error and no cause of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from advisor.model.nccl.messages import named_by_class, told_by_itself

# What is raised while another is handled may be of another kind: the first is then its own cause.
_MARK = "The above exception was the direct cause of the following"
_RAISED = re.compile(r"(?:[A-Za-z_][\w.]{0,120}\.)?[A-Z]\w{0,60}(?:Error|Exception|Timeout)\b")


@dataclass
class Chained:
    """The exceptions of one writer; ``see`` its lines in their order."""

    _open: list[int] = field(default_factory=list)
    _marked: bool = False

    def see(self, text: str) -> None:
        """Take a line that says nothing by itself."""
        if self._open and text.lstrip().startswith(_MARK):
            self._marked = True

    def named(self, text: str, message: str, place: int) -> list[int]:
        """The places of earlier exceptions of which ``message`` is the name too.

        ``place`` is where the fact of this line is kept.
        """
        if _RAISED.match(text) is None:
            return []
        earlier = self._open if self._marked else []
        self._marked = False
        if told_by_itself(message):
            self._open = []
            return earlier
        self._open = [*earlier[-8:], place] if message in named_by_class() else []
        return []
