"""Who printed a line: NCCL's prefix, wherever in the line launchers and other writers left it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

_LEVEL = re.compile(r"NCCL (INFO|WARN|TRACE|ABORT) ")
_THREAD = re.compile(r"(?:.*[^\w.\-])?([A-Za-z0-9_][\w.\-]*):(\d{1,10}):(\d{1,10})$")
_DEVICE = re.compile(r"\[(-?\d{1,4})\]$")
_LONGEST_TOKEN = 512  # a host name has at most 253 characters
_PLACE = re.compile(r"[\w./\-]{1,200}:\d{1,6}$")
_VERSION = re.compile(r"NCCL version (?=\d)")
_DATE = re.compile(r"\[\d{4}-\d\d-\d\d[ T][\d:.]+\]\s*$")
_CUT_DATE = re.compile(r"\[(?:\d{1,4}|\d{4}-[\d\-: T.]*)\]?$")
_DIGITS = re.compile(r"\d+")
_SIGNS = re.compile(
    rb"NCCL (?:INFO|WARN) |NCCL version \d|ProcessGroupNCCL\.cpp:\d|NCCL error in: |"
    rb"failed to pass monitoredBarrier|Watchdog caught collective operation timeout|"
    rb"Test (?:NCCL|CUDA|HIP) failure |NCCL failure \S{1,200}:\d|NCCL operation nccl\w|"
    rb"NCCL Error \d|unhandled (?:cuda|system) error|NET/OFI |UCX  ERROR|ChildFailedError|"
    rb"OutOfMemoryError",
    re.IGNORECASE,
)
_LEVELS = ("INFO", "WARN", "TRACE", "ABORT")
DAMAGED = r"\ufffd\x00-\x08\x0e-\x1f"
"""What no text holds, as inside of ``[]`` in a pattern; U+FFFD stands for what is not UTF-8."""
_GARBAGE = re.compile(f"[{DAMAGED}]")
_MUCH_GARBAGE = re.compile(f"[{DAMAGED}]{{11,}}")  # more than any part of a prefix has
_CONTROLS = "".join(map(chr, (*range(0x09), *range(0x0E, 0x20))))
_MOST_MESSAGES = 16  # of one line that are looked at for damage


def _blurred(text: str) -> str:
    """A pattern for ``text`` in which any character may be damaged."""
    return "".join(f"[{re.escape(char)}{DAMAGED}]" for char in text)


def _either_intact(first: str, second: str) -> str:
    """A pattern for two words with a space between, at most one of them damaged."""
    gap = f"[ {DAMAGED}]"
    return f"(?:{first}{gap}{_blurred(second)}|{_blurred(first)}{gap}{second}){gap}"


_BLURRED_LEVEL = re.compile("|".join(_either_intact("NCCL", level) for level in _LEVELS))
_BLURRED_THREAD = re.compile(rf"[:{DAMAGED}][\d{DAMAGED}]{{1,10}}[:{DAMAGED}][\d{DAMAGED}]{{1,10}}")
_BLURRED_DEVICE = re.compile(rf"\[[\-\d{DAMAGED}]{{1,5}}[\]{DAMAGED}]")
_BLURRED_VERSION = re.compile(
    rf"{_either_intact('NCCL', 'version')}[\d.{DAMAGED}]{{3,24}}"
    rf"(?:{_blurred('+cuda')}[\d.{DAMAGED}]{{1,12}})?\s{{0,8}}$"
)


@dataclass(frozen=True, slots=True)
class Thread:
    """The printing thread; ``host`` is empty where the log was anonymised."""

    host: str
    pid: int
    tid: int


@dataclass(frozen=True, slots=True)
class Record:
    """One NCCL message. ``thread`` is None for text without a prefix (continuations, version)."""

    thread: Thread | None
    device: int | None
    level: str
    place: str | None
    text: str


def looks_like_log(head: bytes) -> bool:
    """Whether a message of NCCL, or of torch or a benchmark about it, occurs in bytes of a file."""
    return _SIGNS.search(head) is not None


def is_cut_prefix(line: str, before: str) -> bool:
    """Whether ``line`` is the beginning of NCCL's prefix, as a file's last line where it is cut.

    ``before`` is an earlier line with a prefix; of that only the numbers may differ.
    """
    text = line.strip()
    if _CUT_DATE.fullmatch(text):
        return True
    match = _LEVEL.search(before)
    whole = before[: match.end()].lstrip() if match else ""
    return bool(text) and _DIGITS.sub("0", whole).startswith(_DIGITS.sub("0", text))


def is_damaged(line: str, *, understood: bool) -> bool:
    """Whether a message of NCCL in ``line`` has damaged bytes; other programs write of NCCL too.

    Garbage in front of a message that was ``understood`` is another writer's.
    """
    if _GARBAGE.search(line) is None:
        return False
    line = _MUCH_GARBAGE.sub("\0", line)
    starts = [match.start() for match in islice(_BLURRED_VERSION.finditer(line), 1)]
    for match in islice(_BLURRED_LEVEL.finditer(line), _MOST_MESSAGES):
        starts += _begins(line, match.start())
    if any(_GARBAGE.search(line, start) for start in starts):
        return True
    return not understood and any(
        record.level and (record.thread is not None or record.device is not None)
        for record in records(_GARBAGE.sub("", line))
    )


def _begins(line: str, level: int) -> list[int]:
    """Where the prefix that ends at ``level`` begins; empty where there is no prefix."""
    least = max(0, level - _LONGEST_TOKEN)
    if match := _BLURRED_THREAD.search(line, least, level):
        token = line.rfind(" ", least, match.start()) + 1 or least
        return [token + len(line[token:level]) - len(line[token:level].lstrip(_CONTROLS))]
    return [match.start() for match in _BLURRED_DEVICE.finditer(line, max(0, level - 16), level)]


def records(line: str) -> list[Record]:
    """The messages in a line: none, one, or several where writers collided.

    Text before the first prefix comes first, as a record of level ``""`` (it may continue an
    earlier message).
    """
    found = list(_LEVEL.finditer(line)) if "NCCL " in line else []
    if not found:
        if match := _VERSION.search(line):
            return [Record(None, None, "INFO", None, line[match.start() :].strip())]
        return [Record(None, None, "", None, line)] if line.strip() else []
    out: list[Record] = []
    start = 0
    pending: tuple[Thread | None, int | None, str, str | None] = (None, None, "", None)
    for match in found:
        text, thread, device, place = _split_prefix(line[start : match.start()])
        text = _DATE.sub("", text)
        if pending[2] or text.strip():
            out.append(Record(*pending, text.rstrip() if pending[2] else text))
        pending = (thread, device, match[1], place)
        start = match.end()
    out.append(Record(*pending, line[start:].rstrip()))
    return out


def _split_prefix(text: str) -> tuple[str, Thread | None, int | None, str | None]:
    """What stands before ``NCCL INFO``: earlier text, then thread, device and source place.

    Taken from the right, so that whatever launchers put in front does not matter.
    """
    thread: Thread | None = None
    device: int | None = None
    place: str | None = None
    rest = text.rstrip()
    for _ in range(3):
        head, _, last = rest.rpartition(" ")
        if len(last) > _LONGEST_TOKEN:  # keeps the patterns' cost linear in the line
            break
        if device is None and (match := _DEVICE.fullmatch(last)):
            device = int(match[1])
        elif place is None and device is None and _PLACE.fullmatch(last) and last.count(":") == 1:
            place = last
        elif match := _THREAD.fullmatch(last):
            thread = Thread(match[1], int(match[2]), int(match[3]))
            head = rest[: len(rest) - len(last) + match.start(1)]
            rest = head
            break
        else:
            break
        rest = head.rstrip()
    return rest, thread, device, place
