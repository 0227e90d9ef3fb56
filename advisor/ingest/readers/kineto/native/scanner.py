"""One scanner and the batch that it fills: chunks in, Arrow batches of both tables out."""

import ctypes
import secrets
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

import pyarrow as pa

from advisor.ingest.classes import (
    classify,
    decided_by_category,
    event_classes,
    keeps_shapes,
    runs_on_device,
)
from advisor.ingest.readers.kineto import event_fields

Status = Literal["done", "refused", "full"]
_DONE, _REFUSED, _FULL, _ASK = range(4)
_ON_STREAM, _NO_CATEGORY = 1, 2
ROWS = 65_536

# In the order of scan.c: (column, type, may be null).
_COLUMNS = (
    ("code", pa.int32(), False),
    ("rank", pa.int32(), False),
    ("event_id", pa.int64(), False),
    ("start_ns", pa.int64(), False),
    ("dur_ns", pa.int64(), True),
    ("device", pa.int32(), True),
    ("stream", pa.int64(), True),
    ("pid", pa.int64(), True),
    ("tid", pa.int64(), True),
    ("correlation", pa.int64(), True),
    ("external_id", pa.int64(), True),
    ("bytes", pa.int64(), True),
)
_NAMES = pa.dictionary(pa.int32(), pa.string())
EVENTS = pa.schema(
    [(name, _NAMES) for name in ("name", "category", "class")]
    + [(name, kind) for name, kind, _ in _COLUMNS[1:]]
)
_KINDS = {"VARCHAR": "t", "BIGINT": "l", "INTEGER": "i"}
_COMM = {
    column: _KINDS[event_fields.ARGS[key]] for column, key in event_fields.COMM_COLUMNS.items()
}
COMM_EVENTS = pa.schema(
    [("rank", pa.int32()), ("event_id", pa.int64())]
    + [(column, pa.string() if kind == "t" else pa.int64()) for column, kind in _COMM.items()]
)
_DATA, _BITS, _NAME, _CATEGORY, _NAME_ENDS, _CATEGORY_ENDS, _CLASSES = range(7)
_COMM_RANK, _COMM_ID, _COMM_DATA, _COMM_ENDS, _COMM_BITS = range(7, 12)


class _Pool:
    """The C side's memory of batches that are no more: fresh pages cost more than filling them."""

    _MOST = 2

    def __init__(self, library: Any) -> None:
        self.library = library
        self._free: list[int] = []

    def __del__(self) -> None:
        for handle in self._free:
            self.library.advisor_batch_free(handle)

    def take(self) -> int:
        """The handle of an empty batch."""
        try:
            handle = self._free.pop()
        except IndexError:
            handle = self.library.advisor_batch_new(ROWS)
        else:
            if not self.library.advisor_batch_clear(handle):
                self.library.advisor_batch_free(handle)
                handle = 0
        if not handle:
            raise MemoryError("no room for a batch of events")
        return int(handle)

    def give(self, handle: int) -> None:
        """Take back what nobody uses any more; from any thread."""
        if len(self._free) < self._MOST:
            self._free.append(handle)
        else:
            self.library.advisor_batch_free(handle)


