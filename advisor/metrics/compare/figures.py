"""Runs beside each other: step times with significance, time split, collectives, operators.

Every figure is per used step and, where it is a sum over a rank's events, the mean over the
ranks. The first run is the base that the others are compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advisor.metrics.compare.causes import Causes, causes
from advisor.metrics.models.workload import world_size_said
from advisor.metrics.steps.used import step_times


@dataclass(frozen=True)
class CollectiveTotal:
    """One operation: calls and bytes per step and rank, time of a call and of all of them.

    ``total_ns_per_step`` counts calls that overlap each by itself; ``exposed_ns_per_step`` is
    shared between them, so that operations add up to no more than the exposed communication.
    """

    op: str
    calls_per_step: float
    bytes_per_step: int | None
    total_ns_per_step: int
    average_ns: int
    exposed_ns_per_step: int | None = None
    hidden: float | None = None


@dataclass(frozen=True)
class RunFigures:
    """What `advisor compare` prints of one run; times in ns per step unless the name says else."""

    run: str
    strategy: str | None
    compute: str | None
    ranks: int
    world_size: int | None
    steps: int
    step_samples_ns: list[int]
    step_ns: int
    step_mad_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_memory_ns: int
    other_ns: int
    idle_ns: int
    comm_ns: int
    hidden_comm_ns: int
    window_ns: int
    peak_memory_bytes: int | None
    tokens_per_step: int | None = None
    on_host: bool = False
    collectives: list[CollectiveTotal] = field(default_factory=list)
    exposed_samples_ns: list[float] = field(default_factory=list)
    idle_samples_ns: list[float] = field(default_factory=list)
    causes: Causes = field(default_factory=Causes)
    devices: list[str] = field(default_factory=list)
    gradient_elements: float | None = None
    unprofiled_samples_ns: list[int] = field(default_factory=list)

    @property
    def overlap(self) -> float | None:
        """Share of communication under compute; None without communication."""
        return self.hidden_comm_ns / self.comm_ns if self.comm_ns else None

    @property
    def busy_ns(self) -> int:
        """Time in which the device ran anything ("kernel time", as a union)."""
        return self.window_ns - self.idle_ns

    @property
    def non_compute_ns(self) -> int:
        """Device busy, but not with compute."""
        # The parts are means that were rounded one by one.
        return max(0, self.busy_ns - self.compute_ns)

    @property
    def tokens_per_second(self) -> float | None:
        """Throughput of the job, where the recording says how many tokens a step has."""
        tokens = self.tokens_per_step
        return None if tokens is None else tokens * 1e9 / self.step_ns

    @property
    def unprofiled_step_ns(self) -> float | None:
        """Median of the steps timed without the profiler; None where none were."""
        samples = self.unprofiled_samples_ns
        return float(np.median(samples)) if samples else None


@dataclass(frozen=True)
class OperatorChange:
    """Calls and time per step and rank of one operator (or kernel) in two runs."""

    name: str
    change: str
    calls_base: float
    calls_other: float
    ns_base: int
    ns_other: int


def figures(
    con: Any, run: str, *, timed_ns: Sequence[int] = (), tokens_per_step: int | None = None
) -> RunFigures | None:
    """The figures of one run; None when it has no used step.

    ``step_ns`` is the step time of every command, and ``step_samples_ns`` are the steps that it is
    the median of. ``timed_ns`` are step times measured without the profiler (profile.json): of two
    runs that have some they say whether the difference is noise, for they are undisturbed.
    """
    split = con.execute(
        "SELECT count(DISTINCT step), count(DISTINCT rank), avg(compute_ns), "
        "avg(exposed_comm_ns), avg(exposed_memory_ns), avg(other_ns), avg(idle_ns), avg(comm_ns), "
        "avg(hidden_comm_ns), avg(window_ns) FROM step_breakdown WHERE run = ? AND used",
        [run],
    ).fetchone()
    if not split or not split[0]:
        return None
    traced = con.execute(
        "SELECT avg(exposed_comm_ns), avg(idle_ns) FROM step_breakdown "
        "WHERE run = ? AND used GROUP BY step ORDER BY step",
        [run],
    ).fetchall()
    times = list(step_times(con, run).values())
    middle = float(np.median(times))
    about = con.execute(
        "SELECT any_value(r.strategy), any_value(r.compute), max(k.world_size), "
        "max(k.peak_memory_bytes), bool_or(k.timeline = 'host'), any_value(k.metadata), "
        "list_sort(list(DISTINCT k.device_name) FILTER (k.device_name IS NOT NULL)) "
        "FROM run r LEFT JOIN rank k USING (run) WHERE r.run = ?",
        [run],
    ).fetchone()
    return RunFigures(
        run=run,
        strategy=about[0],
        compute=about[1],
        ranks=int(split[1]),
        world_size=about[2] or world_size_said(about[5]),
        steps=int(split[0]),
        step_samples_ns=times,
        step_ns=round(middle),
        step_mad_ns=round(float(np.median(np.abs(np.array(times) - middle)))),
        compute_ns=round(split[2]),
        exposed_comm_ns=round(split[3]),
        exposed_memory_ns=round(split[4]),
        other_ns=round(split[5]),
        idle_ns=round(split[6]),
        comm_ns=round(split[7]),
        hidden_comm_ns=round(split[8]),
        window_ns=round(split[9]),
        peak_memory_bytes=about[3],
        tokens_per_step=tokens_per_step,
        on_host=bool(about[4]),
        collectives=_collectives(con, run, split[3]),
        exposed_samples_ns=[float(row[0]) for row in traced],
        idle_samples_ns=[float(row[1]) for row in traced],
        causes=causes(con, run),
        devices=about[6] or [],
        gradient_elements=_gradient_elements(con, run),
        unprofiled_samples_ns=list(timed_ns),
    )


def _gradient_elements(con: Any, run: str) -> float | None:
    """Values that the backward pass reduces per rank and used step, of the operation and group
    that reduce most: of replicas the gradients; None where phases or sizes are not recorded."""
    (most,) = con.execute(
        "SELECT max(elements) FROM (SELECT sum(in_elements) / count(DISTINCT (c.rank, c.step)) "
        "AS elements FROM collective c JOIN step s USING (run, rank, step) WHERE c.run = ? "
        "AND s.used AND c.phase = 'backward' AND c.op IN ('all_reduce', 'reduce_scatter') "
        "GROUP BY c.op, c.process_group)",
        [run],
    ).fetchone()
    return None if most is None else float(most)


def _collectives(con: Any, run: str, exposed_comm_ns: float) -> list[CollectiveTotal]:
    """``exposed_comm_ns`` is the union's; time that calls share goes to them in proportion."""
    rows = con.execute(
        "WITH s AS (SELECT rank, step FROM step WHERE run = ? AND used) "
        "SELECT c.op, count(*) / (SELECT count(*) FROM s), sum(c.bytes) / (SELECT count(*) FROM s),"
        " sum(c.end_ns - c.start_ns) / (SELECT count(*) FROM s), avg(c.end_ns - c.start_ns), "
        "sum(c.exposed_ns) / (SELECT count(*) FROM s), "
        "sum(c.hidden_ns) / nullif(sum(c.hidden_ns + c.exposed_ns), 0) "
        "FROM collective c JOIN s USING (rank, step) WHERE c.run = ? GROUP BY c.op ORDER BY 4 DESC",
        [run, run],
    ).fetchall()
    alone = sum(float(row[5] or 0) for row in rows)
    shared = min(1.0, exposed_comm_ns / alone) if alone else 1.0
    return [
        CollectiveTotal(
            op=str(op),
            calls_per_step=float(calls),
            bytes_per_step=None if size is None else round(size),
            total_ns_per_step=round(total),
            average_ns=round(average),
            exposed_ns_per_step=None if exposed is None else round(shared * float(exposed)),
            hidden=hidden,
        )
        for op, calls, size, total, average, exposed, hidden in rows
    ]


