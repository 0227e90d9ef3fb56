"""Python's tracebacks in a job's output: what was raised, and the calls that led there.

A launcher or a logger may put a prefix before every line, and the lines of several processes may
alternate: each writer (what stands before its lines, without numbers that change) is followed by
itself. What ends a traceback is its first line without indentation, whatever it is called.
"""

import re
from dataclasses import dataclass, field

_HEAD = "Traceback (most recent call last)"
# Behind it stands what one exception became, and before it that exception.
_CHAINED = "The above exception was the direct cause"
# Python tells of what a destructor raised, and goes on.
_IGNORED = "Exception ignored "
_OF_SYSTEM = "[Errno "
_FRAME = re.compile(r'(?:^|\s)File "([^"\n]{1,300})", line (\d{1,7})(?:, in (.{1,120}))?')
# rich draws a box: «│ /root/train.py:12 in main │», then the source.
_BOXED = re.compile(r"^[│|] (/\S{1,300}|\S{1,200}\.py):(\d{1,7}) in (\S{1,80})")
# A class behind its module may be written small: «socket.timeout: timed out».
_RAISED = re.compile(
    r"(?:(?:[A-Za-z_]\w{0,60}\.){0,8}_{0,2}[A-Z]\w{2,80}|(?:[a-z_]\w{0,60}\.){1,8}[a-z_]\w{2,80})"
    r"(?::\s|:?\s{0,8}$)"
)
# Python's warnings module of a call; torch prints the calls that led to one of NumPy's above it.
_WARNED = re.compile(r"(\S{1,300}\.py):(\d{1,7}): \w{3,40}Warning: ")
# Without words of its own what it asks for is all that it tells.
_BARE_ASSERTION = re.compile(r"AssertionError:?\s{0,8}")
_ASSERT = "assert "
_NUMBER = re.compile(r"\d{1,30}")
_OF_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<|/runpy\.py$")
# What a loader's or a pool's process raised is raised again under this name by the one that reads.
_AGAIN = re.compile(r"\bCaught \w{1,80} in \w")
_MOST_FRAMES = 60
_FIRST_LINES = 2
"""Calls that a text begins with are of a traceback whose head is cut off."""
_MOST_LINES = 8
"""Lines of source between two frames; more of them, and another text has begun."""
_LONGEST = 1_000


@dataclass(frozen=True, slots=True)
class Frame:
    """One call of a traceback."""

    path: str
    line: int
    function: str

    @property
    def as_printed(self) -> str:
        """As Python writes it."""
        return f'File "{self.path}", line {self.line}, in {self.function}'

    def __str__(self) -> str:
        short = "/".join(self.path.rsplit("/", 2)[-2:]) if "/" in self.path else self.path
        return f"{short}:{self.line}" + (f" ({self.function})" if self.function else "")


@dataclass(frozen=True, slots=True)
class Raised:
    """``text`` is the last line of a traceback, without a logger's ``prefix``."""

    text: str
    frames: tuple[Frame, ...]
    prefix: str = ""

    @property
    def calls(self) -> str:
        """Files and functions, outermost first, one a line."""
        return "\n".join(f"{frame.path} {frame.function}" for frame in self.frames)

    @property
    def is_uncaught(self) -> bool:
        """The calls begin where the program does: nothing in it catches what is raised."""
        first = self.frames[0]
        return first.function == "<module>" or first.path.endswith("/runpy.py")

    @property
    def place(self) -> str:
        """Where it was raised: the program's own last call, and the library's that it led to."""
        last = self.frames[-1]
        own = next((f for f in reversed(self.frames) if not _OF_LIBRARY.search(f.path)), last)
        return str(own) if own == last else f"{own}, in its call of {last}"


@dataclass
class _Open:
    prefix: str = ""
    length: int = 0
    is_ignored: bool = False
    has_head: bool = False
    """It is no dump of another kind."""
    is_chained: bool = False
    """What it comes to was raised before."""
    is_last: bool = True
    """Nothing but source stands behind its last call."""
    line: int = 0
    """Of its last call."""
    frames: list[Frame] = field(default_factory=list)
    source: str = ""
    since: int = 0

    def is_at(self, path: str, line: int) -> bool:
        """Whether its last call is there."""
        return bool(self.frames) and (self.frames[-1].path, self.frames[-1].line) == (path, line)


