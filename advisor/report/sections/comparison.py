"""Several runs beside each other: where the step of each goes, every figure against the base."""

from collections.abc import Sequence

from advisor.messages import on_page
from advisor.metrics.compare.runs import Comparison
from advisor.report import comparison as rows
from advisor.report import comparison_figures
from advisor.report.data_table import DataTable
from advisor.report.figures import KINDS, Bar, Figure, StackedBars, legend_for
from advisor.report.sections.section import Section

_LABEL_LETTERS = 15
_MOST_IN_FULL = 2
"""Runs with sections of their own: each takes 35 kB of a page that is to stay below 210."""


def bars(found: Comparison) -> Figure:
    """One bar per run, and the rows that matter."""
    measured = {row.run: found.parts[row.run] for row in found.runs if row.run in found.parts}
    kinds = [kind for kind in KINDS if any(part.ns.get(kind) for part in measured.values())]
    # Names stand beside the bars where they fit, else their numbers in the list below do.
    fits = all(len(run) <= _LABEL_LETTERS for run in measured)
    labels = [run if fits else str(number) for number, run in enumerate(measured, 1)]
    numbered = "; ".join(f"{number} {run}" for number, run in enumerate(measured, 1))
    several = len(found.runs) > 2
    base, other = labels if len(labels) == 2 and not fits else [row.run for row in found.runs[:2]]
    return Figure(
        id="runs-compared",
        title=on_page("runs"),
        description=on_page("bars-of-runs"),
        drawing=StackedBars(
            [Bar(label, part.ns) for label, part in zip(labels, measured.values(), strict=True)]
        ),
        legend=legend_for(kinds),
        table=DataTable(
            ["run", "step", "against the base", "because"]
            if several
            else ["per step", "change", base, other],
            rows.matters(found),
        ),
        note="" if fits else f"Bars: {numbered}.",
        shows_table=True,
    )


def in_full(found: Comparison, runs: Sequence[str]) -> Sequence[str]:
    """The runs that have sections of their own: the base, and what differs most from it."""
    if len(runs) <= _MOST_IN_FULL:
        return runs
    base, *others = found.runs
    most = max(others, key=lambda row: abs(row.step_ns - base.step_ns))
    return [run for run in runs if run in (base.run, most.run)]


def build(found: Comparison, shown: Sequence[str]) -> Section:
    """The tables of `advisor compare`: runs are columns, as strategies are in studies.

    ``shown``: the runs that have sections of their own.
    """
    names = [row.run for row in found.runs]
    figures = [
        Figure(
            id="runs-figures",
            title=on_page("every-figure"),
            table=DataTable(
                ["per step", *names],
                [
                    [title, *values]
                    for title, values in _whole_titles(comparison_figures.figures(found))
                ],
            ),
            note=" ".join(f"{note[:1].upper()}{note[1:]}." for note in rows.notes(found)),
        )
    ]
    if traffic := comparison_figures.traffic(found):
        unexplained = sum(row[4] == "differs" for row in traffic)
        figures.append(
            Figure(
                id="runs-traffic",
                title=on_page("runs-traffic", unexplained=unexplained, cases=len(traffic)),
                table=DataTable(
                    ["run", "operation", "measured, MB", "theory, MB", "verdict", "formula",
                     "difference"],
                    traffic,
                ),
            )
        )  # fmt: skip
    changes = comparison_figures.operators(found)
    unchanged = [
        [run, "none changed", "", "", ""] for run in comparison_figures.nothing_changed(found)
    ]
    if changes or unchanged:
        figures.append(
            Figure(
                id="runs-operators",
                title=on_page("operators", changes=len(changes), base=found.base.run),
                table=DataTable(
                    ["run", "change", "time, ms", "calls", "operator"], [*changes, *unchanged]
                ),
            )
        )
    line = on_page("runs-shown", runs=len(names), apart=[n for n in names if n not in shown])
    return Section("compared", "Figures", "Run by run", figures, line)


def _whole_titles(lines: comparison_figures.Lines) -> comparison_figures.Lines:
    """Indented titles with what they belong to: a page has no columns to indent by."""
    found: comparison_figures.Lines = []
    about = ""
    for title, values in lines:
        if not title.startswith(" "):
            about = title.rpartition(" ")[0]
        found.append((f"{about} {title.strip()}" if title.startswith(" ") else title, values))
    return found
