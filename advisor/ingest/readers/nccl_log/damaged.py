"""Whether a message of NCCL was damaged, by patterns in which any character may be another one.

They are long, and only lines of files that are read as logs are held against them.
"""

import re
from itertools import islice

from advisor.ingest.readers.nccl_log.prefix import LONGEST_TOKEN, records

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
    least = max(0, level - LONGEST_TOKEN)
    if match := _BLURRED_THREAD.search(line, least, level):
        token = line.rfind(" ", least, match.start()) + 1 or least
        return [token + len(line[token:level]) - len(line[token:level].lstrip(_CONTROLS))]
    return [match.start() for match in _BLURRED_DEVICE.finditer(line, max(0, level - 16), level)]
