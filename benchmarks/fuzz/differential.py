"""Reads the same chunks with the scanner in C and with SQL, many at a time, and compares the rows.

What the scanner accepts it must read exactly as SQL does; what it refuses SQL reads alone, so that
refusing is never wrong. Used by the tests too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from advisor.ingest.readers.kineto import events_sql as sql
from advisor.ingest.readers.kineto.native.scanner import COMM_EVENTS, EVENTS, Scanner
from advisor.ingest.scanner_library import library
from advisor.store.store import Store

_KEY = "External id"
_BASE_NS, _ORIGIN_US = 1_700_000_000_000_000_000, 4_366_672_476_000


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
        self._insert = sql.insert_sql(
            "run", "chunks", _KEY, origin_us=_ORIGIN_US, lean=lean, merged=merged
        )

    def mismatches(self, chunks: Sequence[bytes]) -> list[int]:
        """Places of the chunks that the scanner accepted and read otherwise than SQL."""
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
            status = self.scanner.scan(bytearray(chunk), 3, _BASE_NS, at * sql.IDS_PER_CHUNK)
            if status == "full":
                self._batches.append(self.scanner.take())
        return status == "done"

    def _compare(self, chunks: list[tuple[int, bytes]]) -> set[int]:
        con = self.store.con
        con.register(
            "chunks",
            pa.table(
                {
                    "chunk": pa.array([text.decode() for _, text in chunks]),
                    "rank": pa.array([3] * len(chunks), pa.int32()),
                    "base_ns": pa.array([_BASE_NS] * len(chunks), pa.int64()),
                    "first_id": pa.array([at * sql.IDS_PER_CHUNK for at, _ in chunks], pa.int64()),
                }
            ),
        )
        for statement in (sql.STAGE_SQL, self._insert, sql.MOVE_SQL, sql.UNSTAGE_SQL):
            con.execute(statement)
        # What says nothing that is kept: the scanner leaves it out at once.
        con.execute("DELETE FROM event WHERE class = ? AND category IS NULL", [sql.METADATA])
        # Names of threads lie on no device; the load deletes their rows once it has read them.
        con.execute("UPDATE event SET device = NULL, stream = NULL WHERE class = ?", [sql.METADATA])
        wrong: set[int] = set()
        for table, schema, place in (("event", EVENTS, 0), ("comm_event", COMM_EVENTS, 1)):
            batches = [pair[place] for pair in self._batches]
            con.register("scanned", pa.Table.from_batches(batches, schema))
            columns = ", ".join(schema.names)
            one, other = f"SELECT {columns} FROM {table}", f"SELECT {columns} FROM scanned"
            rows = con.execute(
                f"SELECT DISTINCT event_id // {sql.IDS_PER_CHUNK} FROM "
                f"(({one} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {one}))"
            ).fetchall()
            wrong |= {int(at) for (at,) in rows}
            con.execute(f"DELETE FROM {table}")
        return wrong


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
