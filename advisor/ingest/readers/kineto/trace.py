"""One trace file on its way into the store: where it starts, what it says, how far it was read."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.readers.kineto.beginning import DAMAGED_HEAD
from advisor.ingest.readers.kineto.cutter import Chunk, Cutter, NoEventsError
from advisor.ingest.readers.kineto.event_fields import IDS_PER_CHUNK, IDS_PER_FILE, LARGEST_NS
from advisor.ingest.readers.kineto.lost_bytes import ERASED
from advisor.ingest.readers.kineto.metadata import TraceInfo, trace_info
from advisor.ingest.readers.kineto.repair import Repairer
from advisor.ingest.readers.kineto.reread import Reread, reread_all, reread_chunks
from advisor.ingest.readers.kineto.window import PIECE
from advisor.ingest.source import Source

_TAIL_HINT = 256 * 1024
_TAIL_KEYS = (b'"baseTimeNanoseconds"', b'"distributedInfo"', b'"advisor"', b'"traceName"')
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{1,15}|[1-3]\d{15})(?!\d)')
_RANK_KEY = rb'rank"\s*:\s*"?\d'
_ARGS_RANK = re.compile(
    rb'"args"\s*:\s*\{(?:[^{}"]++|"(?!%s)|\{[^{}]*+\})*+"%s' % (_RANK_KEY, _RANK_KEY)
)


@dataclass
class Trace:
    """State of one file, filled by :meth:`peek`, :meth:`chunks`, :meth:`last_events`, where chunks
    were malformed :meth:`repairs`, and :meth:`settle`.

    ``covered`` are chunks whose rows are to be forgotten, ``foreign`` the ids (first, last) of
    events that further documents in the file hold of another rank or clock.
    ``read_bytes``: what was decompressed; ``undecompressed``: about what damage kept back.
    ``asks_events``: the file does not state its rank, so that an event's own ``args.rank`` counts;
    ``guessed``: the note of a file that was given a rank, which it does not state;
    ``merged``: it is known to hold several ranks; ``is_rank``: it is one of the run's recordings.
    """

    source: Source
    number: int = 0
    info: TraceInfo = field(default_factory=TraceInfo)
    rank: int = 0
    asks_events: bool = False
    merged: bool = False
    is_rank: bool = True
    base_ns: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    guessed: str = ""
    complete: bool = True
    tail: bytes = b""
    offsets: list[tuple[int, int]] = field(default_factory=list)
    head: bytes = b""
    last: bytes = b""
    last_start: int = 0
    in_object: bool = True
    digest: str | None = None
    ends_in_chunk: bool = False
    codes: list[str] = field(default_factory=list)
    read_bytes: int = 0
    undecompressed: int = 0
    refused: str | None = None
    """Why the file is left out, where reading it was given up."""
    covered: set[int] = field(default_factory=set)
    foreign: list[tuple[int, int]] = field(default_factory=list)
    _ending: Reread = field(default_factory=Reread)
    _reread: Reread = field(default_factory=Reread)

    def peek(self) -> None:
        """Read the head (and the tail where seeking is cheap) for rank, base time and groups."""
        source = self.source
        stream, raw = source.open_raw()
        with stream:
            try:
                cutter = Cutter(raw.read_piece, source.limits)
            except NoEventsError as error:
                raise AdvisorError(
                    "holds no list of events (traceEvents) that can be read",
                    where=str(source.path),
                    hint="pass a trace written by torch.profiler or another Chrome trace; if this "
                    "is one, its beginning is damaged: copy it again",
                ) from error
        self.head = cutter.head
        if cutter.damaged_head:
            self.complete = False
            self.notes.append(DAMAGED_HEAD)
        self.info = trace_info(self.head, self._tail_hint(), source.path, source.head)
        if self.info.rank_from != "distributedInfo" and source.compression != "none":
            end = _fields_at_end(self._last_bytes())
            self.info = trace_info(self.head, end, source.path, source.head)
        self.set_base()
        self.asks_events = self.info.rank_from != "distributedInfo"
        self.merged = self.asks_events and bool(_ARGS_RANK.search(source.head))

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

    def set_base(self) -> None:
        """Take the base time that ``info`` holds, where it is one."""
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
        """The chunks as cut, maybe no UTF-8; what follows the last safe cut is kept aside."""
        source = self.source
        stream, raw = source.open_raw()
        raw.start_hash()
        with stream:
            cutter = Cutter(raw.read_piece, source.limits)
            for chunk in cutter.chunks():
                self.offsets.append((chunk.start, chunk.end))
                yield chunk
                if progress is not None:
                    progress(str(source.path), raw.consumed_bytes, source.size)
            self.read_bytes, self.undecompressed = raw.produced_bytes, raw.missing_bytes
            self.digest = raw.hexdigest()
            self.last, self.last_start = cutter.last, cutter.last_start
            self.in_object = cutter.in_object
            self.ends_in_chunk = cutter.ended_inside
            if raw.damage:
                self.complete = False
                self.notes.append(raw.damage)

    def utf8(self, text: bytearray) -> bytearray:
        """A chunk's text as UTF-8, or a malformed one where it has to be read event by event."""
        return text if text.isascii() else self._valid_utf8(text)

    def _valid_utf8(self, text: bytearray) -> bytearray:
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            if ERASED in text:
                return bytearray(b"[")  # malformed, to be read event by event
            self._note_once("bytes that are not UTF-8 were replaced")
            return bytearray(text.decode("utf-8", errors="replace").encode())
        return text

    def _note_once(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _repairer(self, pieces: Iterator[bytes], start: int = 0) -> Repairer:
        return Repairer(
            pieces,
            self.source.limits,
            start=start,
            in_object=self.in_object,
            examples=self._examples,
        )

    def _examples(self) -> Iterator[dict[str, Any]]:
        """The events in the file's head."""
        begin = self.offsets[0][0] if self.offsets else self.last_start
        limits = self.source.limits
        yield from Repairer(iter([self.source.head[begin:]]), limits, in_object=False).events()

    def last_events(self) -> Iterator[Chunk]:
        """The events in the remainder after the last cut."""
        if not self.ends_in_chunk:
            repairer = self._repairer(iter([self.last]), self.last_start)
            self.last = b""
            yield from reread_all(repairer, len(self.offsets), self._ending)

    def repairs(self, bad: list[int]) -> Iterator[Chunk]:
        """Read malformed chunks again, and what was cut wrongly after them, in one pass."""
        starts = [start for start, _ in self.offsets]
        if not self.ends_in_chunk:
            starts.append(self.last_start)
        with self.source.open() as stream:
            repairer = self._repairer(_pieces(stream))
            yield from reread_chunks(repairer, starts, bad, self._reread)

    def settle(self) -> None:
        """Put together what reading the chunks, the bad ones again and the remainder found."""
        reread, ending = self._reread, self._ending
        self.covered = reread.covered
        if len(self.offsets) in reread.covered or self.ends_in_chunk:
            ending = Reread(ended=reread.ended)
        self.dropped.update(reread.dropped)
        self.dropped.update(ending.dropped)
        reread.unread.add(ending.unread)
        told = reread.unread.settle(
            self.dropped, self.read_bytes, self.source.head, self.undecompressed
        )
        if told:
            self.notes.append(told)
        documents = reread.documents or [b""]
        if ending.documents:
            documents[-1:] = [documents[-1] + ending.documents[0], *ending.documents[1:]]
        self.tail = documents[0]
        if not ending.ended:
            self.complete = False
            self._note_once("the file was cut off: its list of events has no end")
        self._find_foreign(documents[1:], [*reread.starts, *ending.starts])

    def _find_foreign(self, documents: list[bytes], starts: list[tuple[int, int]]) -> None:
        """Which of the further documents are of another rank or clock than the first."""
        if not starts:
            return
        own = trace_info(self.head, self.tail, self.source.path)
        ids = [self.first_id + number * IDS_PER_CHUNK + at for number, at in starts]
        for text, first, following in zip(
            documents, ids, [*ids[1:], self.last_id + 1], strict=False
        ):
            told = trace_info(text, b"", self.source.path)
            ranks = {_stated_rank(told), _stated_rank(own), None}
            if len(ranks) > 2 or told.base_time_ns != own.base_time_ns:
                self.foreign.append((first, following - 1))
        self.notes.append(f"holds {len(set(ids)) + 1} documents, one after the other")

    def finish(self) -> None:
        """Merge the tail's fields into what the head said."""
        before = (self.info.rank, self.info.rank_from)
        self.info = trace_info(self.head, self.tail, self.source.path, self.source.head)
        if self.info.rank is None:
            self.info.rank, self.info.rank_from = before
        self.set_base()


def _fields_at_end(end: bytes) -> bytes:
    """A guess at the fields after the events; what is read in the end decides."""
    found = [end.rfind(key) for key in _TAIL_KEYS]
    at = min((place for place in found if place >= 0), default=-1)
    return end[at:] if at >= 0 else b""


def _stated_rank(info: TraceInfo) -> int | None:
    """The rank that the text states, not the file's name."""
    return None if info.rank_from.startswith("the name ") else info.rank


def chunk_first_id(trace: Trace, chunk: Chunk) -> int:
    """Event id of a chunk's first event."""
    return trace.first_id + chunk.number * IDS_PER_CHUNK + getattr(chunk, "used", 0)


def _pieces(stream: Any) -> Iterator[bytes]:
    while data := stream.read(PIECE):
        yield data
