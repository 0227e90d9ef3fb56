"""Who printed a line: NCCL's prefix, wherever in the line launchers and other writers left it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PREFIX = re.compile(
    r"(?:(?P<host>[A-Za-z0-9_][A-Za-z0-9_.\-]*):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})\s)?"
    r"(?:\[(?P<device>-?\d{1,4})\]\s+)?(?:(?P<place>[\w./\-]{1,200}:\d{1,6})\s)?"
    r"NCCL\s(?P<level>INFO|WARN|TRACE|ABORT)\s"
)
_VERSION = re.compile(r"NCCL version (?=\d)")
_DATE = re.compile(r"\[\d{4}-\d\d-\d\d[ T][\d:.]+\]\s*$")
_SIGNS = re.compile(rb"NCCL (?:INFO|WARN) |NCCL version \d", re.IGNORECASE)


@dataclass(frozen=True)
class Thread:
    """The printing thread; ``host`` is empty where the log was anonymised."""

    host: str
    pid: int
    tid: int


@dataclass(frozen=True)
class Record:
    """One NCCL message. ``thread`` is None for text without a prefix (continuations, version)."""

    thread: Thread | None
    device: int | None
    level: str
    place: str | None
    text: str


def looks_like_log(head: bytes) -> bool:
    """Whether NCCL's prefix occurs in the first bytes of a file."""
    return _SIGNS.search(head) is not None


def records(line: str) -> list[Record]:
    """The messages in a line: none, one, or several where writers collided.

    Text before the first prefix comes first, as a record of level ``""`` (it may continue an
    earlier message).
    """
    found = list(_PREFIX.finditer(line))
    if not found:
        if match := _VERSION.search(line):
            return [Record(None, None, "INFO", None, line[match.start() :].strip())]
        return [Record(None, None, "", None, line)] if line.strip() else []
    out = []
    before = _DATE.sub("", line[: found[0].start()])
    if before.strip():
        out.append(Record(None, None, "", None, before))
    for index, match in enumerate(found):
        end = found[index + 1].start() if index + 1 < len(found) else len(line)
        text = (
            _DATE.sub("", line[match.end() : end])
            if index + 1 < len(found)
            else line[match.end() :]
        )
        thread = None
        if match["host"] is not None:
            thread = Thread(match["host"], int(match["pid"]), int(match["tid"]))
        device = int(match["device"]) if match["device"] is not None else None
        out.append(Record(thread, device, match["level"], match["place"], text.rstrip()))
    return out
