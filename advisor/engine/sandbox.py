"""A copy of one run's derived tables in which a rule's SQL can read and do nothing else.

Rules may come from a user's own folder, so every rule runs the same way: one SELECT, inside a
read-only transaction of an in-memory DuckDB that has no file system, no network, no extension
loading and a locked configuration, and that is interrupted when its processor time is used up.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, TypeVar

import duckdb
from numpy.typing import NDArray

from advisor.engine.allowance import RULE_S, Allowance
from advisor.engine.memory_limit import MemoryLimit
from advisor.engine.query_text import refused
from advisor.engine.reference import add_functions
from advisor.engine.run_tables import RunTables, visible_tables
from advisor.engine.time_limit import TimeLimit
from advisor.engine.views import views
from advisor.store import Store

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


class Sandbox(RunTables):
    """The tables and views of one run, for reading only.

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
        super().__init__(store, run)
        self._allowance = allowance or Allowance()
        self._limit = TimeLimit(timeout_s, self.con.interrupt)
        self._memory = MemoryLimit(_MOST_GROWTH_BYTES)
        self._statements: dict[str, duckdb.Statement] = {}
        self._answers: dict[str, tuple[list[str], list[Sequence[Any]]]] = {}
        add_functions(self.con)
        for setting in _LOCKDOWN:
            self.con.execute(setting)

    def hold(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """As RunTables.hold; what was answered before is forgotten."""
        self._answers.clear()
        super().hold(tables)

    def holds(self, table: str, where: str, values: Mapping[str, Any]) -> bool:
        """Whether a table or view has a row for which ``where`` holds ('': any row)."""
        if table not in visible_tables():
            source = views()[table].source if table in views() else None
            if source and table not in self._made and not self.holds(*source, {}):
                return False
            self._make(table)
        counted = table in visible_tables() or self._made.get(table) == "TABLE"
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
            return self._run(sql, values, _as_rows)
        # What rules need is asked again and again, and nothing changes meanwhile.
        if sql not in self._answers:
            self._answers[sql] = self._run(sql, values, _as_rows)
        return self._answers[sql]

    def arrays(self, sql: str, values: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The columns of :meth:`select` as arrays; none of them may hold nulls."""
        return self._run(sql, values, _as_arrays)

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

    def records(
        self, sql: str, values: Mapping[str, Any] | None = None, *, of: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """The rows of :meth:`select` as dictionaries.

        None where all tables and views that they are ``of`` are empty: then nothing is planned,
        nor a view made that only ``sql`` reads.
        """
        if of and not any(self.holds(source, "", {}) for source in of):
            return []
        names, rows = self.select(sql, values or {})
        return [dict(zip(names, row, strict=True)) for row in rows]

    def close(self) -> None:
        """Free the copy."""
        self._limit.close()
        self.con.close()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _as_rows(result: duckdb.DuckDBPyConnection) -> tuple[list[str], list[Sequence[Any]]]:
    """Names and rows; SQL's 0.5 is a decimal, which Python adds to no float: a float here."""
    columns = result.description or []
    exact = {number for number, column in enumerate(columns) if "DECIMAL" in str(column[1])}
    found: list[Sequence[Any]] = result.fetchall()
    if exact:
        found = [[_real(v) if n in exact else v for n, v in enumerate(row)] for row in found]
    return [column[0] for column in columns], found


def _real(value: Any) -> Any:
    if isinstance(value, list):
        return [_real(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value


def _as_arrays(result: duckdb.DuckDBPyConnection) -> dict[str, NDArray[Any]]:
    """The columns by name."""
    found: dict[str, NDArray[Any]] = result.fetchnumpy()
    return found
