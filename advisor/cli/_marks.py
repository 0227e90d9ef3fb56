"""How a report in a file is known again: its last line says so, and that nobody changed the rest.

JSON has no room for such a line. It is known by its first keys and read as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

_LINE = {  # comments of each format; GitHub shows a debug line to those who ask for it
    "html": "<!-- advisor report {digest} -->\n",
    "markdown": "<!-- advisor report {digest} -->\n",
    "junit": "<!-- advisor report {digest} -->\n",
    "github": "::debug::advisor report {digest}\n",
    "chat": "[advisor report {digest}]\n",
    "text": "[advisor report {digest}]\n",
}
_DIGITS = 16
_LONGEST = max(len(line.format(digest="0" * _DIGITS)) for line in _LINE.values())
_JSON = re.compile(
    rb'\{\s*"schema_version":\s*\d+,\s*"(?:advisor_version":\s*"[^"]*",\s*"command|base)":'
    rb'|\{"displayTimeUnit":"ms","traceEvents":\[\{"ph":"M","name":"process_name","pid":\d+,'
    rb'"tid":0,"args":\{"name":"advisor"\}\}'  # the trace of a finding
)


def marked(text: str, form: str) -> str:
    """``text`` of a report in the format ``form`` with its last line; JSON as it is."""
    if form not in _LINE:
        return text
    whole = text if text.endswith("\n") else text + "\n"
    return whole + _LINE[form].format(digest=_digest(whole.encode()))


def is_report(place: Path) -> bool:
    """Whether the file is a report as advisor wrote it. Raises OSError where it cannot be read."""
    with place.open("rb") as file:
        beginning = file.read(4096)
        file.seek(max(0, place.stat().st_size - _LONGEST - 1))
        last = file.read().removesuffix(b"\n").rpartition(b"\n")[2] + b"\n"
    if _JSON.match(beginning):
        try:
            return isinstance(json.loads(place.read_bytes()), dict)
        except (ValueError, RecursionError):
            return False
    lines = {line.partition("{")[0].encode() for line in _LINE.values()}
    if not any(last.startswith(line) for line in lines):
        return False
    text = place.read_bytes().removesuffix(last)
    digest = _digest(text)
    return last in {line.format(digest=digest).encode() for line in _LINE.values()}


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:_DIGITS]
