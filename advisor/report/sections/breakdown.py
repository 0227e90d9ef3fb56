"""Where does the step go? Per step, per rank, and the worst step beside the typical one."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from advisor.metrics.steps.used import step_time
from advisor.report import numbers
from advisor.report.charts.columns import MAX_COLUMNS, step_columns
from advisor.report.charts.scene import KINDS, DataTable, Figure, legend_for
from advisor.report.charts.stacked import Bar, stacked_bars
from advisor.report.sections.breakdown_title import exposed, ranks_title
from advisor.report.sections.section import Section, slug
from advisor.report.tables import PARTS_SQL, Row, rows
from advisor.store.store import Store

MAX_RANKS = 64
# Steps vary by a few percent on any machine; only more than this is worth a word.
_BAD_STEP = 0.05


def build(store: Store, run: str, *, several: bool = False) -> Section | None:
    """The section of one run; None when the trace had no device activity."""
    by_rank, basis = _by_rank(store, run)
    if not by_rank:
        return None
    suffix = f"-{slug(run)}" if several else ""
    longest_ns = _longest_step(store) if several else 0.0
    steps = _steps_figure(store, run, suffix, longest_ns)
    communication = _communication(store, run)
    ranks = _ranks_figure(by_rank, basis, suffix, longest_ns, communication)
    worst = _worst_figure(store, run, suffix, longest_ns)
    figures = [figure for figure in (steps, ranks, worst) if figure is not None]
    overlap = _overlap(communication)
    return Section(
        id=f"breakdown{suffix}",
        title="Where does the step go?" + (f" ({run})" if several else ""),
        template="breakdown.html.j2",
        count=numbers.plural(len(by_rank), "rank"),
        data={"figures": figures, "overlap": overlap, "basis": basis},
    )


def _by_rank(store: Store, run: str) -> tuple[list[Row], str]:
    per_step = rows(
        store,
        f"SELECT rank, count(*) AS steps, {PARTS_SQL} FROM step_breakdown"
        " WHERE run = ? AND used GROUP BY rank ORDER BY rank",
        [run],
    )
    if per_step:
        fewest = min(row["steps"] for row in per_step)
        most = max(row["steps"] for row in per_step)
        steps = numbers.plural(most, "used step")
        if fewest != most:
            steps = f"{fewest} to {steps}"
        return per_step, f"mean of {steps}"
    whole = rows(
        store,
        f"SELECT rank, 1 AS steps, {PARTS_SQL} FROM run_breakdown WHERE run = ?"
        " GROUP BY rank ORDER BY rank",
        [run],
    )
    return whole, "the whole trace: it holds no used step"


def _steps_figure(store: Store, run: str, suffix: str, longest_ns: float) -> Figure | None:
    steps = rows(
        store,
        f"SELECT step, bool_or(used) AS used, {PARTS_SQL} FROM step_breakdown"
        " WHERE run = ? GROUP BY step ORDER BY step",
        [run],
    )
    if len(steps) < 2:
        return None
    used = [step for step in steps if step["used"]]
    worst = max(used or steps, key=lambda step: step["window_ns"])
    typical = step_time(store.con, run) or median(step["window_ns"] for step in used or steps)
    above = (worst["window_ns"] - typical) / typical if typical else 0.0
    shown = _fold(steps)
    bars = [
        _bar(_step_label(step), step, emphasis=step is worst and above >= _BAD_STEP)
        for step in shown
    ]
    if above < _BAD_STEP:
        title = f"All steps take about {numbers.duration(typical)}"
    else:
        title = (
            f"Step {worst['step']} took {numbers.duration(worst['window_ns'])}, "
            f"{numbers.share(above)} more than the median {numbers.duration(typical)}"
        )
    note = (
        "Each column is the mean over ranks. An asterisk marks a step that the "
        "statistics leave out: partial, warm-up or far longer than the others."
    )
    if len(shown) < len(steps):
        note += f" {len(steps)} steps in {len(shown)} columns: each shows the slowest of its group."
    return Figure(
        id=f"steps{suffix}",
        title=title,
        description="One stacked column per step, in ms: " + ", ".join(_kinds_used(steps)) + ".",
        scenes=[step_columns(bars, longest_ns=longest_ns)],
        legend=legend_for(_kinds(steps)),
        table=_table("step", [(_step_label(step), step) for step in steps[:200]]),
        note=note,
    )


def _ranks_figure(
    by_rank: list[Row], basis: str, suffix: str, longest_ns: float, communication: float | None
) -> Figure:
    shown = by_rank
    note = f"Each bar adds up to the rank's step ({basis})."
    if len(by_rank) > MAX_RANKS:
        shown = sorted(sorted(by_rank, key=exposed)[-MAX_RANKS:], key=lambda row: row["rank"])
        note += f" The {MAX_RANKS} of {len(by_rank)} ranks with the most exposed communication."
    return Figure(
        id=f"ranks{suffix}",
        title=ranks_title(by_rank, communication),
        description="One horizontal stacked bar per rank on one scale, in ms per step: "
        + ", ".join(_kinds_used(by_rank))
        + ".",
        scenes=[
            stacked_bars([_bar(f"rank {row['rank']}", row) for row in shown], longest_ns=longest_ns)
        ],
        legend=legend_for(_kinds(by_rank)),
        table=_table("rank", [(row["rank"], row) for row in by_rank[:1024]]),
        note=note,
    )


def _worst_figure(store: Store, run: str, suffix: str, longest_ns: float) -> Figure | None:
    """The ranks in the slowest used step, if it stands out from at least two others."""
    steps = rows(
        store,
        f"SELECT step, {PARTS_SQL} FROM step_breakdown WHERE run = ? AND used GROUP BY step"
        " ORDER BY avg(window_ns)",
        [run],
    )
    if len(steps) < 3:
        return None
    worst, typical = steps[-1], steps[len(steps) // 2]
    if worst["window_ns"] < (1 + _BAD_STEP) * typical["window_ns"]:
        return None
    grown = max(_kinds([worst]), key=lambda kind: worst[kind] - typical[kind])
    by_rank = rows(
        store,
        f"SELECT rank, {PARTS_SQL} FROM step_breakdown WHERE run = ? AND step = ?"
        " GROUP BY rank ORDER BY rank",
        [run, worst["step"]],
    )
    return Figure(
        id=f"worst-step{suffix}",
        title=f"In the slowest step, {worst['step']}, this grew most: {KINDS[grown]}, "
        f"{numbers.duration(worst[grown])} instead of {numbers.duration(typical[grown])}",
        description=f"One horizontal stacked bar per rank for step {worst['step']}, in ms.",
        scenes=[
            stacked_bars(
                [_bar(f"rank {row['rank']}", row) for row in by_rank[:MAX_RANKS]],
                axis="ms",
                longest_ns=longest_ns,
            )
        ],
        legend=legend_for(_kinds(by_rank)),
        table=_table("rank", [(row["rank"], row) for row in by_rank[:1024]]),
        note=f"Compared with step {typical['step']}, the one in the middle when sorted by length "
        "(mean over ranks).",
    )


def _longest_step(store: Store) -> float:
    found = rows(
        store,
        "SELECT max(mean_ns) AS longest FROM (SELECT avg(window_ns) AS mean_ns"
        " FROM step_breakdown WHERE used GROUP BY run, step)",
    )
    return float(found[0]["longest"] or 0.0)


def _overlap(communication: float | None) -> str:
    if communication is None:
        return "no communication, so overlap is undefined"
    return f"{numbers.share(communication)} of communication time is hidden under compute"


def _communication(store: Store, run: str) -> float | None:
    """The part of communication under compute, in the steps of the bars; None without any."""
    for table, steps in (("step_breakdown", " AND used"), ("run_breakdown", "")):
        (found,) = rows(
            store,
            "SELECT count(*) AS parts, sum(comm_ns) AS comm, sum(hidden_comm_ns) AS hidden"
            f" FROM {table} WHERE run = ?{steps}",
            [run],
        )
        if found["parts"]:
            return found["hidden"] / found["comm"] if found["comm"] else None
    return None


def _bar(label: str, row: Row, *, emphasis: bool = False) -> Bar:
    return Bar(label, {kind: float(row.get(kind) or 0.0) for kind in KINDS}, emphasis)


def _kinds(measured: Sequence[Row]) -> list[str]:
    return [kind for kind in KINDS if any(row.get(kind) for row in measured)]


def _kinds_used(measured: Sequence[Row]) -> list[str]:
    return [KINDS[kind] for kind in _kinds(measured)]


def _table(first: str, labelled: Sequence[tuple[object, Row]]) -> DataTable:
    kinds = _kinds([row for _, row in labelled])
    return DataTable(
        columns=[first, "window, ms", *(f"{KINDS[kind]}, ms" for kind in kinds)],
        rows=[
            [
                str(label),
                numbers.milliseconds(row["window_ns"]),
                *(numbers.milliseconds(row[kind]) for kind in kinds),
            ]
            for label, row in labelled
        ],
    )


def _step_label(step: Row) -> str:
    return str(step["step"]) if step["used"] else f"{step['step']}*"


def _fold(steps: list[Row]) -> list[Row]:
    if len(steps) <= MAX_COLUMNS:
        return steps
    size = -(-len(steps) // MAX_COLUMNS)
    groups = [steps[start : start + size] for start in range(0, len(steps), size)]
    return [max(group, key=lambda step: step["window_ns"]) for group in groups]
