"""One trace file on its way into the store: where it starts, what it says, how far it was read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.readers.kineto.cutter import Chunk, Cutter, NoEventsError
from advisor.ingest.readers.kineto.events_sql import IDS_PER_CHUNK, IDS_PER_FILE, LARGEST_NS
from advisor.ingest.readers.kineto.metadata import TraceInfo, read_fields, trace_info
from advisor.ingest.readers.kineto.repair import Normalise, Repairer, clean
from advisor.ingest.source import Source

_TAIL_HINT = 256 * 1024
_REPAIRED_CHUNK = 128 * 1024
_TAIL_KEYS = (b'"baseTimeNanoseconds"', b'"distributedInfo"', b'"advisor"', b'"traceName"')
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{1,15}|[1-3]\d{15})(?!\d)')
_ARGS_RANK = re.compile(rb'"args"\s*:\s*\{[^{}]*"rank"\s*:\s*\d')


@dataclass
class Trace:
    """State of one file: filled by :meth:`peek`, then :meth:`chunks`, then :meth:`repairs`."""

    source: Source
    number: int = 0
    info: TraceInfo = field(default_factory=TraceInfo)
    rank: int = 0
    merged: bool = False
    base_ns: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    tail: bytes = b""
    offsets: list[tuple[int, int]] = field(default_factory=list)
    head: bytes = b""
    last: bytes = b""
    sha256: str | None = None
    ended_in: int | None = None
    ends_in_chunk: bool = False
    no_duration: int = 0
    refused: str | None = None
    """Why the file is left out, where reading it was given up."""

    def peek(self) -> None:
        """Read the head (and the tail where seeking is cheap) for rank, base time and groups."""
        source = self.source
        stream, raw = source.open_raw()
        with stream:
            try:
                self.head = Cutter(raw.read_piece, source.limits).head
            except NoEventsError as error:
                raise AdvisorError(
                    "holds no list of events (traceEvents)",
                    where=str(source.path),
                    hint="pass a trace written by torch.profiler or another Chrome trace",
                ) from error
        self.info = trace_info(self.head, self._tail_hint(), source.path)
        if self.info.rank_from != "distributedInfo" and source.compression != "none":
            self.info = trace_info(self.head, _fields_at_end(self._last_bytes()), source.path)
        self._set_base()
        self.merged = self.info.rank_from != "distributedInfo" and bool(
            _ARGS_RANK.search(source.head)
        )

    def _tail_hint(self) -> bytes:
        """The fields at the end of a plain file, without reading the rest."""
        if self.source.compression != "none":
            return b""
        with self.source.path.open("rb") as file:
            file.seek(max(0, self.source.size - _TAIL_HINT))
            return _fields_at_end(file.read())

    def _last_bytes(self) -> bytes:
        """The end of a compressed file: it has to be decompressed for that."""
        end = b""
        with self.source.open() as stream:
            while data := stream.read(_TAIL_HINT):
                end = (end + data)[-_TAIL_HINT:]
        return end

    def _set_base(self) -> None:
        base = self.info.base_time_ns or 0
        self.base_ns = base if 0 <= base <= LARGEST_NS else 0

    @property
    def origin_us(self) -> int | None:
        """The first timestamp in the file's head, whole microseconds."""
        match = _FIRST_TIME.search(self.source.head)
        return int(match.group(1)) if match else None

    @property
    def first_id(self) -> int:
        """Smallest event id of this file."""
        return self.number * IDS_PER_FILE

    @property
    def last_id(self) -> int:
        """Largest event id of this file."""
        return self.first_id + IDS_PER_FILE - 1

    def chunks(self, progress: Any = None) -> Iterator[Chunk]:
        """The file's chunks as cut; the remainder after the last safe cut is kept aside."""
        source = self.source
        stream, raw = source.open_raw()
        raw.start_hash()
        with stream:
            cutter = Cutter(raw.read_piece, source.limits)
            for chunk in cutter.chunks():
                self.offsets.append((chunk.start, chunk.end))
                if not chunk.text.isascii():
                    chunk.text = self._valid_utf8(chunk.text)
                yield chunk
                if progress is not None:
                    progress(str(source.path), raw.consumed_bytes, source.size)
            self.sha256 = raw.hexdigest()
            self.last = cutter.last
            self.ends_in_chunk = cutter.ended_inside
            if raw.damage:
                self.complete = False
                self.notes.append(raw.damage)

    def chunks_again(self, numbers: Collection[int]) -> Iterator[Chunk]:
        """Chunks of the numbers given, as :meth:`chunks` gave them."""
        stream, raw = self.source.open_raw()
        with stream:
            for chunk in Cutter(raw.read_piece, self.source.limits).chunks():
                if chunk.number in numbers:
                    if not chunk.text.isascii():
                        chunk.text = self._valid_utf8(chunk.text)
                    yield chunk
                if chunk.number >= max(numbers):
                    return

    def _valid_utf8(self, text: bytearray) -> bytearray:
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            self._note_once("bytes that are not UTF-8 were replaced")
            return bytearray(text.decode("utf-8", errors="replace").encode())
        return text

    def _note_once(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def last_events(self, normalise: Normalise) -> Iterator[Chunk]:
        """The events in the remainder; sets ``tail``."""
        if self.ends_in_chunk:
            return
        repairer = Repairer(iter([self.last]), self.source.limits, is_last=True)
        yield from self._written(repairer, len(self.offsets), normalise)
        if repairer.end is None:
            self._cut_off()
        self.tail = repairer.tail
        self.last = b""

    def _cut_off(self) -> None:
        self.complete = False
        self._note_once("the file was cut off: its list of events has no end")

    def repairs(self, bad: list[int], normalise: Normalise) -> Iterator[Chunk]:
        """Read malformed chunks again, event by event, neighbours together, in one pass.

        Sets ``ended_in`` on the way when the list of events turns out to end inside one.
        """
        at = 0
        with self.source.open() as stream:
            for first, last in _runs(bad):
                start, end = self.offsets[first][0], self.offsets[last][1]
                for _ in _pieces(stream, start - at):
                    pass
                at_end = self.ends_in_chunk and last == len(self.offsets) - 1
                stretch = _pieces(stream, end - start)
                repairer = Repairer(stretch, self.source.limits, is_last=at_end)
                yield from self._written(repairer, first, normalise)
                if repairer.end is not None:
                    self.ended_in = last
                    self.tail = repairer.tail + stream.read(_TAIL_HINT)
                    return
                if at_end:
                    self._cut_off()
                for _ in stretch:
                    pass
                at = end

    def _written(self, repairer: Repairer, number: int, normalise: Normalise) -> Iterator[Chunk]:
        """Readable events as chunks that the database parses like any other."""
        texts: list[str] = []
        size = 0
        used = 0
        for event in repairer.events():
            texts.append(json.dumps(clean(normalise(event)), ensure_ascii=True))
            size += len(texts[-1])
            if size >= _REPAIRED_CHUNK:
                yield _chunk_of(texts, number, used)
                used += len(texts)
                texts, size = [], 0
        if texts:
            yield _chunk_of(texts, number, used)
        self.dropped.update(repairer.dropped)

    def finish(self) -> None:
        """Merge the tail's fields into what the head said."""
        before = (self.info.rank, self.info.rank_from)
        self.info = trace_info(self.head, self.tail, self.source.path)
        if self.info.rank is None:
            self.info.rank, self.info.rank_from = before
        self._set_base()


def _fields_at_end(end: bytes) -> bytes:
    """A guess at the fields after the events; what is read in the end decides."""
    found = [end.rfind(key) for key in _TAIL_KEYS]
    at = min((place for place in found if place >= 0), default=-1)
    return end[at:] if at >= 0 else b""


@dataclass
class RepairedChunk(Chunk):
    """A chunk rewritten from readable events; ``used`` ids of its number are taken already."""

    used: int = 0


def _chunk_of(texts: list[str], number: int, used: int) -> RepairedChunk:
    text = bytearray(("[" + ",".join(texts) + "]").encode("ascii"))
    return RepairedChunk(number=number, start=0, end=0, text=text, used=used)


def chunk_first_id(trace: Trace, chunk: Chunk) -> int:
    """Event id of a chunk's first event."""
    return trace.first_id + chunk.number * IDS_PER_CHUNK + getattr(chunk, "used", 0)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers as (first, last)."""
    start: int | None = None
    previous = 0
    for number in sorted(numbers):
        if start is None:
            start = number
        elif number != previous + 1:
            yield start, previous
            start = number
        previous = number
    if start is not None:
        yield start, previous


def _pieces(stream: Any, remaining: int) -> Iterator[bytes]:
    """The next bytes of the stream, as many as there are of those wanted."""
    while remaining > 0 and (data := stream.read(min(remaining, 1 << 20))):
        remaining -= len(data)
        yield data


__all__ = ["RepairedChunk", "Trace", "chunk_first_id", "read_fields"]