def scaling_efficiency(base: RunFigures, other: RunFigures) -> float | None:
    """Throughput per rank against the base's; None when ranks or tokens are not known."""
    if base.tokens_per_second is None or other.tokens_per_second is None:
        return None
    per_base = base.tokens_per_second / (base.world_size or base.ranks)
    per_other = other.tokens_per_second / (other.world_size or other.ranks)
    return per_other / per_base


def operators(con: Any, base: str, other: str, *, limit: int = 15) -> list[OperatorChange] | None:
    """Operators (CPU traces) or kernels (GPU) whose calls or time changed most, per step and rank.

    Times of operators include what they call; kernels do not overlap within a stream. Empty when
    nothing changed to the nanosecond; None when neither run recorded any.
    """
    query = """
WITH s AS (SELECT run, rank, step, host_start_ns AS b, host_end_ns AS e FROM step
           WHERE run IN (?, ?) AND used),
n AS (SELECT run, count(*) AS n FROM s GROUP BY run),
o AS (SELECT v.run, v.name, count(*) AS calls, sum(v.dur_ns) AS ns FROM event v
      ASOF JOIN s ON v.run = s.run AND v.rank = s.rank AND v.start_ns >= s.b
      WHERE v.start_ns < s.e AND v.class IN (SELECT DISTINCT CASE WHEN timeline = 'host'
        THEN 'cpu_op' ELSE unnest(['compute', 'memory']) END FROM rank WHERE run IN (?, ?))
      GROUP BY v.run, v.name)
SELECT coalesce(a.name, z.name) AS name, coalesce(a.calls / na.n, 0), coalesce(z.calls / nz.n, 0),
  coalesce(a.ns / na.n, 0), coalesce(z.ns / nz.n, 0)
FROM (SELECT * FROM o WHERE run = ?) a FULL JOIN (SELECT * FROM o WHERE run = ?) z
  ON a.name = z.name
CROSS JOIN (SELECT n FROM n WHERE run = ?) na CROSS JOIN (SELECT n FROM n WHERE run = ?) nz
ORDER BY abs(coalesce(z.ns / nz.n, 0) - coalesce(a.ns / na.n, 0)) DESC,
  abs(coalesce(z.calls / nz.n, 0) - coalesce(a.calls / na.n, 0)) DESC, 1 LIMIT ?"""
    rows = con.execute(
        query, [base, other, base, other, base, other, base, other, limit]
    ).fetchall()
    if not rows:
        return None
    changes = []
    for name, calls_a, calls_z, ns_a, ns_z in rows:
        if (calls_a, round(ns_a)) == (calls_z, round(ns_z)):
            continue
        change = "added" if not calls_a else "removed" if not calls_z else "changed"
        changes.append(
            OperatorChange(
                str(name), change, float(calls_a), float(calls_z), round(ns_a), round(ns_z)
            )
        )
    return changes
