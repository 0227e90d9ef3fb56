"""Where does the step go? Ranks beside each other, and steps where one stands out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from advisor.metrics.steps.used import step_time
from advisor.metrics.timeline.parts import KINDS as MEASURED
from advisor.metrics.timeline.parts import Parts, by_rank, by_step, hidden_share
from advisor.report import numbers
from advisor.report.charts.columns import MAX_COLUMNS
from advisor.report.figures import (
    KINDS,
    Bar,
    DataTable,
    Figure,
    StackedBars,
    StepColumns,
    legend_for,
)
from advisor.report.sections.section import Section, of_run
from advisor.store.store import Store
from advisor.vocabulary.words import about

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
    figures = [_ranks(ranks, suffix, culprits)] if len(ranks) > 1 else []
    steps = _steps(store, run, suffix)
    figures += [steps] if steps is not None else []
    hidden = hidden_share(store.con, run)
    line = "" if hidden is None else f"{numbers.share(hidden)} of communication is under compute"
    if not figures:
        return None
    return Section(name, "Steps", title, figures, line, is_open=not several)


def _ranks(ranks: list[Parts], suffix: str, culprits: Sequence[int]) -> Figure:
    bars = [Bar(f"rank {row.of}", row.ns, emphasis=row.of in culprits) for row in ranks]
    if len(ranks) > MOST_RANKS:
        bars = _four(ranks, culprits)
    note = "" if ranks[0].steps else "Of the whole trace: it holds no used step."
    if len(bars) < len(ranks):
        note += f" The least, middle and most exposed of {len(ranks)} ranks."
    return Figure(
        id=f"ranks{suffix}",
        title=_title(ranks),
        description="One stacked bar per rank on one scale, in ms per step.",
        drawing=StackedBars(bars),
        legend=legend_for(_kinds(ranks)),
        table=_table("rank", [(f"{row.of}", row) for row in ranks]),
        note=note.strip(),
    )


def _four(ranks: list[Parts], culprits: Sequence[int]) -> list[Bar]:
    """The culprit, and the least, middle and most exposed of the other ranks.

    Of a host's ranks it is the one that waits least: for it all others do.
    """
    ordered = sorted(ranks, key=lambda row: (row.exposed_ns, row.of))
    blamed = [row for row in ordered if row.of in culprits][:1]
    others = [row for row in ordered if row not in blamed]
    picked = zip(
        ("best", "median", "worst"), (others[0], others[len(others) // 2], others[-1]), strict=True
    )
    bars = [Bar(f"culprit {row.of}", row.ns, emphasis=True) for row in blamed]
    return bars + [Bar(f"{name} {row.of}", row.ns) for name, row in picked]


def _title(ranks: list[Parts]) -> str:
    """What takes most of the steps beside compute, and how it differs between ranks."""
    waits = sorted((row.ns["wait"], row.of) for row in ranks)
    exposed, idle, copies = _exposed(ranks), _idle(ranks), _copies(ranks)
    if copies.most > max(exposed.most, idle.most, _LITTLE):
        return f"Memory copies take {copies.range()}"
    if max(exposed.most, idle.most) < _LITTLE:
        return "Every rank computes nearly all of its step"
    if idle.most > exposed.most:
        return f"The device idles for {idle.range()}"
    least, most = waits[0], waits[-1]
    if most[0] > 0.5 * max(row.exposed_ns for row in ranks) and least[0] < 0.6 * most[0]:
        return (
            f"Rank {most[1]} waits {about(most[0])} per step for others, "
            f"rank {least[1]} {about(least[0])}"
        )
    return f"Exposed communication takes {exposed.range()}"


class _OfRanks:
    """One kind of time on every rank, ordered by ns as the bars are: ranks' steps differ too."""

    def __init__(self, ranks: Sequence[Parts], ns: Callable[[Parts], float]) -> None:
        self.ns = sorted((ns(row), row.of) for row in ranks)
        self.shares = [ns(row) / row.window_ns for row in ranks]
        self.most = max(self.shares)

    def range(self) -> str:
        """'3 ms (rank 0) to 40 ms (rank 7) per step', or one share where all are alike."""
        if self.most - min(self.shares) < _LITTLE:
            mean = sum(self.shares) / len(self.shares)
            return f"{numbers.share(mean)} of the step on every rank"
        (low, first), (high, last) = self.ns[0], self.ns[-1]
        return f"{about(low)} (rank {first}) to {about(high)} (rank {last}) per step"


def _exposed(ranks: Sequence[Parts]) -> _OfRanks:
    return _OfRanks(ranks, lambda row: row.exposed_ns)


def _idle(ranks: Sequence[Parts]) -> _OfRanks:
    return _OfRanks(
        ranks, lambda row: sum(ns for kind, ns in row.ns.items() if kind.startswith("idle"))
    )


def _copies(ranks: Sequence[Parts]) -> _OfRanks:
    return _OfRanks(ranks, lambda row: row.ns.get("memory", 0.0))


def _steps(store: Store, run: str, suffix: str) -> Figure | None:
    steps = by_step(store.con, run)
    if len(steps) < 2:
        return None
    used = [step for step in steps if step.used] or steps
    worst = max(used, key=lambda step: step.window_ns)
    typical = step_time(store.con, run) or median(step.window_ns for step in used)
    above = (worst.window_ns - typical) / typical if typical else 0.0
    if above < _BAD_STEP:
        counted = numbers.plural(len(used), "used step")
        return Figure(f"each-step{suffix}", f"All {counted} take about {about(typical)}")
    grown = max(KINDS, key=lambda kind: worst.ns.get(kind, 0.0) - _usual(used, kind))
    shown = _fold(steps)
    note = "* not counted: partial, warm-up or far longer than the others." * (
        len(used) < len(steps)
    )
    if len(shown) < len(steps):
        note += f" {len(steps)} steps in {len(shown)} columns: each shows the slowest of its group."
    return Figure(
        id=f"each-step{suffix}",
        title=f"Step {worst.of} took {about(worst.window_ns)}, {numbers.share(above)} "
        f"more than the median {about(typical)}: most of it {KINDS[grown]}",
        description="One stacked column per step, in ms, the mean over ranks.",
        drawing=StepColumns([Bar(_label(step), step.ns, step is worst) for step in shown]),
        table=_table("step", [(_label(step), step) for step in steps]),
        note=note.strip(),
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
        note=f"The {_MOST_ROWS} most exposed of {len(ordered)}." * (len(ordered) > _MOST_ROWS),
    )
