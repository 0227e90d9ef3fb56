"""Rows of a damaged sqlite file, read from its pages: what a lost page held is lost, no more.

sqlite gives up a table at its first missing page. Its file format is public and simple
(https://sqlite.org/fileformat2.html): a table is a tree of pages, of which every one that is there
is read here and every one that is not is counted. Nothing is written and no SQL is run.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_INTERIOR, _LEAF = 5, 13  # of tables with row ids, as Nsight Systems' are
_MAX_DEPTH = 20
MAX_ROW_BYTES = 16 * 1024 * 1024
_ENCODINGS = {2: "utf-16-le", 3: "utf-16-be"}
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_NO_BYTES: dict[int, Any] = {0: None, 8: 0, 9: 1}


@dataclass
class Losses:
    """What of a table could not be read; ``rows``: how many row ids its lost pages covered."""

    pages: int = 0
    rows: int = 0
    open_end: bool = False
    """The last page is lost: nothing tells how many rows followed."""
    leaf_depth: int | None = field(default=None, compare=False)
    leaf_rows: int = field(default=0, compare=False)
    """Where the tree's leaves are (all at one depth), and how many rows the fullest one holds."""

    def lose(self, rows: int, depth: int) -> None:
        """Count a page whose keys claim so many rows; of a leaf's, no more than one can hold."""
        self.pages += 1
        at_leaves = self.leaf_depth is not None and depth >= self.leaf_depth
        self.rows += min(rows, 2 * self.leaf_rows) if at_leaves else rows


@dataclass
class _Page:
    number: int
    data: bytes
    start: int
    """Where its header is: the first page begins with the file's."""

    @property
    def kind(self) -> int:
        return self.data[self.start] if len(self.data) > self.start + 12 else 0

    def cells(self) -> list[int]:
        """Where its cells are; -1 for those whose place is cut off."""
        count = int.from_bytes(self.data[self.start + 3 : self.start + 5], "big")
        first = self.start + (12 if self.kind == _INTERIOR else 8)
        return [
            int.from_bytes(self.data[at : at + 2], "big") if at + 2 <= len(self.data) else -1
            for at in range(first, first + 2 * count, 2)
        ]


class DamagedRowError(Exception):
    """A row that is not whole, or not a row at all."""


