"""The first screen: what is wrong, where the step goes, and what of it could go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.findings import Finding, FindingsReport, RunSummary, Severity, VerdictKind
from advisor.metrics.compare.runs import Comparison
from advisor.metrics.timeline.parts import by_rank, mean
from advisor.report import comparison as compared
from advisor.report import numbers, summary
from advisor.report.figures import Figure, StepBar, legend_for
from advisor.report.sections import comparison, ranks, sweep
from advisor.store.store import Store
from advisor.vocabulary.messages import STATES, say

_LEAST = 0.005  # of the step: less is not seen in the bar
# What these verdicts would try are the fixes of findings, which the rows have.
_ROWS_SAY = {"exposed", "healthy"}
_ABOUT = {VerdictKind.SURE, VerdictKind.PROBABLE, VerdictKind.UNKNOWN_COST}


@dataclass(frozen=True)
class First:
    """``tone`` is a severity or a state, for colour; ``state`` says how sure the title is.

    ``next_steps`` are empty where the first row of the findings has them. ``figures``: the average
    step or the runs compared, and the ranks where they are the matter.
    """

    tone: str
    state: str
    title: str
    why: str
    next_steps: Sequence[str]
    step: Figure | None
    ranks: Figure | None
    runs: Sequence[RunSummary]


def first_screen(report: FindingsReport, store: Store | None, found: Comparison | None) -> First:
    """Of the verdict, or of the comparison where that was asked for."""
    if found is not None:
        return First("info", "Comparison", compared.headline(found), "", (),
                     comparison.bars(found), None, ())  # fmt: skip
    verdict = report.verdict
    about = summary.of_verdict(report)
    has_row = about is not None
    run = about.run if about is not None else verdict.run
    if not run and len(report.runs) == 1:
        run = report.runs[0].run
    matter = about if ranks.is_about_ranks(about) else None
    return First(
        tone=_tone(report),
        state=_state(report),
        title=verdict.headline(),
        why=verdict.why,
        next_steps=()
        if has_row or verdict.reason in _ROWS_SAY
        else [summary.to_paste(step, report) for step in verdict.next_steps[:3]],
        step=_step(report, store, run, about) if store and run and not is_sweep(report) else None,
        ranks=ranks.heat_map(store, run, matter.ranks) if store and matter else None,
        runs=[item for item in report.runs if item.verdict] if len(report.runs) > 1 else (),
    )


def is_sweep(report: FindingsReport) -> bool:
    """Whether the page is of a sweep, not of its baseline's findings."""
    return report.verdict.cause in sweep.STATES


def _tone(report: FindingsReport) -> str:
    verdict = report.verdict
    if verdict.cause == "benchmark" or is_sweep(report):
        return verdict.cause
    if verdict.kind in (VerdictKind.HEALTHY, VerdictKind.INCONCLUSIVE):
        return verdict.kind.value
    return verdict.severity.value


def _state(report: FindingsReport) -> str:
    verdict = report.verdict
    if is_sweep(report):
        return sweep.STATES[verdict.cause]
    if verdict.cause == "benchmark":
        return "A benchmark, no training"
    about = summary.of_verdict(report)
    values = {"probability": about.probability if about is not None else None}
    words = say(STATES, verdict.kind.value, values)
    if verdict.kind in _ABOUT and verdict.severity is not Severity.INFO:
        return f"{verdict.severity.value.capitalize()} · {words[:1].lower()}{words[1:]}"
    return words


def _step(report: FindingsReport, store: Store, run: str, about: Finding | None) -> Figure | None:
    """The average step, and in it what the verdict's finding would give back."""
    measured = by_rank(store.con, run)
    if not measured:
        return None
    average = mean(measured)
    gain, mark, kind = None, "", ""
    if about is not None and about.savings_ns:
        low, high = about.savings_low_ns, about.savings_high_ns
        middle = float(about.savings_ns)
        gain = (middle if low is None else low, middle, middle if high is None else high)
        kind = max(about.claims, key=lambda part: about.claims[part], default="")
        number = 1 + report.findings.index(about)
        mark = f"finding {number}: {summary.per_step(about)} could go"
    shares = {kind: ns / average.window_ns for kind, ns in average.ns.items()}
    whole = not average.steps
    of = f"{numbers.plural(average.steps, 'step')}, " if average.steps else ""
    return Figure(
        id="average-step",
        title=f"The {'whole trace' if whole else 'average step'}: "
        f"{numbers.duration(average.window_ns)} "
        f"({of}{numbers.plural(len(measured), 'rank')})",
        description="One stacked bar of the mean step over ranks, in ms.",
        drawing=StepBar(average.ns, kind, gain, mark),
        legend=[
            (kind, f"{words} {numbers.share(shares[kind])}")
            for kind, words in legend_for([kind for kind in shares if shares[kind] >= _LEAST])
        ],
    )
