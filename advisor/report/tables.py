"""Reads the store for the report: aggregates only, so that a large trace stays quick to draw."""

from collections.abc import Sequence
from typing import Any

from advisor.store.store import Store
from advisor.vocabulary.groups import group_words
from advisor.vocabulary.words import unit_words

Row = dict[str, Any]


def rows(store: Store, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
    """The result as dictionaries by column name."""
    result = store.con.execute(sql, list(parameters))
    names = [column[0] for column in result.description]
    return [dict(zip(names, values, strict=True)) for values in result.fetchall()]


def late_together(store: Store, run: str) -> dict[int, list[int]]:
    """Of each rank that stands for a host which is late as a whole, the ranks of that host."""
    found = rows(
        store,
        "SELECT rank, try_cast(try_cast(reason_evidence AS JSON) -> '$.with' AS INTEGER[]) AS own "
        "FROM lateness WHERE run = ? AND process_group IS NULL AND systematic",
        [run],
    )
    return {row["rank"]: row["own"] for row in found if row["own"]}


def of_unit(store: Store, run: str) -> dict[str, str]:
    """What texts say of a step of this run (vocabulary.words)."""
    found = rows(
        store, "SELECT 1 FROM step WHERE run = ? AND source = 'whole-trace' LIMIT 1", [run]
    )
    return unit_words(bool(found))


def group_names(store: Store, run: str) -> dict[str | None, str]:
    """Process groups by torch's name of them, as users know them: what they are for, and ranks."""
    found = rows(
        store,
        "SELECT process_group AS name, description, ranks, coalesce(size, joined) AS size,"
        " world AS world_size, ranks IS NOT NULL AND count(*) OVER (PARTITION BY ranks,"
        " description) > 1 AS is_one_of_several FROM process_group g FULL JOIN (SELECT run,"
        " process_group, nullif(max(matched_ranks), 1) AS joined FROM collective GROUP BY ALL)"
        " USING (run, process_group) LEFT JOIN (SELECT run, max(world_size) AS world FROM rank"
        " GROUP BY run) USING (run) WHERE run = ? AND process_group IS NOT NULL",
        [run],
    )
    return {row["name"]: group_words(**row) for row in found}
