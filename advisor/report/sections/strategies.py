"""Several runs beside each other: where the step of each goes, every figure against the base."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.metrics.compare.figures import RunFigures
from advisor.metrics.compare.runs import Comparison, Timed, comparison
from advisor.metrics.compare.significance import difference
from advisor.report import comparison as rows
from advisor.report import numbers
from advisor.report.charts.scene import KINDS, DataTable, Figure, legend_for
from advisor.report.charts.stacked import Bar, stacked_bars
from advisor.report.sections.section import Section
from advisor.report.tables import PARTS_SQL, Row
from advisor.report.tables import rows as query
from advisor.store.store import Store

_LABEL_LETTERS = 15


def build(store: Store, runs: Sequence[str], compared: Comparison | None = None) -> Section | None:
    """One bar per run, fastest first, and the tables of `advisor compare`; None for a single run.

    ``compared`` has steps timed without the profiler; without it the traced ones are compared.
    """
    if len(runs) < 2:
        return None
    measured = {
        row["run"]: row
        for row in query(
            store,
            f"SELECT run, count(DISTINCT step) AS steps, {PARTS_SQL} FROM step_breakdown"
            " WHERE used AND list_contains(?, run) GROUP BY run",
            [list(runs)],
        )
    }
    if len(measured) < 2:
        return None
    if compared is None:
        compared = comparison(store.con, {run: Timed() for run in runs if run in measured})
    ranked = sorted(compared.runs, key=lambda row: row.training_step_ns)
    measured = {row.run: measured[row.run] for row in ranked}
    about = {
        row["run"]: row
        for row in query(
            store,
            "SELECT r.run, r.strategy, r.compute, max(k.peak_memory_bytes) AS peak,"
            " count(*) AS ranks FROM run r LEFT JOIN rank k USING (run) GROUP BY ALL",
        )
    }
    kinds = [kind for kind in KINDS if any(row.get(kind) for row in measured.values())]
    # Names stand beside the bars where they fit, else their numbers in the table do.
    labels = [_name(run, about) for run in measured]
    fits = all(len(label) <= _LABEL_LETTERS for label in labels)
    if not fits:
        labels = [str(number) for number in range(1, len(measured) + 1)]
    figure = Figure(
        id="runs-compared",
        title=_verdict(ranked, about),
        description="One stacked bar per run, mean over ranks and used steps, ms per"
        " step.",
        scenes=[
            stacked_bars(
                [
                    Bar(labels[number - 1], {kind: float(row.get(kind) or 0) for kind in KINDS})
                    for number, row in enumerate(measured.values(), 1)
                ]
            )
        ],
        legend=legend_for(kinds),
        table=DataTable(
            ["#", "run", "strategy", "compute", "ranks", "steps", "recorded step, ms",
             *(f"{KINDS[kind]}, ms" for kind in kinds), "peak memory per rank"],
            [
                [
                    number,
                    run,
                    (about[run]["strategy"] if run in about else None) or "–",
                    (about[run]["compute"] if run in about else None) or "–",
                    about[run]["ranks"] if run in about else "–",
                    row["steps"],
                    numbers.milliseconds(row["window_ns"]),
                    *(numbers.milliseconds(row[kind]) for kind in kinds),
                    numbers.traffic(about[run]["peak"] if run in about else None),
                ]
                for number, (run, row) in enumerate(measured.items(), 1)
            ],
        ),
        note=_source(ranked)
        + (
            ""
            if fits
            else " Bars: "
            + "; ".join(f"{n} {_name(run, about)}" for n, run in enumerate(measured, 1)) + "."
        ),
    )  # fmt: skip
    return Section(
        id="strategies",
        title="Which run is faster, and where?",
        template="figures.html.j2",
        count=numbers.plural(len(measured), "run"),
        data={"figures": [figure, *_compared(compared)]},
    )


def _verdict(ranked: Sequence[RunFigures], about: dict[str, Row]) -> str:
    """Which run is fastest, by the test of the table below; ``ranked`` is by median step."""
    first, *others = ranked
    alike = [
        row
        for row in others
        if not difference(first.step_samples_ns, row.step_samples_ns).significant
    ]
    took = numbers.duration(first.training_step_ns)
    if not alike:
        ratio = ranked[-1].training_step_ns / first.training_step_ns
        return (
            f"{_name(first.run, about)} is fastest: {took} per step, "
            f"{numbers.significant(ratio)} times as fast as the slowest"
        )
    second = f"{_name(alike[0].run, about)} {numbers.duration(alike[0].training_step_ns)}"
    more = f", and {numbers.plural(len(alike) - 1, 'other run')}" if len(alike) > 1 else ""
    return (
        f"No run is fastest beyond noise: {_name(first.run, about)} takes {took} per step, "
        f"{second}{more}"
    )


def _source(ranked: Sequence[RunFigures]) -> str:
    """Why the bars may have another order than the runs."""
    sources = sorted({row.samples_from for row in ranked})
    if sources == ["traced steps"]:
        return ""
    return (
        f"Runs are ordered by their step times ({'; '.join(sources)}); the bars are of the recorded"
        " steps, which the profiler slows."
    )


def _compared(found: Comparison) -> list[Figure]:
    """The tables of `advisor compare`: runs are columns, as strategies are in studies."""
    names = [row.run for row in found.runs]
    surely = sum(change.significant is True for change in found.differences)
    inconclusive = sum(change.significant is None for change in found.differences)
    others = numbers.plural(len(found.differences), "other run")
    figures = [
        Figure(
            id="runs-figures",
            title=(
                f"{surely} of {others} differ" if surely or inconclusive else "No other run differs"
            )
            + f" in step time from {found.base.run} beyond noise"
            + (f"; {inconclusive} cannot be told, with too few steps" if inconclusive else ""),
            description="Every figure of every run, per step; the first run is the base.",
            scenes=[],
            table=DataTable(
                ["per step", *names],
                [[title, *values] for title, values in _whole_titles(rows.figures(found))],
            ),
            note=" ".join(f"{note[:1].upper()}{note[1:]}." for note in rows.notes(found)),
        )
    ]
    traffic = rows.traffic(found)
    if traffic:
        unexplained = sum(row[4] == "differs" for row in traffic)
        figures.append(
            Figure(
                id="runs-traffic",
                title="Traffic is what theory says, or the difference is explained"
                if not unexplained
                else f"Traffic differs from theory without explanation in {unexplained} "
                f"of {len(traffic)} cases",
                description="Bytes that each rank sends per step, measured and by theory.",
                scenes=[],
                table=DataTable(
                    ["run", "operation", "measured, MB", "theory, MB", "verdict", "formula",
                     "difference"],
                    [list(row) for row in traffic],
                ),
            )
        )  # fmt: skip
    changes = rows.operators(found)
    unchanged = [[run, "none changed", "", "", ""] for run in rows.nothing_changed(found)]
    if changes or unchanged:
        figures.append(
            Figure(
                id="runs-operators",
                title=f"What the other runs added, removed or changed against {found.base.run}"
                if changes
                else f"No operator changed in calls or time against {found.base.run}",
                description="Operators or kernels whose time changed most, per step and rank.",
                scenes=[],
                table=DataTable(
                    ["run", "change", "time, ms", "calls", "operator"],
                    [*(list(row) for row in changes), *unchanged],
                ),
            )
        )
    return figures


def _whole_titles(lines: rows.Lines) -> rows.Lines:
    """Indented titles with what they belong to: a page has no columns to indent by."""
    found: rows.Lines = []
    about = ""
    for title, values in lines:
        if not title.startswith(" "):
            about = title.rpartition(" ")[0]
        found.append((f"{about} {title.strip()}" if title.startswith(" ") else title, values))
    return found


def _name(run: str, about: dict[str, Row]) -> str:
    row = about.get(run)
    if row is None or not row["strategy"] or row["strategy"] == run:
        return run
    emulated = ", emulated compute" if row["compute"] == "emulated" else ""
    return f"{run} ({row['strategy']}{emulated})"
