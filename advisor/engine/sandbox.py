"""A copy of one run's derived tables in which a rule's SQL can read and do nothing else.

Rules may come from a user's own folder, so every rule runs the same way: one SELECT, inside a
read-only transaction of an in-memory DuckDB that has no file system, no network, no extension
loading and a locked configuration, and that is interrupted when its processor time is used up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from importlib import resources
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from advisor.engine.reference import fill_reference_tables
from advisor.engine.time_limit import TimeLimit
from advisor.store import Store
from advisor.store.store import schema_sql

# Raw events are millions of rows and are summarised by the metrics; rules see the summaries.
HIDDEN_TABLES = frozenset(
    {"event", "comm_event", "activity", "outcome", "finding", "trial", "sweep", "source"}
)

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


class RuleSqlError(Exception):
    """A rule's SQL is refused, fails, or takes too long."""


class Sandbox:
    """The tables and views of one run, for reading only.

    Tables are those of schema.sql with the rows of ``run``; views are those of views.sql.
    ``formats`` names the readers that took its files ('kineto', 'nsys', ...).
    """

    def __init__(self, store: Store | None, run: str, *, timeout_s: float = 20.0) -> None:
        self.run = run
        self.formats: frozenset[str] = frozenset()
        self._timeout_s = timeout_s
        # One thread, on rows in one order: ties and sums of floats come out alike every time.
        self.con = duckdb.connect(":memory:", config={"threads": 1})
        self.con.execute(schema_sql())
        for table in HIDDEN_TABLES:
            self.con.execute(f'DROP TABLE "{table}"')
        if store is not None:
            self._copy(store)
        self._seal(settled=store is not None)

    def _copy(self, store: Store) -> None:
        self.formats = frozenset(
            row[0]
            for row in store.con.execute(
                "SELECT DISTINCT format FROM source WHERE run = ?", [self.run]
            ).fetchall()
        )
        present = {
            row[0]
            for row in store.con.execute(
                "SELECT DISTINCT table_name FROM information_schema.columns "
                "WHERE column_name = 'run'"
            ).fetchall()
        }
        wanted = {table: own for table, own in self._all_columns().items() if table in present}
        filled = " UNION ALL ".join(
            f"(SELECT '{table}' FROM \"{table}\" WHERE run = $run LIMIT 1)" for table in wanted
        )
        for (table,) in store.con.execute(filled, {"run": self.run}).fetchall():
            names = ", ".join(f'"{name}"' for name in wanted[table])
            rows = store.con.sql(
                f'SELECT {names} FROM "{table}" WHERE run = $run ORDER BY ALL',
                params={"run": self.run},
            )
            self.con.register("incoming", rows.to_arrow_table())
            self.con.execute(f'INSERT INTO "{table}" ({names}) SELECT {names} FROM incoming')
            self.con.unregister("incoming")

    def _all_columns(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for table, column in self.con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal "
            "ORDER BY table_name, column_index"
        ).fetchall():
            found.setdefault(table, []).append(column)
        return found

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows given as dictionaries; columns that are missing become null."""
        # As one Arrow table: binding rows one by one takes seconds.
        schema = self.con.sql(f'SELECT * FROM "{table}" LIMIT 0').to_arrow_table().schema
        self.con.register("incoming", pa.Table.from_pylist(list(rows), schema=schema))
        self.con.execute(f'INSERT INTO "{table}" SELECT * FROM incoming')
        self.con.unregister("incoming")

    def clear(self) -> None:
        """Empty the run's tables, for the next example; knowledge and views stay."""
        for table in self.tables():
            self.con.execute(f'DELETE FROM "{table}"')

    def _seal(self, *, settled: bool) -> None:
        """Add reference data and views, then lock the connection down for good.

        Once the rows are ``settled`` each view is worked out once and kept as a table: many rules
        read the same ones. One that fails stays a view, so that only rules that read it fail.
        """
        fill_reference_tables(self.con)
        views = resources.files("advisor.engine").joinpath("views.sql")
        for statement in self.con.extract_statements(views.read_text(encoding="utf-8")):
            if settled:
                with contextlib.suppress(duckdb.Error):
                    self.con.execute(statement.query.replace("CREATE VIEW", "CREATE TABLE", 1))
                    continue
            self.con.execute(statement)
        for setting in _LOCKDOWN:
            self.con.execute(setting)

    def tables(self) -> list[str]:
        """Base tables, by name."""
        return [
            row[0]
            for row in self.con.execute(
                "SELECT table_name FROM duckdb_tables() WHERE NOT internal "
                "AND NOT starts_with(table_name, 'ref_') ORDER BY 1"
            ).fetchall()
        ]

    def columns(self, table: str) -> dict[str, str]:
        """Columns of a table with their types, in order."""
        return dict(
            self.con.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? "
                "ORDER BY column_index",
                [table],
            ).fetchall()
        )

    def required_columns(self, table: str) -> list[str]:
        """Columns of a table that may not be null."""
        return [
            row[0]
            for row in self.con.execute(
                "SELECT column_name FROM duckdb_columns() "
                "WHERE table_name = ? AND NOT is_nullable ORDER BY column_index",
                [table],
            ).fetchall()
        ]

    def select(self, sql: str, values: Mapping[str, Any]) -> tuple[list[str], list[Sequence[Any]]]:
        """Run one SELECT, binding those of ``values`` that it names as ``$name``.

        Returns column names and rows. Raises RuleSqlError when the text is anything but one
        SELECT, names a parameter that does not exist, fails, or exceeds the time limit.
        """
        try:
            statements = self.con.extract_statements(sql)
        except duckdb.Error as error:
            raise RuleSqlError(f"SQL does not parse: {_first_line(error)}") from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise RuleSqlError("only a single SELECT is allowed")
        named = statements[0].named_parameters
        unknown = sorted(set(named) - set(values))
        if unknown:
            raise RuleSqlError(f"SQL names ${', $'.join(unknown)}, which is not a parameter")
        bound = {name: values[name] for name in named}
        self.con.execute("BEGIN TRANSACTION READ ONLY")
        try:
            with TimeLimit(self._timeout_s, self.con.interrupt):
                result = self.con.execute(statements[0], bound or None)
                names = [column[0] for column in result.description or ()]
                return names, result.fetchall()
        except duckdb.InterruptException as error:
            limit = f"{self._timeout_s:g} s of processor time"
            raise RuleSqlError(f"took longer than {limit}") from error
        except duckdb.Error as error:
            raise RuleSqlError(_first_line(error)) from error
        finally:
            self.con.execute("ROLLBACK")

    def records(self, sql: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of :meth:`select` as dictionaries."""
        names, rows = self.select(sql, values or {})
        return [dict(zip(names, row, strict=True)) for row in rows]

    def close(self) -> None:
        """Free the copy."""
        self.con.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
