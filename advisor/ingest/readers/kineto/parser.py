"""Rows of events as Python's JSON decoder reads them: what the scanner refuses or was repaired.

The other of two parsers of one grammar: :mod:`.native` gives the same rows, ten times as fast.
"""

import json
import re
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from advisor.ingest.classes import classify, keeps_shapes, runs_on_device
from advisor.ingest.readers._rows import arrow_column
from advisor.ingest.readers.kineto import event_fields as of
from advisor.ingest.readers.kineto.json_value import Digits, clean, decoder, is_deeper
from advisor.ingest.readers.kineto.native.scanner import COMM_EVENTS, EVENTS
from advisor.vocabulary.numbers import INT32_MAX, INT64_MAX, MOST_RANKS, within

UNUSABLE = pa.schema([("event_id", pa.int64()), ("field", pa.string())])
"""Of which events a field is a number or a container, and no whole number in range."""
_DECODER = decoder(strict=True, parse_int=int)
_NUMBER_LIKE = re.compile(r"\s*[-+.\d\[{]|(true|false)$")
"""Other texts are names: ``pid`` is "Spans" where a profiler has its own marks."""
_KEYS_OF = (dict.fromkeys(of.FACT_COLUMNS.values()), dict.fromkeys(of.COMM_COLUMNS.values()))
"""What is kept of events, and of those whose shapes are kept."""
_MOST = {"INTEGER": INT32_MAX, "BIGINT": INT64_MAX}


class Parser:
    """Collects the rows of chunks; not to be shared by threads."""

    def __init__(self, external_key: str, *, lean: bool, merged: bool) -> None:
        self._external_key = external_key
        self._lean = lean
        self._merged = merged
        self._rows: dict[Any, list[tuple[Any, ...]]] = {EVENTS: [], COMM_EVENTS: [], UNUSABLE: []}

    @property
    def empty(self) -> bool:
        """Whether nothing waits for :meth:`take`."""
        return not any(self._rows.values())

    def parse(self, text: bytearray, levels: int, *place: int) -> bool:
        """Add a chunk's rows; False where it is no list of whole events."""
        try:
            events = _DECODER.decode(text.decode())
        except (ValueError, RecursionError):
            return False
        if not isinstance(events, list) or is_deeper(text, levels + 1):
            return False
        if not all(event is None or isinstance(event, dict) for event in events):
            return False
        self.add(events, *place)
        return True

    def add(
        self, events: Iterable[dict[str, Any] | None], rank: int, base_ns: int, first_id: int
    ) -> None:
        """Add the rows of events, which have one id after the other."""
        for event_id, event in enumerate(events, first_id):
            self._add(event or {}, rank, base_ns, event_id)

    def take(self) -> list[Any]:
        """The rows so far as a record batch each of events, facts of communication, and losses."""
        batches = []
        for schema, rows in self._rows.items():
            columns = list(zip(*rows, strict=True)) or [()] * len(schema)
            batches.append(
                pa.RecordBatch.from_arrays(
                    [arrow_column(*one) for one in zip(columns, schema.types, strict=True)],
                    schema=schema,
                )
            )
            rows.clear()
        return batches

    def _add(self, event: dict[str, Any], rank: int, base_ns: int, event_id: int) -> None:
        phase, args = event.get("ph"), event.get("args")
        if isinstance(phase, str) and len(phase) == 1 and phase in of.IGNORED_PHASES:
            return
        args = args if isinstance(args, dict) else {}
        if self._external_key in args:
            args["External id"] = args[self._external_key]
        name = _text(event.get("name"))
        category = _text(args.get("name") if phase == "M" else event.get("cat"))
        if phase == "M" and category is None:
            return  # says nothing that is kept

        def whole(key: str, kind: str = "BIGINT", found: dict[str, Any] = args) -> int | None:
            value = found.get(key)
            if value is None:
                return None
            number = _whole(value, _MOST[kind])
            if number is None and _NUMBER_LIKE.match(str(_text(value))):
                self._rows[UNUSABLE].append((event_id, key))
            return number

        start = _nanoseconds(event.get("ts"))
        stream = whole("stream")
        if phase == "M":
            class_, start = of.METADATA, start or 0
        elif not isinstance(phase, str):
            class_ = of.NO_PHASE
        elif start is None:
            class_ = of.NO_TIME
        elif phase == "X" or phase in of.INSTANTS:
            class_ = classify(category, name, device=stream is not None)
        else:
            class_ = {"B": of.BEGIN, "E": of.END}.get(phase, of.NO_PHASE)
        if self._merged and args.get("rank") is not None:
            own = within(_whole(args["rank"], INT32_MAX), 0, MOST_RANKS - 1)
            if own is not None:
                rank = own
            elif class_ not in (of.METADATA, of.NO_PHASE, of.NO_TIME):
                class_ = of.NO_RANK
        if self._lean and class_ in of.NOT_LEAN:
            return
        device = whole("device", "INTEGER")
        pid, tid = (whole(key, found=event) for key in ("pid", "tid"))
        if phase == "M" or (class_ != of.END and not runs_on_device(category)):
            device = stream = None
        elif class_ != of.END:
            device = within(pid, -INT32_MAX - 1, INT32_MAX) if device is None else device
            stream = tid if stream is None else stream
        duration = _nanoseconds(event.get("dur"))
        if duration is None or duration < 0:
            duration = None if phase == "X" else 0
        self._rows[EVENTS].append(
            (
                *(name, category, class_, rank, event_id, base_ns + (start or 0), duration),
                *(device, stream, pid, tid),
                *(whole("correlation"), whole("External id"), whole("bytes")),
            )
        )
        asks = phase == "E" or keeps_shapes(name or "")
        if _KEYS_OF[asks].keys().isdisjoint(args):
            return
        facts = [
            whole(key, of.ARGS[key]) if of.ARGS[key] in _MOST else _text(args.get(key))
            for key in _KEYS_OF[asks]
        ]
        kept = class_[0] != "!" or class_ in (of.BEGIN, of.END)
        if kept and any(fact is not None for fact in facts):
            facts += [None] * (len(of.COMM_COLUMNS) - len(facts))
            self._rows[COMM_EVENTS].append((rank, event_id, *facts))


def _text(value: Any) -> str | None:
    """A value as a column of text holds it: containers as JSON without blanks."""
    if value is None:
        return None
    if isinstance(value, str):
        return str(value) if value.isascii() else str(clean(value))
    return _json(value)


def _json(value: Any) -> str:
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(key)}:{_json(item)}" for key, item in value.items()) + "}"
    return json.dumps(clean(value), ensure_ascii=False)


def _whole(value: Any, most: int) -> int | None:
    """A whole number or its text, which may be hexadecimal as AMD's profiler writes streams."""
    if not isinstance(value, str):
        return within(value, -most - 1, most)
    try:
        if value.startswith("0x"):
            return within(int(value, 16), -most - 1, most)
        real = float(value)
        fits = real.is_integer() and abs(real) <= 2 * INT64_MAX
        return within(int(Decimal(value)), -most - 1, most) if fits else None
    except (ValueError, InvalidOperation):
        return None


def _nanoseconds(value: Any) -> int | None:
    """Microseconds, a number or its text, as exact nanoseconds; None for what is no such time."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        number = Decimal(value)
        if not abs(number) <= of.LARGEST_US:
            return None
        return int((number * 1000).to_integral_value(ROUND_HALF_UP))
    except (ValueError, InvalidOperation):
        return None
