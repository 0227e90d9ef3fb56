"""The tables and views of one run in a database of their own, each made when a query names it."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from advisor.engine.reference import REFERENCE_TABLES, make_reference_table
from advisor.engine.views import View, reads_of, views
from advisor.errors import AdvisorError
from advisor.store import Store
from advisor.store.columns import rows
from advisor.store.opening import connect
from advisor.store.schema import Column, Table, parse_schema

# Raw events are millions of rows and are summarised by the metrics; rules see the summaries.
HIDDEN_TABLES = frozenset(
    {"event", "comm_event", "activity", "outcome", "finding", "trial", "sweep", "source"}
)

_FEW_ROWS = 5_000
"""With so few a query takes longer to optimise than to run."""


@cache
def visible_tables() -> dict[str, Table]:
    """The tables of the schema that rules see."""
    return {table.name: table for table in parse_schema() if table.name not in HIDDEN_TABLES}


class RunTables:
    """A copy: the tables of schema.sql with the rows of ``run``, and the views of views/.

    Each view is worked out once, as a table: views upon views, expanded in every query, take the
    database far longer to plan than to run. All of them, and the reference tables, are made when
    the first query names them; ``store`` must stay open as long.
    ``formats`` names the readers that took its files ('kineto', 'nsys', ...).
    """

    def __init__(self, store: Store | None, run: str) -> None:
        self.run = run
        self.formats: frozenset[str] = frozenset()
        # One thread, on rows in one order: ties and sums of floats come out alike every time.
        self.con = connect(threads=1)
        self._store = store
        self._types: dict[str, pa.Schema] = {}
        self._rows: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._filled: dict[str, int] = {}
        self._made: dict[str, str] = {}
        self._catalog = 0
        """Counts its changes."""
        self._planned: dict[str, int] = {}
        """Tables of views, with what the catalog was when filling them again was planned."""
        self._reading = False
        if store is not None:
            self._look_at(store)
        if sum(self._filled.values()) <= _FEW_ROWS:
            self.con.execute("PRAGMA disable_optimizer")

    def _look_at(self, store: Store) -> None:
        """Which readers there were, and how many rows each table has."""
        formats = "SELECT DISTINCT format FROM source WHERE run = ?"
        self.formats = frozenset(row[0] for row in rows(store.con, formats, [self.run]))
        # Every table of the schema has this column.
        counted = " UNION ALL ".join(
            f"SELECT '{table}', count(*) FROM \"{table}\" WHERE run = $1"
            for table in visible_tables()
        )
        self._filled = {
            name: count for name, count in rows(store.con, counted, [self.run]) if count
        }

    def _make_table(self, name: str) -> None:
        if self._store is not None and name in self._filled:
            own = f'SELECT * FROM "{name}" WHERE run = $run'
            found = self._store.con.sql(own, params={"run": self.run}).to_arrow_reader()
            self._take(found, f'CREATE TABLE "{name}" AS SELECT * FROM incoming ORDER BY ALL')
        else:
            self.con.execute(visible_tables()[name].definition)
        self._note_made(name, "TABLE")

    def _note_made(self, name: str, kind: str) -> None:
        self._catalog += 1
        self._made[name] = kind

    def _take(self, incoming: pa.Table | pa.RecordBatchReader, statement: str) -> None:
        self.con.register("incoming", incoming)
        self.con.execute(statement)
        self.con.unregister("incoming")

    def hold(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Hold these rows, columns that are missing being null, and no others.

        Tables whose rows stay the same, and what was worked out from these alone, are kept; the
        tables of other views are emptied, as to plan a view takes longer than to fill it again.
        Raises AdvisorError for unknown tables and columns, and pyarrow's errors for wrong types.
        """
        changed = {
            table
            for table in {*tables, *self._rows}
            if tables.get(table, []) != self._rows.get(table, [])
        }
        self._stop_reading()
        for name in [name for name in self._made.keys() & views() if views()[name].reads & changed]:
            if self._made.pop(name) == "VIEW":
                self.con.execute(f'DROP VIEW "{name}"')
                self._catalog += 1
                continue
            if self._filled.pop(name, None):
                self.con.execute(f'DELETE FROM "{name}"')
            self._planned.setdefault(name, 0)
        for table in changed:
            if self._rows.pop(table, []):
                self.con.execute(f'DELETE FROM "{table}"')
                self._filled.pop(table)
            if tables.get(table):
                self._insert(table, tables[table])
                self._rows[table] = tables[table]
                self._filled[table] = len(tables[table])

    def _insert(self, table: str, records: Sequence[Mapping[str, Any]]) -> None:
        names = list(dict.fromkeys(name for record in records for name in record))
        unknown = sorted({*names} - {*self.columns(table)})
        if not self.columns(table):
            raise AdvisorError(f"there is no table '{table}'")
        if unknown:
            raise AdvisorError(f"table '{table}' has no column {', '.join(unknown)}")
        if table not in self._made:
            self._make_table(table)
        if table not in self._types:
            empty = self.con.sql(f'SELECT * FROM "{table}" LIMIT 0').to_arrow_table()
            self._types[table] = empty.schema
        schema = pa.schema([self._types[table].field(name) for name in names])
        # As one Arrow table: binding rows one by one takes seconds.
        incoming = pa.Table.from_pylist(list(records), schema=schema)
        self._take(incoming, f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming')

    def _make(self, sql: str) -> None:
        """Make what ``sql`` may read. A view that fails fails where it is read, as a view."""
        missing = reads_of(sql) - self._made.keys()
        tables, references = missing & visible_tables().keys(), missing & REFERENCE_TABLES
        unmade = [view for view in views().values() if view.name in missing]
        if tables or references or unmade:
            self._stop_reading()
        for name in sorted(tables):
            self._make_table(name)
        for name in sorted(references):
            make_reference_table(self.con, name)
            self._note_made(name, "TABLE")
        for view in unmade:
            try:
                if count := self._work_out(view):
                    self._filled[view.name] = count
            except duckdb.Error:
                self._planned.pop(view.name, None)
                name = f'"{view.name}"'
                self.con.execute(
                    f"DROP TABLE IF EXISTS {name}; CREATE VIEW {name} AS {view.select}"
                )
                self._note_made(view.name, "VIEW")

    def _work_out(self, view: View) -> int:
        """Make the table of a view, or fill it again; how many rows it has."""
        name = f'"{view.name}"'
        if view.name in self._planned and view.source and self._is_empty(view.source[0]):
            self._made[view.name] = "TABLE"
            return 0
        if view.name not in self._planned:
            made = self.con.execute(f"CREATE TABLE {name} AS {view.select}")
            self._note_made(view.name, "TABLE")
        else:
            # A plan from before a change of the catalog would be made anew at each execution.
            if self._planned[view.name] != self._catalog:
                self.con.execute(f"PREPARE {name} AS INSERT INTO {name} {view.select}")
                self._planned[view.name] = self._catalog
            made = self.con.execute(f"EXECUTE {name}")
            self._made[view.name] = "TABLE"
        return int(made.fetchall()[0][0])

    def _is_empty(self, table: str) -> bool:
        """Whether a table, or the table of a view, is made and has no rows."""
        return self._made.get(table) == "TABLE" and table not in self._filled

    def tables(self) -> list[str]:
        """Base tables, by name."""
        return sorted(visible_tables())

    def columns(self, table: str) -> dict[str, Column]:
        """Columns of a base table, in order; none where there is no such table."""
        known = visible_tables().get(table)
        return {column.name: column for column in known.columns} if known else {}

    def _start_reading(self) -> None:
        """What runs until :meth:`_stop_reading` can change nothing."""
        if not self._reading:
            self.con.execute("BEGIN TRANSACTION READ ONLY")
            self._reading = True

    def _stop_reading(self) -> None:
        if self._reading:
            self.con.execute("ROLLBACK")
            self._reading = False
