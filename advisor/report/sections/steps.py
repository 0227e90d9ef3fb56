"""Where does the step go? Ranks beside each other, and steps where one stands out."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from advisor.messages import on_page
from advisor.metrics.steps.used import step_time
from advisor.metrics.timeline.parts import KINDS as MEASURED
from advisor.metrics.timeline.parts import Parts, by_rank, by_step, hidden_share
from advisor.report import numbers
from advisor.report.charts.columns import MAX_COLUMNS
from advisor.report.data_table import DataTable
from advisor.report.figures import KINDS, Bar, Figure, StackedBars, StepColumns, legend_for
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import of_unit
from advisor.store.store import Store

MOST_RANKS = 8
"""Drawn one by one; of more the culprit, the best, the median and the worst."""
_MOST_ROWS = 64
# Steps vary by a few percent on any machine; only more than this is worth a picture.
_BAD_STEP = 0.05
_LITTLE = 0.02  # of the step
_SEEN = 0.005


def build(
    store: Store, run: str, *, several: bool = False, culprits: Sequence[int] = ()
) -> Section | None:
    """The section of one run; None when the trace had no device activity.

    ``culprits`` are ranks that the verdict blames: one, or those of a host. Of half of all ranks or
    more nobody stands out.
    """
    ranks = by_rank(store.con, run)
    if not ranks:
        return None
    culprits = culprits if 2 * len(culprits) < len(ranks) or len(culprits) == 1 else ()
    suffix, name, title = of_run("steps", "Where the step goes", run, several)
    per_step = of_unit(store, run)["per_step"]
    figures = [_ranks(ranks, suffix, culprits, per_step)] if len(ranks) > 1 else []
    steps = _steps(store, run, suffix)
    figures += [steps] if steps is not None else []
    hidden = hidden_share(store.con, run)
    line = "" if hidden is None else on_page("hidden", share=hidden)
    if not figures:
        return None
    return Section(name, "Steps", title, figures, line, is_open=not several)


def _ranks(ranks: list[Parts], suffix: str, culprits: Sequence[int], per_step: str) -> Figure:
    subject = _subject(ranks)
    bars = [Bar(f"rank {row.of}", row.ns, emphasis=row.of in culprits) for row in ranks]
    if len(ranks) > MOST_RANKS:
        bars = _four(ranks, culprits, subject)
    return Figure(
        id=f"ranks{suffix}",
        title=_title(ranks, subject, per_step),
        description=on_page("bars-of-ranks", per_step=per_step),
        drawing=StackedBars(bars, f"ms {per_step}"),
        legend=legend_for(_kinds(ranks)),
        table=_table("rank", [(f"{row.of}", row) for row in ranks]),
        note=on_page(
            "note-of-bars",
            steps=ranks[0].steps,
            shown=len(bars) < len(ranks),
            ranks=len(ranks),
            subject=subject,
        ),
    )


def _four(ranks: list[Parts], culprits: Sequence[int], subject: str) -> list[Bar]:
    """The culprit, and of the other ranks those with least, middle and most of ``subject``: the
    title names no others.

    Of a host's ranks it is the one that waits least: for it all others do.
    """
    blamed = sorted((row for row in ranks if row.of in culprits),
                    key=lambda row: (row.exposed_ns, row.of))[:1]  # fmt: skip
    others = sorted((row for row in ranks if row not in blamed),
                    key=lambda row: (_SUBJECTS[subject](row), row.of))  # fmt: skip
    picked = zip(
        ("best", "median", "worst"), (others[0], others[len(others) // 2], others[-1]), strict=True
    )
    bars = [Bar(f"culprit {row.of}", row.ns, emphasis=True) for row in blamed]
    return bars + [Bar(f"{name} {row.of}", row.ns) for name, row in picked]


def _subject(ranks: Sequence[Parts]) -> str:
    """What takes most of the steps beside compute, of :data:`_SUBJECTS`."""
    most = {name: max(ns(row) / row.window_ns for row in ranks) for name, ns in _SUBJECTS.items()}
    if most["memory"] > max(most["exposed"], most["idle"], _LITTLE):
        return "memory"
    if most["idle"] > max(most["exposed"], _LITTLE):
        return "idle"
    waits = [row.ns["wait"] for row in ranks]
    differ = max(waits) > 0.5 * max(row.exposed_ns for row in ranks)
    return "wait" if differ and min(waits) < 0.6 * max(waits) else "exposed"


def _title(ranks: Sequence[Parts], subject: str, per_step: str) -> str:
    """What takes most of the steps, and how it differs between ranks."""
    ns = _SUBJECTS[subject]
    little = max((row.exposed_ns / row.window_ns for row in ranks), default=0.0) < _LITTLE
    if subject in ("wait", "exposed") and little:
        return on_page("all-compute")
    # In the order of the bars: ranks' steps differ too.
    ordered = sorted((ns(row), row.of) for row in ranks)
    least, most = ordered[0], ordered[-1]
    if subject == "wait":
        return on_page("waits-differ", most=most, least=least, per_step=per_step)
    shares = [ns(row) / row.window_ns for row in ranks]
    if max(shares) - min(shares) < _LITTLE:
        mean = sum(shares) / len(shares)
        span = on_page("alike-on-ranks", share=mean, per_step=per_step)
    else:
        span = on_page("range-of-ranks", low=least, high=most, per_step=per_step)
    return on_page(f"{subject}-takes", range=span)


_SUBJECTS: Mapping[str, Callable[[Parts], float]] = {
    "exposed": lambda row: row.exposed_ns,
    "wait": lambda row: row.ns["wait"],
    "idle": lambda row: sum(ns for kind, ns in row.ns.items() if kind.startswith("idle")),
    "memory": lambda row: row.ns.get("memory", 0.0),
}


def _steps(store: Store, run: str, suffix: str) -> Figure | None:
    steps = by_step(store.con, run)
    if len(steps) < 2:
        return None
    used = [step for step in steps if step.used] or steps
    worst = max(used, key=lambda step: step.window_ns)
    typical = step_time(store.con, run) or median(step.window_ns for step in used)
    above = (worst.window_ns - typical) / typical if typical else 0.0
    if above < _BAD_STEP:
        return Figure(
            f"each-step{suffix}", on_page("steps-alike", steps=len(used), step_ns=typical)
        )
    grown = max(KINDS, key=lambda kind: worst.ns.get(kind, 0.0) - _usual(used, kind))
    shown = _fold(steps)
    return Figure(
        id=f"each-step{suffix}",
        title=on_page("longest-step", worst=worst, above=above, step_ns=typical, kind=KINDS[grown]),
        description=on_page("columns-of-steps"),
        drawing=StepColumns([Bar(_label(step), step.ns, step is worst) for step in shown]),
        table=_table("step", [(_label(step), step) for step in steps]),
        note=on_page(
            "note-of-columns",
            uncounted=len(used) < len(steps),
            steps=len(steps),
            columns=len(shown),
        ),
    )


def _usual(steps: Sequence[Parts], kind: str) -> float:
    return median(step.ns.get(kind, 0.0) for step in steps)


def _label(step: Parts) -> str:
    return str(step.of) if step.used else f"{step.of}*"


def _fold(steps: list[Parts]) -> list[Parts]:
    size = -(-len(steps) // MAX_COLUMNS)
    groups = [steps[start : start + size] for start in range(0, len(steps), size)]
    return [max(group, key=lambda step: step.window_ns) for group in groups]


def _kinds(measured: Sequence[Parts]) -> list[str]:
    """Those that are seen in the bars."""
    return [
        kind for kind in MEASURED if any(row.ns[kind] > _SEEN * row.window_ns for row in measured)
    ]


def _table(first: str, labelled: Sequence[tuple[str, Parts]]) -> DataTable:
    """The most exposed first."""
    kinds = _kinds([row for _, row in labelled])
    ordered = sorted(labelled, key=lambda item: -item[1].exposed_ns)
    return DataTable(
        [first, "exposed, ms", "whole, ms", *(f"{KINDS[kind]}, ms" for kind in kinds)],
        [
            [
                label,
                numbers.milliseconds(row.exposed_ns),
                numbers.milliseconds(row.window_ns),
                *(numbers.milliseconds(row.ns[kind]) for kind in kinds),
            ]
            for label, row in ordered[:_MOST_ROWS]
        ],
        note=on_page("most-exposed", most=_MOST_ROWS, rows=len(ordered)),
    )
