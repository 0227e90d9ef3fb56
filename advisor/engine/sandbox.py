"""A copy of one run's derived tables in which a rule's SQL can read and do nothing else.

Rules may come from a user's own folder, so every rule runs the same way: one SELECT, inside a
read-only transaction of an in-memory DuckDB that has no file system, no network, no extension
loading and a locked configuration, and that is interrupted when its processor time is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from numpy.typing import NDArray

from advisor.engine.allowance import RULE_S, Allowance
from advisor.engine.answers import as_arrays, as_rows
from advisor.engine.memory_limit import MemoryLimit
from advisor.engine.query_text import refused
from advisor.engine.reference import REFERENCE_TABLES, add_functions, make_reference_table
from advisor.engine.time_limit import TimeLimit
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

_MOST_GROWTH_BYTES = 5 << 30
"""Of the process during a query: what the database counts, 4 GB, and what it sets aside."""

_LOCKDOWN = (
    "SET memory_limit = '4GB'",
    "SET temp_directory = ''",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)

T = TypeVar("T")


class RuleSqlError(Exception):
    """A rule's SQL is refused, fails, or takes too long."""


class Sandbox:
    """The tables and views of one run, for reading only.

    Tables are those of schema.sql with the rows of ``run``; views are those of views/, each
    worked out once, as a table: views upon views, expanded in every query, take the database far
    longer to plan than to run. All of them, and the reference tables, are made when the first query
    names them; ``store`` must stay open as long.
    ``formats`` names the readers that took its files ('kineto', 'nsys', ...).
    ``allowance`` is what all rules from elsewhere may take, in this sandbox and others.
    """

    def __init__(
        self,
        store: Store | None,
        run: str,
        *,
        timeout_s: float = RULE_S,
        allowance: Allowance | None = None,
    ) -> None:
        self.run = run
        self.formats: frozenset[str] = frozenset()
        self._allowance = allowance or Allowance()
        # One thread, on rows in one order: ties and sums of floats come out alike every time.
        self.con = connect(threads=1)
        self._limit = TimeLimit(timeout_s, self.con.interrupt)
        self._memory = MemoryLimit(_MOST_GROWTH_BYTES)
        self._store = store
        self._types: dict[str, pa.Schema] = {}
        self._rows: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._filled: dict[str, int] = {}
        self._made: dict[str, str] = {}
        self._catalog = 0
        """Counts its changes."""
        self._planned: dict[str, int] = {}
        """Tables of views, with what the catalog was when filling them again was planned."""
        self._statements: dict[str, duckdb.Statement] = {}
        self._reading = False
        self._answers: dict[str, tuple[list[str], list[Sequence[Any]]]] = {}
        if store is not None:
            self._look_at(store)
        if sum(self._filled.values()) <= _FEW_ROWS:
            self.con.execute("PRAGMA disable_optimizer")
        add_functions(self.con)
        for setting in _LOCKDOWN:
            self.con.execute(setting)

    def _look_at(self, store: Store) -> None:
        """Which readers there were, and how many rows each table has."""
        formats = "SELECT DISTINCT format FROM source WHERE run = ?"
        self.formats = frozenset(row[0] for row in rows(store.con, formats, [self.run]))
        # Every table of the schema has this column.
        counted = " UNION ALL ".join(
            f"SELECT '{table}', count(*) FROM \"{table}\" WHERE run = $1" for table in _tables()
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
            self.con.execute(_tables()[name].definition)
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
        self._answers.clear()
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
        tables, references = missing & _tables().keys(), missing & REFERENCE_TABLES
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

    def tables(self) -> list[str]:
        """Base tables, by name."""
        return sorted(_tables())

    def columns(self, table: str) -> dict[str, Column]:
        """Columns of a base table, in order; none where there is no such table."""
        known = _tables().get(table)
        return {column.name: column for column in known.columns} if known else {}

    def holds(self, table: str, where: str, values: Mapping[str, Any]) -> bool:
        """Whether a table or view has a row for which ``where`` holds ('': any row)."""
        if table not in _tables():
            source = views()[table].source if table in views() else None
            if source and table not in self._made and not self.holds(*source, {}):
                return False
            self._make(table)
        counted = table in _tables() or self._made.get(table) == "TABLE"
        if counted and (not where or table not in self._filled):
            return table in self._filled
        condition = f" WHERE {where}" if where else ""
        return bool(self.select(f'SELECT 1 FROM "{table}"{condition} LIMIT 1', values)[1])

    def select(self, sql: str, values: Mapping[str, Any]) -> tuple[list[str], list[Sequence[Any]]]:
        """Run one SELECT, binding those of ``values`` that it names as ``$name``.

        Returns column names and rows. Raises RuleSqlError when the text is anything but one
        SELECT, names a parameter that does not exist, fails, or exceeds the time limit.
        """
        if "$" in sql:
            return self._run(sql, values, as_rows)
        # What rules need is asked again and again, and nothing changes meanwhile.
        if sql not in self._answers:
            self._answers[sql] = self._run(sql, values, as_rows)
        return self._answers[sql]

    def arrays(self, sql: str, values: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The columns of :meth:`select` as arrays; none of them may hold nulls."""
        return self._run(sql, values, as_arrays)

    def _run(
        self, sql: str, values: Mapping[str, Any], fetch: Callable[[duckdb.DuckDBPyConnection], T]
    ) -> T:
        if sql not in self._statements:
            self._statements[sql] = self._parsed(sql)
        statement = self._statements[sql]
        named = statement.named_parameters
        unknown = sorted(set(named) - set(values))
        if unknown:
            raise RuleSqlError(f"SQL names ${', $'.join(unknown)}, which is not a parameter")
        bound = {name: values[name] for name in named}
        self._make(sql)
        self._start_reading()
        try:
            with self._limit, self._memory:
                return fetch(self.con.execute(statement, bound or None))
        except duckdb.Error as error:
            self._stop_reading()
            if isinstance(error, duckdb.InterruptException):
                limit = f"{self._limit.allowed_s:.3g} s of processor time"
                raise RuleSqlError(f"took longer than {limit}") from error
            raise RuleSqlError(_first_line(error)) from error
        except MemoryError as error:  # what the database found, as Python's values
            self._stop_reading()
            raise RuleSqlError("what it finds does not fit into the memory it may take") from error

    def _parsed(self, sql: str) -> duckdb.Statement:
        """Raises RuleSqlError when it is anything but one SELECT."""
        if why := refused(sql):
            raise RuleSqlError(why)
        try:
            statements = self.con.extract_statements(sql)
        except duckdb.Error as error:
            raise RuleSqlError(f"SQL does not parse: {_first_line(error)}") from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise RuleSqlError("only a single SELECT is allowed")
        return statements[0]

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Around the work on a rule that is not shipped: it takes of what all of them share.

        Raises RuleSqlError where they have taken all of it.
        """
        if self._allowance.left_s <= 0:
            all_s = f"{self._allowance.cpu_s:g} s of processor time"
            raise RuleSqlError(f"left out: rules from elsewhere share {all_s}, which were used up")
        with self._allowance.taken(self._limit):
            yield

    def _start_reading(self) -> None:
        """What runs until :meth:`_stop_reading` can change nothing."""
        if not self._reading:
            self.con.execute("BEGIN TRANSACTION READ ONLY")
            self._reading = True

    def _stop_reading(self) -> None:
        if self._reading:
            self.con.execute("ROLLBACK")
            self._reading = False

    def records(self, sql: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of :meth:`select` as dictionaries."""
        names, rows = self.select(sql, values or {})
        return [dict(zip(names, row, strict=True)) for row in rows]

    def close(self) -> None:
        """Free the copy."""
        self._limit.close()
        self.con.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def _tables() -> dict[str, Table]:
    """The tables of the schema that rules see."""
    return {table.name: table for table in parse_schema() if table.name not in HIDDEN_TABLES}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