@dataclass
class Pages:
    """A sqlite file by its pages. Raises ValueError when its header tells no page size."""

    path: Path
    _seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._file = self.path.open("rb")
        head = self._file.read(_HEADER_BYTES)
        size = int.from_bytes(head[16:18], "big")
        self.page_bytes = 65536 if size == 1 else size
        if (
            len(head) < _HEADER_BYTES
            or not head.startswith(MAGIC)
            or self.page_bytes < 512
            or self.page_bytes & (self.page_bytes - 1)
        ):
            self._file.close()
            raise ValueError("its first page is cut or damaged")
        self._usable = self.page_bytes - head[20]
        self._encoding = _ENCODINGS.get(int.from_bytes(head[56:60], "big"), "utf-8")
        whole, rest = divmod(os.fstat(self._file.fileno()).st_size, self.page_bytes)
        self.present = whole + (rest > 0)
        same = head[24:28] == head[92:96]  # else an old library wrote it, and left the count
        self.expected = int.from_bytes(head[28:32], "big") if same else self.present
        self.missing = max(0, self.expected - whole)

    def __enter__(self) -> "Pages":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def rows(self, root: int, losses: Losses) -> Iterator[tuple[int, list[Any]]]:
        """(row id, values) of the table whose tree begins at page ``root``, in its order."""
        yield from self._walk(root, 0, None, losses, 0)

    def _walk(
        self, number: int, low: int, high: int | None, losses: Losses, depth: int
    ) -> Iterator[tuple[int, list[Any]]]:
        """The rows of one page and those below it, whose ids are in ``low``+1 … ``high``."""
        page = self._page(number)
        if page is None or page.kind not in (_INTERIOR, _LEAF) or depth > _MAX_DEPTH:
            losses.lose(max(0, high - low) if high is not None else 0, depth)
            losses.open_end |= high is None
        elif page.kind == _LEAF:
            losses.leaf_depth = depth
            yield from self._leaf(page, losses)
        else:
            for child, key in self._children(page):
                # Keys that do not grow are damage: nothing is told from them.
                upto = key if key is not None and key >= low else None
                yield from self._walk(child, low, high if key is None else upto, losses, depth + 1)
                low = upto if upto is not None else low

    def _leaf(self, page: _Page, losses: Losses) -> Iterator[tuple[int, list[Any]]]:
        lost = 0
        cells = page.cells()
        losses.leaf_rows = max(losses.leaf_rows, len(cells))
        for at in cells:
            try:
                row = self._row(page, at)
            except (DamagedRowError, IndexError, ValueError, struct.error):
                lost += 1
                continue
            yield row
        losses.rows += lost
        losses.pages += lost > 0

    def _children(self, page: _Page) -> Iterator[tuple[int, int | None]]:
        """(page, its largest row id); of the last child nothing tells the largest."""
        for at in page.cells():
            if at < 0 or at + 5 > len(page.data):
                yield 0, None
                continue
            try:
                key, _ = _varint(page.data, at + 4)
            except IndexError:
                key = -1
            yield int.from_bytes(page.data[at : at + 4], "big"), key
        yield int.from_bytes(page.data[page.start + 8 : page.start + 12], "big"), None

    def _page(self, number: int) -> _Page | None:
        """A page that was not given out before: no page is part of two trees."""
        if number < 1 or number > self.present or number in self._seen:
            return None
        self._seen.add(number)
        data = os.pread(self._file.fileno(), self.page_bytes, (number - 1) * self.page_bytes)
        return _Page(number, data, _HEADER_BYTES if number == 1 else 0)

    def _row(self, page: _Page, at: int) -> tuple[int, list[Any]]:
        if at < page.start + 8:
            raise DamagedRowError
        size, at = _varint(page.data, at)
        row_id, at = _varint(page.data, at)
        payload = self._payload(page.data, at, size)
        return _signed(row_id), self._values(payload)

    def _payload(self, data: bytes, at: int, size: int) -> bytes:
        """A row's bytes, of which long ones go on in pages of their own."""
        most, least = self._usable - 35, (self._usable - 12) * 32 // 255 - 23
        if size > min(MAX_ROW_BYTES, self.present * self.page_bytes):
            raise DamagedRowError
        if size <= most:
            return _whole(data[at : at + size], size)
        here = least + (size - least) % (self._usable - 4)
        here = here if here <= most else least
        parts = [_whole(data[at : at + here], here)]
        link = _whole(data[at + here : at + here + 4], 4)
        left = size - here
        while left > 0:
            page = self._page(int.from_bytes(link, "big"))
            if page is None:
                raise DamagedRowError
            take = min(left, self._usable - 4)
            parts.append(_whole(page.data[4 : 4 + take], take))
            link, left = page.data[:4], left - take
        return b"".join(parts)

    def _values(self, payload: bytes) -> list[Any]:
        """The columns of a record, whose header must account for every byte."""
        head, at = _varint(payload, 0)
        body = head
        values: list[Any] = []
        while at < head:
            kind, at = _varint(payload, at)
            if kind in _NO_BYTES:
                values.append(_NO_BYTES[kind])
                continue
            size = _INTEGER_BYTES.get(kind) or (8 if kind == 7 else (kind - 12) // 2)
            values.append(self._value(kind, payload[body : body + size]))
            body += size
        if not values or at != head or body != len(payload):
            raise DamagedRowError
        return values

    def _value(self, kind: int, data: bytes) -> Any:
        if kind in _INTEGER_BYTES:
            return int.from_bytes(data, "big", signed=True)
        if kind == 7:
            return struct.unpack(">d", data)[0]
        if kind < 12:  # kinds that the format keeps for itself
            raise DamagedRowError
        return data.decode(self._encoding, errors="replace") if kind % 2 else data


def _whole(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise DamagedRowError
    return data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of 1 to 9 bytes and where it ends. IndexError behind the end of ``data``."""
    value = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | data[at], at + 1


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
