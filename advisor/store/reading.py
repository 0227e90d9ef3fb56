"""Queries of somebody who works with a run: they read its tables and leave them as they are."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from advisor.errors import AdvisorError

# A PIVOT is a MULTI. The transaction refuses what EXPLAIN ANALYZE would carry out.
_READING = frozenset(
    {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI}
)
_OWN_TABLES = "keep tables of your own in your own database: duckdb.connect()"


@contextmanager
def reading(con: Any, query: str, parameters: Sequence[Any]) -> Iterator[Any]:
    """The relation of one ``query`` on ``con``, to be fetched inside the ``with``.

    Raises AdvisorError when the text is anything but one query, would change a table, or fails.
    """
    try:
        statements = con.extract_statements(query)
    except duckdb.Error as error:
        raise _wrong(error) from error
    if len(statements) != 1:
        count = f"{len(statements)} statements" if statements else "nothing"
        raise AdvisorError(f"one query is expected, this is {count}", where="query")
    _refuse(statements[0])
    con.execute("BEGIN TRANSACTION READ ONLY")
    try:
        yield con.sql(query, params=list(parameters) or None)
    except duckdb.TransactionException as error:
        raise AdvisorError("a run is only read", where="query", hint=_OWN_TABLES) from error
    except duckdb.Error as error:
        raise _wrong(error) from error
    finally:
        con.execute("ROLLBACK")


def refuse_writing(query: str) -> None:
    """Raise AdvisorError where a statement is none that reads, before anything is opened for it."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error:
        return  # running the query says what is wrong with it
    for statement in statements:
        _refuse(statement)


def _refuse(statement: Any) -> None:
    if statement.type not in _READING:
        raise AdvisorError(
            f"a run is only read, and this is {statement.type.name}: one SELECT is expected",
            where="query",
            hint=_OWN_TABLES,
        )


def _wrong(error: duckdb.Error) -> AdvisorError:
    return AdvisorError(
        str(error).strip().splitlines()[0], where="query", hint="tables: advisor schema"
    )
