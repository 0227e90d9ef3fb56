"""Draws Nsight Systems exports from a grammar of SQL: schemas that no tool of NVIDIA's writes.

An export is a list of statements: tables with any of their columns, types, keys, checks and
generated columns; views, recursive ones too, and virtual tables in place of tables; triggers and
indices; rows with edges of types; at last, a schema that was written over.
"""

from __future__ import annotations

import random
import sqlite3
from typing import Any

from benchmarks.fuzz import documents
from benchmarks.fuzz.edges import EDGES

Statement = tuple[str, tuple[Any, ...]]

_MORE: dict[str, list[dict[str, Any]]] = {
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": [
        {"domainId": 0, "schemaId": 1, "name": "NCCL communicator ID", "type": 18, "offset": 0},
        {"domainId": 0, "schemaId": 1, "name": "No. of ranks", "type": 7, "offset": 8},
    ],
    "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000 * 10**9, "systemClockNs": 5}],
    "ANALYSIS_DETAILS": [{"startTime": 0, "stopTime": 90_000, "duration": 90_000}],
    "META_DATA_CAPTURE": [{"name": "ENVIRONMENT_VARIABLE", "value": 'RANK="1"'}],
    "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": "a"}],
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
        {"start": 7_000, "end": 8_000, "deviceId": 0, "contextId": 1, "streamId": 7,
         "correlationId": 3, "globalPid": 100 << 24, "syncType": 1}
    ],
    "CUPTI_ACTIVITY_KIND_MEMSET": [
        {"start": 7_000, "end": 7_500, "deviceId": 0, "contextId": 1, "streamId": 7,
         "correlationId": 9, "globalPid": 100 << 24, "bytes": 4096}
    ],
    "ENUM_CUPTI_SYNC_TYPE": [{"id": 1, "name": "X", "label": "Stream sync"}],
}  # fmt: skip
_TYPES = ("INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "", "INT NOT NULL", "VARCHAR(9)", "ANY")
_CONSTRAINTS = (
    *("", "", "", "", "PRIMARY KEY", "UNIQUE", "DEFAULT (abs(-1))", "COLLATE NOCASE"),
    *("CHECK (1)", "REFERENCES StringIds(id)", "GENERATED ALWAYS AS (1 + 1) VIRTUAL"),
    "GENERATED ALWAYS AS (hex(zeroblob(1000000))) STORED",
)
_TAILS = ("", "", "", "", "", "WITHOUT ROWID", "STRICT")
_VIEWS = (
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT {columns} FROM c",
    "SELECT {columns} FROM sqlite_master a, sqlite_master b, sqlite_master c, sqlite_master d",
    "SELECT {columns} FROM (VALUES (1), (2))",
)
_AFTER = (
    "CREATE TRIGGER t AFTER INSERT ON \"{table}\" BEGIN DELETE FROM \"{table}\"; END",
    "CREATE INDEX i ON \"{table}\" (rowid, 1 + 1)",
    "CREATE UNIQUE INDEX j ON \"{table}\" (\"{column}\") WHERE \"{column}\" > 0",
    "DROP TABLE \"{table}\"",
    "ALTER TABLE \"{table}\" RENAME COLUMN \"{column}\" TO \"start\"",
    "ALTER TABLE \"{table}\" ADD COLUMN \"x\"\"y\" TEXT",
    "ALTER TABLE \"{table}\" RENAME TO \"{other}\"",
    "DELETE FROM \"{table}\"",
    "INSERT INTO \"{table}\" SELECT * FROM \"{table}\"",
    "PRAGMA writable_schema = 1",
    "UPDATE sqlite_master SET rootpage = (rootpage % 5) + 1 WHERE name = '{table}'",
    "UPDATE sqlite_master SET sql = replace(sql, 'start', 'end') WHERE name = '{table}'",
    "UPDATE sqlite_master SET sql = 'CREATE TABLE ' || name WHERE name = '{table}'",
    "UPDATE sqlite_master SET name = 'NVTX_EVENTS' WHERE name = '{table}'",
    "UPDATE sqlite_master SET type = 'table' WHERE name = '{table}'",
    "PRAGMA user_version = 7",
)  # fmt: skip


def export(rng: random.Random) -> list[Statement]:
    """The statements of an export; some of them cannot be carried out."""
    tables = {**documents.nsys(), **_MORE}
    found: list[Statement] = []
    for table, rows in tables.items():
        roll = rng.random()
        if roll < 0.85:
            found += _table(table, rows, rng)
        elif roll < 0.93:
            columns = ", ".join(f'1 AS "{name}"' for name in rows[0])
            body = rng.choice(_VIEWS).format(columns=columns)
            found.append((f"CREATE VIEW {table} AS {body}", ()))
        elif roll < 0.95:
            columns = ", ".join(f'"{name}"' for name in rows[0])
            found.append((f"CREATE VIRTUAL TABLE {table} USING fts5({columns})", ()))
    rng.shuffle(found)
    found.sort(key=lambda one: not one[0].startswith("CREATE"))
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        table, other = rng.sample(sorted(tables), 2)
        column = rng.choice(list(tables[table][0]))
        found.append((rng.choice(_AFTER).format(table=table, other=other, column=column), ()))
    return found


def _table(table: str, rows: list[dict[str, Any]], rng: random.Random) -> list[Statement]:
    odd = rng.random() < 0.3
    columns = [name for name in rows[0] if not odd or rng.random() < 0.9]
    if odd:
        rng.shuffle(columns)
    described = ", ".join(
        f'"{name}" {rng.choice(_TYPES) if odd else ""} '
        f"{rng.choice(_CONSTRAINTS) if rng.random() < 0.1 else ''}"
        for name in columns
    )
    found: list[Statement] = [
        (f"CREATE TABLE {table} ({described}) {rng.choice(_TAILS) if odd else ''}", ())
    ]
    edge = rng.choice((0.0, 0.01, 0.1))
    listed = ", ".join(f'"{name}"' for name in columns)
    insert = f"INSERT INTO {table} ({listed}) VALUES ({', '.join('?' * len(columns))})"
    for row in rows * rng.choice((1, 1, 1, 3)):
        values = (rng.choice(EDGES) if rng.random() < edge else row[name] for name in columns)
        found.append((insert, tuple(value for value in values)))
    return found


def written(statements: list[Statement]) -> bytes:
    """The database that those statements make which can be carried out."""
    con = sqlite3.connect(":memory:")
    con.execute("PRAGMA page_size = 512")
    for statement, values in statements:
        try:
            con.execute(statement, values)
        except (sqlite3.Error, OverflowError, UnicodeError):
            continue  # the grammar is wider than what sqlite takes
    con.commit()
    data = con.serialize()
    con.close()
    return data
