"""Runs beside each other as rows of text: what `advisor compare` prints and the HTML page shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from advisor.findings import Finding
from advisor.messages import COMPARED, MOST_TITLE, say
from advisor.metrics.compare.changes import because, changes
from advisor.metrics.compare.figures import RunFigures, scaling_efficiency
from advisor.metrics.compare.new_findings import NewFinding, new_finding
from advisor.metrics.compare.runs import Comparison
from advisor.metrics.compare.significance import Difference, difference
from advisor.metrics.models.theory import Theory
from advisor.report import comparison_causes as causes
from advisor.report.clean import shorten_middle
from advisor.report.comparison_causes import of_step
from advisor.report.figures import KINDS
from advisor.report.numbers import milliseconds, short
from advisor.report.summary import place, place_beside
from advisor.vocabulary.words import about, lower_first, percent

Lines = list[tuple[str, list[str]]]
_SURE = {True: "yes", False: "no", None: "too few steps"}
_NO_PEAK = "no peak known"
_MOST_ROWS = 5
_MOST_NAME = 24  # of a run, in letters, in a headline that is too long
_SEEN = 0.005  # of the step: a kind of time that no bar shows
_LONG = 1.5  # times the median: as a step that counts as warm-up
_LITTLE = 0.01  # of the step: less has no why where it is not sure
_MUCH = 0.1  # of the mean step


def figures(found: Comparison) -> Lines:
    """(title, one value per run), the base first; indented titles belong to the one above."""
    base, runs, theories = found.base, found.runs, found.theories
    lines: Lines = [
        ("strategy", [row.strategy or "-" for row in runs]),
        ("ranks", [str(row.world_size or row.ranks) for row in runs]),
        ("step ms", [milliseconds(row.step_ns) for row in runs]),
        ("  mean ms", [milliseconds(row.window_ns) for row in runs]),
        ("  MAD ms", [milliseconds(row.step_mad_ns) for row in runs]),
        ("  vs base", ["base", *(signed_share(d.share) for d in found.differences)]),
        ("  95 % low", ["", *(_optional(d.low, signed_share) for d in found.differences)]),
        ("  95 % high", ["", *(_optional(d.high, signed_share) for d in found.differences)]),
        ("  significant", ["", *(_SURE[d.significant] for d in found.differences)]),
        ("training s", [_training(row) for row in runs]),
        ("tokens/s", [_optional(row.tokens_per_second, short) for row in runs]),
        ("speed-up", [f"{short(speed_up(base, row))}x" for row in runs]),
        ("efficiency", [_optional(scaling_efficiency(base, row), percent) for row in runs]),
        ("compute ms", [of_step(row, row.compute_ns) for row in runs]),
        ("compute %", [percent(row.compute_ns / row.window_ns) for row in runs]),
        ("non-compute ms", [of_step(row, row.non_compute_ns) for row in runs]),
        ("idle ms", [of_step(row, row.idle_ns) for row in runs]),
        *causes.idle(runs),
        ("busy (kernel) ms", [of_step(row, row.busy_ns) for row in runs]),
        ("exposed comm ms", [of_step(row, row.exposed_comm_ns) for row in runs]),
        *causes.waiting(runs),
        ("hidden comm ms", [of_step(row, row.hidden_comm_ns) for row in runs]),
        ("overlap %", [_optional(row.overlap, percent) for row in runs]),
        *causes.balance(runs),
        ("peak memory MB", [_optional(row.peak_memory_bytes, short, 1e6) for row in runs]),
        ("  estimate MB", [_memory(known) for known in theories]),
        ("MFU", [_mfu(row, known) for row, known in zip(runs, theories, strict=True)]),
    ]
    for op in sorted({total.op for row in runs for total in row.collectives}):
        totals = [next((t for t in row.collectives if t.op == op), None) for row in runs]
        lines += [
            (title, ["-" if total is None else show(row, total)
                     for row, total in zip(runs, totals, strict=True)])
            for title, show in _of_collective(op)
        ]  # fmt: skip
    return lines


def headline(found: Comparison) -> str:
    """'ddp is 31 % slower than single, because …'; of more runs which one is fastest."""
    if len(found.runs) == 2:
        return _against(found, found.runs[1], found.differences[0])
    ranked = sorted(found.runs, key=lambda row: row.training_step_ns)
    first, alike = ranked[0], None
    for row in ranked[1:]:
        if not difference(first.step_samples_ns, row.step_samples_ns).significant:
            alike = alike or row
    values = {
        "run": first.run,
        "step_ns": first.training_step_ns,
        "ratio": ranked[-1].training_step_ns / first.training_step_ns,
        "last": (alike or ranked[-1]).run,
        "last_ns": (alike or ranked[-1]).training_step_ns,
    }
    return say(COMPARED, "none-fastest" if alike else "fastest", values)


def _against(found: Comparison, row: RunFigures, change: Difference) -> str:
    values: dict[str, Any] = {
        "run": row.run,
        "base": found.base.run,
        "step_ns": found.base.training_step_ns,
        "other_ns": row.training_step_ns,
        "share": abs(change.share),
        "slower": change.share > 0,
        "because": why(found, row, change),
        "steps": " and ".join(map(str, change.steps)),
        "needed": change.steps_needed,
        "mean_ns": _mean(found.base),
        "other_mean_ns": _mean(row),
    }
    code = outcome(found.base, row, change)
    title = say(COMPARED, code, values)
    if len(title) <= MOST_TITLE:
        return title
    names = {name: shorten_middle(values[name], _MOST_NAME) for name in ("run", "base")}
    return say(COMPARED, code, values | names)


def outcome(base: RunFigures, row: RunFigures, change: Difference) -> str:
    """What two runs come to, as a code of the catalogue."""
    if not change.significant and _means_part(base, row):
        return "long-steps"
    return {True: "differs", False: "same", None: "unknown"}[change.significant]


def _mean(row: RunFigures) -> float:
    return sum(row.step_samples_ns) / len(row.step_samples_ns)


def _means_part(base: RunFigures, row: RunFigures) -> bool:
    """Whether a few long steps make what no median shows."""
    longer, shorter = sorted((row, base), key=_mean, reverse=True)
    has_long = max(longer.step_samples_ns) > _LONG * longer.training_step_ns
    return has_long and _mean(longer) > (1 + _MUCH) * _mean(shorter)


def why(found: Comparison, row: RunFigures, change: Difference) -> str:
    """What makes most of the difference; '' where nothing does, or the difference is not sure.

    The cause that only the slower run is diagnosed with, else a kind of time; none where the two
    are not one job.
    """
    if not change.significant or row.run in found.unlike:
        return ""
    return _most(found, row, change)


def cause(found: Comparison, row: RunFigures) -> NewFinding | None:
    """The finding behind most of the difference between ``row`` and the base; None where they are
    not one job, for then the difference has other causes too."""
    if row.run in found.unlike:
        return None
    more_ns = row.training_step_ns - found.base.training_step_ns
    faster, slower = (found.base, row) if more_ns > 0 else (row, found.base)
    return new_finding(found.findings, faster.run, slower.run, abs(more_ns))


def _because(found: Comparison, row: RunFigures, change: Difference) -> str:
    """The same in a row of several, which says too where it is not sure."""
    if change.significant is False:
        return say(COMPARED, "noise", {})
    if not change.significant and abs(change.share) < _LITTLE:
        return say(COMPARED, "few", {})
    most = _most(found, row, change) or say(COMPARED, "spread", {})
    return most if change.significant else f"{most} ({_SURE[None]} to be sure)"


def _most(found: Comparison, row: RunFigures, change: Difference) -> str:
    if (new := cause(found, row)) is not None:
        values = {
            "title": lower_first(new.finding.title),
            "place": _unsaid_place(new.finding),
            "ns": new.more_ns,
            "is_new": new.is_new,
            "is_gone": change.share < 0,
        }
        return say(COMPARED, "cause", values)
    base, other = found.parts.get(found.base.run), found.parts.get(row.run)
    if base is None or other is None:
        return ""
    most = because(changes(base, other), change.share)
    if most is None:
        return ""
    more = "more" if most.ns > 0 else "less"
    values = {"ns": abs(most.ns), "more": more, "rank": row.causes.late_rank}
    return say(COMPARED, most.kind, values)


def _unsaid_place(finding: Finding) -> str:
    """Where the finding is, where its title names no part of that."""
    where = place(finding).partition(", ")[0]
    named = where.lower() in finding.title.lower()
    return where if place_beside(finding, finding.title) and not named else ""


def _signed(written: Callable[[float], str], value: float) -> str:
    """A change with its sign, '+31 ms', '-4.2 %'."""
    return f"{'+' if value >= 0 else '-'}{written(abs(value))}"


def signed_share(share: float) -> str:
    """'+31 %', '-4.2 %'."""
    return _signed(percent, share)


def matters(found: Comparison) -> list[list[str]]:
    """At most five rows: of two runs the step and its kinds of time; of more a row for each run.

    Those of two: kind, change, before, after.
    """
    if len(found.runs) > 2:
        return [
            [
                row.run,
                about(row.training_step_ns),
                "base" if change is None else signed_share(change.share),
                "" if change is None else _because(found, row, change),
            ]
            for row, change in zip(found.runs, [None, *found.differences], strict=True)
        ][:_MOST_ROWS]
    base, other = (found.parts.get(row.run) for row in found.runs)
    if base is None or other is None:
        return []
    before, after = (row.step_ns for row in found.runs)
    least_ns = _SEEN * max(before, after)
    rows: list[tuple[str, float, float]] = [("step ms (median)", before, after)]
    rows += [
        (KINDS[it.kind], it.base_ns, it.other_ns)
        for it in changes(base, other)
        if max(it.base_ns, it.other_ns) >= least_ns
    ]
    return [
        [name, _signed(about, after - before), about(before), about(after)]
        for name, before, after in rows[:_MOST_ROWS]
    ]


def traffic(found: Comparison) -> list[list[str]]:
    """Rows of run, operation, MB measured, MB by theory, verdict, formula, explanation."""
    return [
        [
            row.run,
            item.op,
            _optional(item.measured_bytes, short, 1e6),
            short(item.theory_bytes / 1e6),
            item.verdict,
            " + ".join(item.formulas),
            item.explanation,
        ]
        for row, known in zip(found.runs, found.theories, strict=True)
        for item in (known.ops if known else [])
    ]


def operators(found: Comparison) -> list[list[str]]:
    """Rows of run, change, ms per step more or less, calls before and after, operator."""
    return [
        [
            run,
            row.change,
            _signed(milliseconds, row.ns_other - row.ns_base),
            f"{short(row.calls_base)} -> {short(row.calls_other)}",
            row.name,
        ]
        for run, changes in found.operators.items()
        for row in changes
    ]


def nothing_changed(found: Comparison) -> list[str]:
    """The runs whose operators all have the calls and times of the base."""
    return [run for run, changes in found.operators.items() if not changes]


def speed_up(base: RunFigures, row: RunFigures) -> float:
    """Of throughput, where tokens are known for both, else of step time."""
    if base.tokens_per_second and row.tokens_per_second:
        return row.tokens_per_second / base.tokens_per_second
    return base.training_step_ns / row.training_step_ns


def _training(row: RunFigures) -> str:
    return f"{short(sum(row.step_samples_ns) / 1e9)} ({len(row.step_samples_ns)})"


def _memory(known: Theory | None) -> str:
    return _optional(known.memory_bytes if known else None, short, 1e6)


def _mfu(row: RunFigures, known: Theory | None) -> str:
    if known and known.flops_per_step and not known.peak_flops:
        return _NO_PEAK
    return _optional(known.mfu(row.training_step_ns) if known else None, percent)


def _optional(value: float | None, written: Callable[[float], str], scale: float = 1.0) -> str:
    return "-" if value is None else written(value / scale)


def _of_collective(op: str) -> list[tuple[str, Callable[[RunFigures, Any], str]]]:
    return [
        (f"{op} calls", lambda _, total: short(total.calls_per_step)),
        ("  total ms", lambda row, total: of_step(row, total.total_ns_per_step)),
        ("  average us", lambda _, total: short(total.average_ns / 1e3)),
        ("  MB", lambda _, total: _optional(total.bytes_per_step, short, 1e6)),
        (
            "  exposed ms",
            lambda row, total: _optional(total.exposed_ns_per_step, partial(of_step, row)),
        ),
        ("  hidden %", lambda _, total: _optional(total.hidden, percent)),
    ]
