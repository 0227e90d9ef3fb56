"""Mutates small traces and reads them: no crash, no hang, no event lost before the damage, and none
behind it in silence.

    python -m benchmarks.fuzz.kineto --inputs 1000000

Every input goes through the parts that run on damaged text (cutter and repairing reader), and its
list of events through the scanner in C; what that accepts is compared, a thousand inputs at a time,
with what SQL reads. Prints inputs, rate and failures; exits 1 on a failure.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from advisor.ingest.compression import DEFAULT_LIMITS
from advisor.ingest.readers.kineto.cutter import Cutter, NoEventsError
from advisor.ingest.readers.kineto.metadata import trace_info
from advisor.ingest.readers.kineto.repair import Repairer
from benchmarks.fuzz.differential import Differential

_TOKENS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\n",
    b"\x00",
    b"\xff",
    b"NaN",
    b"\\ud800",
]
_STRUCTURE = b'{}[],:" '
_NESTED = "nested "
_SPLICE, _REPLACE = 4, 5
_SLOW_S = 5.0
_TOGETHER = 1_000


def _events() -> list[list[dict[str, Any]]]:
    odd = [
        {"ph": "X", "name": f'k{n} "q" \\', "ts": 10**15 + n / 8, "dur": n, "args": {"stream": [n]}}
        for n in range(4)
    ]
    kernel = {"device": 0, "stream": 7, "correlation": 9, "Collective name": "allreduce"}
    shapes = {"External id": 3, "Input Dims": [[[2, 3]], []], "Concrete Inputs": ["", "1 2"]}
    base = {"pid": 3, "tid": 7, "ts": 4366672476196.905, "dur": 12.25}
    regular = [
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Sum", **base, "args": kernel},
        {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", **base, "args": shapes},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 7, "args": {"name": "stream 7"}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "é", **base, "args": {"bytes": "128"}},
    ]
    return [odd, regular, regular, _nesting()]


def _nesting() -> list[dict[str, Any]]:
    """Events whose arguments hold lists of objects that look like events."""
    made = []
    for number, first in enumerate(("name", "ph", "ts", "name")):
        fields = {"name": f"{_NESTED}{number}", "ph": "X", "ts": number, "dur": 1}
        inner = [{first: fields[first], **fields, "tid": n} for n in range(4)]
        inner.append({**inner[0], "args": {"children": inner[:2]}})
        args = {"a": [1, {"b": 2}], "list": inner, "n": 1}
        made.append({"ph": "X", "name": f"holds {number}", "ts": 5 + number, "args": args})
    return made


def _templates() -> list[tuple[bytes, list[tuple[int, int]]]]:
    """Traces in several layouts with the offsets at which their events start and end."""
    made = []
    for events in _events():
        for separator, indent in ((", ", None), (",\n", None), (",\n  ", 1)):
            text = '{"distributedInfo": {"rank": 1}, "traceEvents": ['
            places = []
            for number, event in enumerate(events):
                text += separator if number else ""
                start = len(text.encode())
                text += json.dumps(event, indent=indent, ensure_ascii=False)
                places.append((start, len(text.encode())))
            made.append(((text + '], "baseTimeNanoseconds": 7}').encode(), places))
    return made


def _mutated(text: bytes, rng: random.Random) -> tuple[bytes, int, int]:
    """A damaged copy, the offset of its first difference, and the kind of damage."""
    at = rng.randrange(len(text))
    kind = rng.randrange(_REPLACE + 1)
    if kind == _REPLACE:
        if rng.randrange(2):
            at = rng.choice([place for place, byte in enumerate(text) if byte in _STRUCTURE])
        return text[:at] + bytes([rng.choice(_STRUCTURE)]) + text[at + 1 :], at, kind
    if kind == 0:
        return text[:at], at, kind
    if kind == 1:
        return text[:at] + rng.choice(_TOKENS) + text[at:], at, kind
    if kind == 2:
        return text[:at] + text[at + rng.randrange(1, 20) :], at, kind
    if kind == 3:
        return text[:at] + rng.randbytes(rng.randrange(1, 8)) + text[at + 4 :], at, kind
    source = rng.randrange(len(text))
    return text[:at] + text[source : source + 60] + text[at:], at, kind


def _is_nested(event: dict[str, Any]) -> bool:
    return str(event.get("name", "")).startswith(_NESTED)


def _read(data: bytes, dropped: Counter[str] | None = None) -> Iterator[dict[str, Any]]:
    """The events that are found; what is lost is added to ``dropped``."""
    parts = iter((data,))
    try:
        cutter = Cutter(lambda: next(parts, b""), DEFAULT_LIMITS)
    except NoEventsError:
        return
    if any(True for _ in cutter.chunks()):
        raise AssertionError("one block cannot be cut")
    repairer = Repairer(
        iter((cutter.last,)),
        DEFAULT_LIMITS,
        in_object=cutter.in_object,
    )
    yield from repairer.events()
    if dropped is not None:
        dropped.update(repairer.dropped)
        repairer.unread.settle(dropped, len(data), cutter.head)
    trace_info(cutter.head, repairer.documents[0], _PATH)


class _Name:
    """Enough of a path for the rank from a name."""

    name = "x"
    parent: Any = None


_PATH: Any = _Name()
_PATH.parent = _Name()


def _lost_in_silence(
    truth: list[dict[str, Any]],
    places: list[tuple[int, int]],
    at: int,
    found: list[dict[str, Any]],
    dropped: Counter[str],
) -> bool:
    """Whether one changed byte at ``at`` cost more than the event it stands in, or that uncounted.

    An event that is read with another value counts as read.
    """
    if len(found) + dropped.total() < len(truth):
        return True
    return any(
        event not in found
        for event, (start, end) in zip(truth, places, strict=True)
        if not start <= at < end
    )


def _chunk(data: bytes) -> bytes:
    """The list of events as the cutter would hand it to the scanner."""
    start = data.find(b"[", data.find(b'"traceEvents"'))
    return data[start : data.rfind(b"]") + 1] if start >= 0 else data


def _disagreements(both: Differential, inputs: list[bytes]) -> int:
    wrong = both.mismatches([_chunk(data) for data in inputs])
    for at in wrong:
        print(f"the scanner and SQL differ: {_chunk(inputs[at])!r}", file=sys.stderr)
    return len(wrong)


def run(inputs: int, seed: int) -> int:
    """Read ``inputs`` mutated traces; returns the number of failures."""
    both = Differential()
    waiting: list[bytes] = []
    rng = random.Random(seed)
    templates = _templates()
    truth = [list(_read(text)) for text, _ in templates]
    started = time.perf_counter()
    failures = 0
    for number in range(inputs):
        which = rng.randrange(len(templates))
        text, places = templates[which]
        data, at, kind = _mutated(text, rng)
        whole = sum(end < at for _, end in places)
        dropped: Counter[str] = Counter()
        begun = time.process_time()
        try:
            found = list(_read(data, dropped))
            # A mutation inside the header may hide the list of events; behind it nothing may go.
            fine = at < text.index(b"[") + 1 or found[:whole] == truth[which][:whole]
            # A splice may copy a nested object to where events stand; nothing else may.
            if kind != _SPLICE and any(_is_nested(event) for event in found):
                print(f"input {number}: took a nested object for an event", file=sys.stderr)
                fine = False
            if (
                kind == _REPLACE
                and places[0][0] <= at < places[-1][1]
                and _lost_in_silence(truth[which], places, at, found, dropped)
            ):
                print(f"input {number}: lost an event that is intact", file=sys.stderr)
                fine = False
        except Exception as error:  # noqa: BLE001
            print(f"input {number}: {error!r}: {data!r}", file=sys.stderr)
            fine = False
        if time.process_time() - begun > _SLOW_S:
            print(f"input {number}: slow: {data!r}", file=sys.stderr)
            fine = False
        elif not fine:
            print(f"input {number}: lost an event: {data!r}", file=sys.stderr)
        failures += not fine
        waiting.append(data)
        if len(waiting) == _TOGETHER or number == inputs - 1:
            failures += _disagreements(both, waiting)
            waiting = []
    elapsed = time.perf_counter() - started
    print(
        f"{inputs:,} inputs ({both.accepted:,} accepted by the scanner), "
        f"{inputs / elapsed:,.0f}/s, {failures} failures, seed {seed}"
    )
    return failures


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(1 if run(arguments.inputs, arguments.seed) else 0)


if __name__ == "__main__":
    main()
