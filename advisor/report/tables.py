"""Reads the store for the report: aggregates only, so that a large trace stays quick to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.metrics.steps.used import step_time
from advisor.store.store import Store

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


def step_times(store: Store, run: str) -> Row:
    """``step``, and ``compute`` as its median over ranks and used steps, ns; None without any."""
    (found,) = rows(
        store,
        "SELECT median(compute_ns) AS compute FROM step_breakdown WHERE run = ? AND used",
        [run],
    )
    return {"step": step_time(store.con, run), **found}


def traffic(store: Store, run: str) -> Row:
    """``bytes`` on the wire and ``ns`` of transfer, per step; None without any."""
    return rows(
        store,
        "SELECT sum(wire_bytes_per_step) AS bytes, sum(transfer_ns_per_step) AS ns FROM traffic"
        " WHERE run = ?",
        [run],
    )[0]
