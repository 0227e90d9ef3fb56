"""Reads the same chunks with the scanner in C and in Python, many at a time, and compares the rows.

What the scanner accepts it must read exactly as the parser does; what it refuses the parser reads
alone, so that refusing is never wrong. Used by the tests too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from advisor.ingest.compression import DEFAULT_LIMITS
from advisor.ingest.readers.kineto.event_fields import IDS_PER_CHUNK
from advisor.ingest.readers.kineto.native.scanner import COMM_EVENTS, EVENTS, Scanner
from advisor.ingest.readers.kineto.parser import Parser
from advisor.ingest.scanner_library import library
from advisor.store.store import Store

_KEY = "External id"
_BASE_NS = 1_700_000_000_000_000_000


class Differential:
    """Two readings of chunks. ``accepted`` and ``refused`` count what the scanner did."""

    def __init__(self, *, lean: bool = False, merged: bool = False) -> None:
        found = library()
        if found is None:
            raise SystemExit("the scanner is not built: pip install --editable .")
        self.store = Store.create()
        self.scanner = Scanner(found, _KEY, lean=lean, merged=merged)
        self.accepted = self.refused = 0
        self._batches: list[tuple[Any, Any]] = []
        self.parser = Parser(_KEY, lean=lean, merged=merged)

    def mismatches(self, chunks: Sequence[bytes]) -> list[int]:
        """Places of the chunks that the scanner accepted and read otherwise than the parser."""
        accepted = [at for at, chunk in enumerate(chunks) if self._scan(at, chunk)]
        self.accepted += len(accepted)
        self.refused += len(chunks) - len(accepted)
        wrong = {at for at in accepted if not _is_utf8(chunks[at])}
        if not self.scanner.empty:
            self._batches.append(self.scanner.take())
        if accepted:
            wrong |= self._compare([(at, chunks[at]) for at in accepted if at not in wrong])
        self._batches = []
        return sorted(wrong)

    def _scan(self, at: int, chunk: bytes) -> bool:
        status = "full"
        while status == "full":
            status = self.scanner.scan(bytearray(chunk), 3, _BASE_NS, at * IDS_PER_CHUNK)
            if status == "full":
                self._batches.append(self.scanner.take())
        return status == "done"

    def _compare(self, chunks: list[tuple[int, bytes]]) -> set[int]:
        con = self.store.con
        wrong = {
            at
            for at, text in chunks
            if not self.parser.parse(
                bytearray(text), DEFAULT_LIMITS.nesting, 3, _BASE_NS, at * IDS_PER_CHUNK
            )
        }
        parsed = self.parser.take()
        for place, schema in enumerate((EVENTS, COMM_EVENTS)):
            batches = [pair[place] for pair in self._batches]
            con.register("scanned", pa.Table.from_batches(batches, schema))
            con.register("parsed", pa.Table.from_batches([parsed[place]], schema))
            columns = ", ".join(schema.names)
            one, other = f"SELECT {columns} FROM parsed", f"SELECT {columns} FROM scanned"
            rows = con.execute(
                f"SELECT DISTINCT event_id // {IDS_PER_CHUNK} FROM "
                f"(({one} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {one}))"
            ).fetchall()
            wrong |= {int(at) for (at,) in rows}
        return wrong


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
