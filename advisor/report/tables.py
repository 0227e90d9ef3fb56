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


# Mean parts of a step in ns, by the kinds of charts.scene.KINDS. Ranks or steps that could not be
# split into waiting and transfer (or idle by cause) keep their unsplit part, so that the parts
# always add up to the window.
PARTS_SQL = """
    avg(window_ns) AS window_ns,
    avg(compute_ns) AS "compute",
    avg(CASE WHEN exposed_wait_ns IS NULL OR exposed_transfer_ns IS NULL
        THEN exposed_comm_ns ELSE 0 END) AS "comm",
    avg(CASE WHEN exposed_wait_ns IS NULL OR exposed_transfer_ns IS NULL
        THEN 0 ELSE exposed_transfer_ns END) AS "transfer",
    avg(CASE WHEN exposed_wait_ns IS NULL OR exposed_transfer_ns IS NULL
        THEN 0 ELSE exposed_wait_ns END) AS "wait",
    avg(exposed_memory_ns) AS "memory",
    avg(other_ns) AS "other",
    avg(coalesce(idle_host_ns, 0)) AS "idle-host",
    avg(coalesce(idle_launch_gap_ns, 0)) AS "idle-gap",
    avg(coalesce(idle_sync_ns, 0)) AS "idle-sync",
    avg(idle_ns - coalesce(idle_host_ns, 0) - coalesce(idle_launch_gap_ns, 0)
        - coalesce(idle_sync_ns, 0)) AS "idle"
"""


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