class _Batch:
    """Owns the C side's memory; Arrow's buffers keep it alive."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._library = pool.library
        self.handle = pool.take()

    def __del__(self) -> None:
        if hasattr(self, "handle"):  # else there was no room for one
            self._pool.give(self.handle)

    def counts(self) -> tuple[int, int, int]:
        """Rows of ``event``, names, rows of ``comm_event``."""
        counts = (ctypes.c_int32 * 3)()
        self._library.advisor_counts(self.handle, counts)
        return counts[0], counts[1], counts[2]

    def buffer(self, which: int, at: int = 0) -> Any:
        """A buffer of the batch, not copied."""
        size = ctypes.c_int64()
        address = self._library.advisor_buffer(self.handle, which, at, size)
        if not size.value:
            return pa.py_buffer(b"")
        return pa.foreign_buffer(address, size.value, base=self)

    def copied(self, which: int, at: int = 0) -> Any:
        """As :meth:`buffer`, but it does not keep the batch alive."""
        return pa.py_buffer(self.buffer(which, at).to_pybytes())


class Scanner:
    """Scans chunks one after the other; not to be shared by threads."""

    def __init__(self, library: Any, external_key: str, *, lean: bool, merged: bool) -> None:
        self._library = library
        self._pool = _Pool(library)
        self._lean = lean
        self._classes = [*_class_names(), event_fields.METADATA]
        self._class_texts = [name.encode() for name in self._classes]
        names = ("device", "stream", "correlation", external_key, "bytes", "name", "rank")
        keys = [key.encode() for key in (*names, *event_fields.COMM_COLUMNS.values())]
        self._handle = library.advisor_scanner_new(
            (ctypes.c_char_p * len(keys))(*keys),
            len(keys),
            "".join(_COMM.values()).encode(),
            len(event_fields.SHAPE_COLUMNS),
            "".join(event_fields.INSTANTS).encode(),
            event_fields.IGNORED_PHASES.encode(),
            merged,
            len(self._classes) - 1,
            secrets.randbits(64),
        )
        if not self._handle:
            raise MemoryError("no room for a scanner")
        self._batch = self._next_batch()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):  # else there was no room to ask for one
            self._library.advisor_scanner_free(self._handle)

    def _next_batch(self) -> _Batch:
        self._library.advisor_next_batch(self._handle)
        return _Batch(self._pool)

    @property
    def empty(self) -> bool:
        """Whether nothing waits for :meth:`take`."""
        return self._batch.counts()[0] == 0

    def scan(self, text: bytearray, rank: int, base_ns: int, first_id: int) -> Status:
        """Add a chunk's rows; unless ``done`` there are none of it. ``full``: take, then again."""
        if not text:
            return "refused"
        library, scanner, batch = self._library, self._handle, self._batch.handle
        held = ctypes.c_char.from_buffer(text)  # an array type of each size would cost more
        address = ctypes.addressof(held)
        library.advisor_begin(scanner, batch, address, len(text), rank, base_ns, first_id)
        while (status := library.advisor_scan(scanner, batch)) == _ASK:
            if not self._answer():
                library.advisor_undo(scanner, batch)
                status = _FULL
                break
        if status == _FULL and self.empty:
            return "refused"
        return "done" if status == _DONE else "full" if status == _FULL else "refused"

    def _answer(self) -> bool:
        places, sizes = (ctypes.c_void_p * 2)(), (ctypes.c_int64 * 2)()
        flags = self._library.advisor_question(self._handle, places, sizes)
        texts = [
            ctypes.string_at(place, size).decode() if size else ""
            for place, size in zip(places, sizes, strict=True)
        ]
        category = None if flags & _NO_CATEGORY else texts[0]
        name = texts[1]
        class_ = classify(category, name, device=bool(flags & _ON_STREAM))
        return bool(
            self._library.advisor_answer(
                self._handle,
                self._classes.index(class_),
                runs_on_device(category),
                keeps_shapes(name),
                self._lean and class_ in event_fields.NOT_LEAN,
                decided_by_category(category),
            )
        )

    def take(self) -> tuple[Any, Any]:
        """The rows so far as record batches of ``event`` and ``comm_event``; a new batch begins."""
        batch, self._batch = self._batch, self._next_batch()
        rows, names, comm_rows = batch.counts()
        codes = batch.buffer(_DATA)
        index = pa.Array.from_buffers(pa.int32(), rows, [None, codes])
        categorised = pa.Array.from_buffers(pa.int32(), rows, [batch.buffer(_BITS), codes])
        class_of = memoryview(batch.buffer(_CLASSES)).cast("i")
        ends, category_ends = batch.buffer(_NAME_ENDS), batch.buffer(_CATEGORY_ENDS)
        texts = (
            (index, _strings(names, None, ends, batch.buffer(_NAME))),
            (categorised, _strings(names, None, category_ends, batch.buffer(_CATEGORY))),
            (index, _from_texts([self._class_texts[code] for code in class_of])),
        )
        columns = [pa.DictionaryArray.from_arrays(*pair, safe=False) for pair in texts]
        for at, (_, kind, may_be_null) in enumerate(_COLUMNS[1:], 1):
            bits = batch.buffer(_BITS, at) if may_be_null else None
            columns.append(pa.Array.from_buffers(kind, rows, [bits, batch.buffer(_DATA, at)]))
        return pa.RecordBatch.from_arrays(columns, schema=EVENTS), _comm_batch(batch, comm_rows)


def _class_names() -> list[str]:
    classes = event_classes()
    by_name = {rule.class_ for rule in (*classes.device_names, *classes.host_names)}
    return sorted({"annotation", "other"} | by_name | {rule.class_ for rule in classes.categories})


def _strings(rows: int, bits: Any, ends: Any, data: Any) -> Any:
    return pa.StringArray.from_buffers(rows, ends, data, bits)


def _from_texts(texts: Sequence[bytes]) -> Any:
    # pa.array would import pandas, which takes longer than scanning 300 MB.
    ends = array("i", accumulate(map(len, texts), initial=0))
    return _strings(len(texts), None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def _comm_batch(batch: _Batch, rows: int) -> Any:
    # Copied: these few rows wait for more, and would keep all events of the batch with them.
    columns = [
        pa.Array.from_buffers(pa.int32(), rows, [None, batch.copied(_COMM_RANK)]),
        pa.Array.from_buffers(pa.int64(), rows, [None, batch.copied(_COMM_ID)]),
    ]
    for at, kind in enumerate(_COMM.values()):
        bits, data = batch.copied(_COMM_BITS, at), batch.copied(_COMM_DATA, at)
        if kind == "t":
            columns.append(_strings(rows, bits, batch.copied(_COMM_ENDS, at), data))
        else:
            columns.append(pa.Array.from_buffers(pa.int64(), rows, [bits, data]))
    return pa.RecordBatch.from_arrays(columns, schema=COMM_EVENTS)
