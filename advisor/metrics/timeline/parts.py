"""Where the step goes: mean parts of a rank's, a step's or a run's window, by kind of time.

Ranks or steps that could not be split into waiting and transfer (or idle by cause) keep their
unsplit part, so that the parts always add up to the window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

KINDS = (
    "compute",
    "wait",
    "transfer",
    "comm",
    "memory",
    "other",
    "idle",
    "idle-host",
    "idle-gap",
    "idle-sync",
)
"""Kinds of time in the order in which they are stacked; ``comm`` is exposed and not split."""
_LOST = ("wait", "transfer", "comm")

_UNSPLIT = "exposed_wait_ns IS NULL OR exposed_transfer_ns IS NULL"
_PARTS = f"""
    avg(window_ns) AS window_ns,
    avg(compute_ns) AS "compute",
    avg(CASE WHEN {_UNSPLIT} THEN 0 ELSE exposed_wait_ns END) AS "wait",
    avg(CASE WHEN {_UNSPLIT} THEN 0 ELSE exposed_transfer_ns END) AS "transfer",
    avg(CASE WHEN {_UNSPLIT} THEN exposed_comm_ns ELSE 0 END) AS "comm",
    avg(exposed_memory_ns) AS "memory",
    avg(other_ns) AS "other",
    avg(idle_ns - coalesce(idle_host_ns, 0) - coalesce(idle_launch_gap_ns, 0)
        - coalesce(idle_sync_ns, 0)) AS "idle",
    avg(coalesce(idle_host_ns, 0)) AS "idle-host",
    avg(coalesce(idle_launch_gap_ns, 0)) AS "idle-gap",
    avg(coalesce(idle_sync_ns, 0)) AS "idle-sync"
"""


@dataclass(frozen=True)
class Parts:
    """One rank, step or run: ``ns`` by kind of :data:`KINDS` adds up to ``window_ns``, means.

    ``used``: the step counts in figures per step. ``steps``: how many the mean is of; 0 where it
    is of the whole trace, which holds no used step.
    """

    of: Any
    window_ns: float
    ns: Mapping[str, float]
    used: bool = True
    steps: int = 0

    @property
    def exposed_ns(self) -> float:
        """Communication that no compute hides, waiting included."""
        return sum(self.ns[kind] for kind in _LOST)

    def of_step(self, step_ns: float) -> "Parts":
        """The same shares of a step of this length: the median that every view names."""
        scale = step_ns / self.window_ns
        ns = {kind: scale * value for kind, value in self.ns.items()}
        return replace(self, window_ns=step_ns, ns=ns)


def by_rank(con: Any, run: str) -> list[Parts]:
    """Ranks over their used steps; over the whole trace where there is none; [] without either."""
    return _parts(
        con,
        f"SELECT rank, true, count(*), {_PARTS} FROM step_breakdown WHERE run = ? AND used"
        " GROUP BY rank ORDER BY rank",
        [run],
    ) or _parts(
        con,
        f"SELECT rank, true, 0, {_PARTS} FROM run_breakdown WHERE run = ?"
        " GROUP BY rank ORDER BY rank",
        [run],
    )


def by_step(con: Any, run: str) -> list[Parts]:
    """Every step, the mean over its ranks."""
    return _parts(
        con,
        f"SELECT step, bool_or(used), 1, {_PARTS} FROM step_breakdown"
        " WHERE run = ? GROUP BY step ORDER BY step",
        [run],
    )


def by_run(con: Any, runs: Sequence[str]) -> dict[str, Parts]:
    """Runs over their ranks and used steps; those without one are left out."""
    found = _parts(
        con,
        f"SELECT run, true, count(DISTINCT step), {_PARTS} FROM step_breakdown"
        " WHERE used AND list_contains(?, run) GROUP BY run",
        [list(runs)],
    )
    return {parts.of: parts for parts in found}


def mean(rows: Sequence[Parts]) -> Parts:
    """The mean over ranks of :func:`by_rank`."""
    count = len(rows)
    return Parts(
        of=None,
        window_ns=sum(row.window_ns for row in rows) / count,
        ns={kind: sum(row.ns[kind] for row in rows) / count for kind in KINDS},
        steps=max(row.steps for row in rows),
    )


def hidden_share(con: Any, run: str) -> float | None:
    """The share of communication under compute, in the steps of :func:`by_rank`; None without."""
    for table, steps in (("step_breakdown", " AND used"), ("run_breakdown", "")):
        parts, comm, hidden = con.execute(
            f"SELECT count(*), sum(comm_ns), sum(hidden_comm_ns) FROM {table} WHERE run = ?{steps}",
            [run],
        ).fetchone()
        if parts:
            return float(hidden / comm) if comm else None
    return None


def _parts(con: Any, sql: str, parameters: Sequence[object]) -> list[Parts]:
    return [
        Parts(of, float(window), dict(zip(KINDS, map(float, ns), strict=True)), used, steps)
        for of, used, steps, window, *ns in con.execute(sql, list(parameters)).fetchall()
        if window
    ]
