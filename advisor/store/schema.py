"""Reads schema.sql as documentation: tables, columns and the comments that explain them."""

import re
from functools import cache
from typing import Any, NamedTuple

from advisor.store.batches import INGESTED
from advisor.store.store import schema_sql

_TABLE = re.compile(r"^CREATE TABLE (\w+) \($")
_COLUMN = re.compile(r"^  (\w+) (.*?)-- (.*)")


class Column(NamedTuple):
    """One column: ``type`` is SQL's (NOT NULL left out), ``comment`` what it means."""

    name: str
    type: str
    nullable: bool
    comment: str


class Table(NamedTuple):
    """One table with its columns in order."""

    name: str
    comment: str
    columns: tuple[Column, ...]

    @property
    def definition(self) -> str:
        """The statement that makes it."""
        columns = (f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in self.columns)
        return f"CREATE TABLE {self.name} ({', '.join(columns)})"

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionaries, for JSON."""
        return self._asdict() | {"columns": [column._asdict() for column in self.columns]}


def parse_schema(text: str | None = None) -> list[Table]:
    """The tables of schema.sql (or of ``text`` in its layout), in its order."""
    return [*_parsed(schema_sql() if text is None else text)]


@cache
def _parsed(text: str) -> list[Table]:
    tables: list[Table] = []
    comment: list[str] = []
    name = ""
    columns: list[Column] = []
    for line in text.splitlines():
        if opening := _TABLE.match(line):
            name, columns = opening.group(1), []
        elif name and (found := _COLUMN.match(line)):
            kind = found.group(2).rstrip().removesuffix(",")
            nullable = "NOT NULL" not in kind
            kind = kind.replace("NOT NULL", "").strip()
            columns.append(Column(found.group(1), kind, nullable, found.group(3).strip()))
        elif name and line.startswith(")"):
            tables.append(Table(name, " ".join(comment), tuple(columns)))
            name, comment = "", []
        elif line.startswith("--"):
            comment.append(line[2:].strip())
        elif not line:
            comment = []
    return tables


@cache
def analysed_tables() -> list[str]:
    """The tables that hold what was worked out: neither read from files nor measured by a sweep."""
    others = {*INGESTED, "trial", "sweep"}
    return [table.name for table in parse_schema() if table.name not in others]
