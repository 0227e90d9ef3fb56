"""Make a big Kineto trace from a real one: the same events over and over, later and renumbered.

Every copy of the event section keeps its text byte for byte except timestamps (shifted by the
trace's length), correlation and external ids and event numbers (shifted by the largest seen), so
layout, names, arguments and their lengths stay those of a real recording.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

_FIELD = re.compile(
    rb'("ts": )(\d+)(\.\d+)?|'
    rb'("(?:correlation|External id|external id|id|Ev Idx|Record function id)": )(\d+)'
)
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_ID_SPACE = 10_000_000


def copies(text: bytes, count: int) -> Iterator[bytes]:
    """The trace's text with its events ``count`` times, in pieces ready to be written."""
    opening = _EVENTS.search(text)
    if opening is None:
        raise SystemExit("no traceEvents in the template")
    closing = text.rindex(b"]", 0, _tail_start(text))
    head, body, tail = text[: opening.end()], text[opening.end() : closing], text[closing:]
    pieces: list[bytes] = []
    slots: list[tuple[int, bool]] = []
    last = 0
    for match in _FIELD.finditer(body):
        is_time = match.group(1) is not None
        start, end = match.span(2 if is_time else 5)
        pieces.append(body[last:start])
        slots.append((int(body[start:end]), is_time))
        last = end
    rest = body[last:]
    times = [value for value, is_time in slots if is_time and value > 1_000_000]
    period = max(times) - min(times) + 1_000
    yield head
    for copy in range(count):
        shift, renumber = copy * period, copy * _ID_SPACE
        parts: list[bytes] = []
        for piece, (value, is_time) in zip(pieces, slots, strict=True):
            parts += (piece, b"%d" % (value + (shift if is_time else renumber)))
        parts.append(rest if copy == count - 1 else rest.rstrip())
        yield b"".join(parts)
        if copy < count - 1:
            yield b","
    yield tail


def _tail_start(text: bytes) -> int:
    """Where to look backwards for the bracket that ends the events: before the log lines' array."""
    after = text.rfind(b'"Record Window End"')
    return text.index(b"]", after) + 1 if after >= 0 else len(text)


def write(template: Path, out: Path, megabytes: float) -> int:
    """Write about ``megabytes`` (1e6) of JSON to ``out``; returns the bytes written."""
    opener = gzip.open if template.suffix == ".gz" else open
    with opener(template, "rb") as file:
        text = file.read()
    count = max(1, round(megabytes * 1e6 / len(text)))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("wb") as file:
        return sum(file.write(piece) for piece in copies(text, count))


def main() -> None:
    """Command line: template, output, size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("template", type=Path, help="a real Kineto trace (.json or .json.gz)")
    parser.add_argument("out", type=Path, help="file to write (.json)")
    parser.add_argument("--megabytes", type=float, default=500)
    arguments = parser.parse_args()
    size = write(arguments.template, arguments.out, arguments.megabytes)
    print(f"{arguments.out}: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
