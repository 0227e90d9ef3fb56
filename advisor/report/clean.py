"""Names in a trace are data: nothing in them may steer a terminal, a log or an XML parser."""

import re

# C0 and C1 controls (ESC starts terminal sequences), bidi overrides, lone surrogates and the two
# non-characters that XML 1.0 forbids.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: object) -> str:
    """``text`` with control characters replaced by U+FFFD; tabs and newlines stay."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", str(text).replace("\r\n", "\n"))


def one_line(text: object) -> str:
    """``text`` printable and with every run of white space as one space."""
    return " ".join(printable(text).split())


def shorten(text: object, width: int) -> str:
    """``text`` in one line of at most ``width`` characters, cut with an ellipsis."""
    line = one_line(text)
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def shorten_middle(text: object, width: int) -> str:
    """``text`` in one line of at most ``width`` characters, its middle cut out: names of hosts
    differ at their end or their beginning."""
    line = one_line(text)
    if len(line) <= width:
        return line
    tail = max(width - 1, 0) // 2
    return line[: max(width - 1, 0) - tail] + "…" + line[len(line) - tail :]