@dataclass
class Tracebacks:
    """Of one file; ``see`` its lines in their order."""

    is_source: bool = False
    """The last line quotes the program, or says again what is raised: it tells nothing new."""
    _open: dict[str, _Open] = field(default_factory=dict)
    _ignored: set[str] = field(default_factory=set)
    """Writers whose next traceback is no error."""
    _chained: set[str] = field(default_factory=set)
    """Writers whose next traceback is of what they raised before."""

    def see(self, launcher: str, text: str, line: int = 0) -> Raised | None:
        """What a line says that was raised: None for all but the last line of a traceback."""
        self.is_source = text[:3].isspace() and text.lstrip().startswith("raise ")
        if _HEAD in text:
            writer = _writer(launcher)
            self.is_source = writer in self._ignored
            chained = writer in self._chained
            self._open[writer] = _Open(is_ignored=self.is_source, has_head=True, is_chained=chained)
            self._ignored.discard(writer)
            self._chained.discard(writer)
            return None
        if _IGNORED in text:
            self._ignored.add(_writer(launcher))
            return None
        if _CHAINED in text:
            self._chained.add(_writer(launcher))
        frame = _frame(text)
        if frame is None and not self._open:
            return None
        writer = _writer(launcher)
        traceback = self._open.get(writer)
        if frame is not None:
            if traceback is None:  # its head is cut off
                traceback = self._open[writer] = _Open(has_head=line <= _FIRST_LINES)
            if not traceback.frames:
                before = text[: frame[0]]
                traceback.prefix, traceback.length = _shape(before), len(before)
            traceback.frames = [*traceback.frames[1 - _MOST_FRAMES :], frame[1]]
            traceback.source, traceback.since = "", 0
            traceback.is_last, traceback.line = True, line
            return None
        return self._other(writer, traceback, text) if traceback is not None else None

    def cut(self) -> tuple[str, int, Raised] | None:
        """Writer, line and calls of the last traceback that does not come to what was raised."""
        begun = [
            (writer, traceback.line, Raised("", tuple(traceback.frames)))
            for writer, traceback in self._open.items()
            if traceback.has_head and traceback.is_last
            if traceback.frames and not traceback.is_ignored and not traceback.is_chained
        ]
        return max(begun, key=lambda item: item[1], default=None)

    def _other(self, writer: str, traceback: _Open, text: str) -> Raised | None:
        """A line of source, the exception, or another text."""
        traceback.since += 1
        prefix = ""
        if traceback.prefix and _shape(text[: traceback.length]) == traceback.prefix:
            prefix, text = text[: traceback.length], text[traceback.length :]
        if traceback.since == 1 and traceback.frames and text[:3].isspace():
            self.is_source = True
            traceback.source = text.strip()
        traceback.is_last &= not text.strip() or text[:1].isspace()
        if traceback.is_ignored and text.startswith(_OF_SYSTEM):  # its class stands elsewhere
            self.is_source = True
        if (found := _WARNED.match(text)) and traceback.is_at(found[1], int(found[2])):
            del self._open[writer]
            return None
        if traceback.since > _MOST_LINES and not text.startswith(("│", "|", "╰")):
            del self._open[writer]
        if not traceback.frames or text[:1].isspace() or not _RAISED.match(text):
            return None
        self._open.pop(writer, None)
        if traceback.is_ignored:
            self.is_source = True
            return None
        if _AGAIN.search(text, 0, _LONGEST):
            self.is_source = True
            return None
        text = text[:_LONGEST].rstrip()
        if _BARE_ASSERTION.fullmatch(text) and traceback.source.startswith(_ASSERT):
            text = f"AssertionError: {traceback.source.removeprefix(_ASSERT)[:_LONGEST]}"
        return Raised(text, tuple(traceback.frames), prefix)


def _frame(text: str) -> tuple[int, Frame] | None:
    """Where a call begins in a line, and the call."""
    if 'File "' in text and (found := _FRAME.search(text, 0, _LONGEST)):
        return _begin(text, found), Frame(found[1], int(found[2]), (found[3] or "").strip())
    if " in " in text and (found := _BOXED.match(text)):
        return 0, Frame(found[1], int(found[2]), found[3])
    return None


def _begin(text: str, frame: re.Match[str]) -> int:
    """Where the prefix of a call's line ends: its indentation of two is its own."""
    before = text[: frame.start()]
    return len(before[:-1] if before.endswith(" ") else before)


def _shape(text: str) -> str:
    return _NUMBER.sub("0", text)


def _writer(launcher: str) -> str:
    """A process by its prefix: its rank and number count, times and places in files do not."""
    mark = re.sub(r"\d\d[-/]\d\d[ T]|[\d:]{8,15}(?:[.,]\d{1,9})?|\.py:\d{1,6}", "", launcher)
    return mark.rstrip()  # torchrun's has no space behind it: a call's indentation looks like one
