"""Runs beside each other as rows of text: what `advisor compare` prints and the HTML page shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from advisor.messages import COMPARED, say
from advisor.metrics.compare.changes import because, changes
from advisor.metrics.compare.figures import UNPROFILED, RunFigures, scaling_efficiency
from advisor.metrics.compare.runs import Comparison
from advisor.metrics.compare.significance import Difference, difference
from advisor.metrics.models.theory import Theory
from advisor.report import comparison_causes as causes
from advisor.report.figures import KINDS
from advisor.vocabulary.words import about, percent

Lines = list[tuple[str, list[str]]]
_SURE = {True: "yes", False: "no", None: "too few steps"}
_NO_PEAK = "no peak known"
_MOST_ROWS = 5
_LONG = 1.5  # times the median: as a step that counts as warm-up
_MUCH = 0.1  # of the mean step


def figures(found: Comparison) -> Lines:
    """(title, one value per run), the base first; indented titles belong to the one above."""
    base, runs, theories = found.base, found.runs, found.theories
    lines: Lines = [
        ("strategy", [row.strategy or "-" for row in runs]),
        ("ranks", [str(row.world_size or row.ranks) for row in runs]),
        ("step ms", [f"{row.step_ns / 1e6:.2f}" for row in runs]),
        ("  MAD ms", [f"{row.step_mad_ns / 1e6:.2f}" for row in runs]),
        *_unprofiled(runs),
        ("  vs base", ["base", *(f"{d.share:+.1%}" for d in found.differences)]),
        ("  95 % low", ["", *(_optional(d.low, "{:+.1%}") for d in found.differences)]),
        ("  95 % high", ["", *(_optional(d.high, "{:+.1%}") for d in found.differences)]),
        ("  significant", ["", *(_SURE[d.significant] for d in found.differences)]),
        ("training s", [_training(row) for row in runs]),
        ("tokens/s", [_optional(row.tokens_per_second, "{:,.0f}") for row in runs]),
        ("speed-up", [f"{speed_up(base, row):.2f}x" for row in runs]),
        ("efficiency", [_optional(scaling_efficiency(base, row), "{:.1%}") for row in runs]),
        ("window ms", [f"{row.window_ns / 1e6:.2f}" for row in runs]),
        ("compute ms", [f"{row.compute_ns / 1e6:.2f}" for row in runs]),
        ("compute %", [f"{row.compute_ns / row.window_ns:.1%}" for row in runs]),
        ("non-compute ms", [f"{row.non_compute_ns / 1e6:.2f}" for row in runs]),
        ("busy (kernel) ms", [f"{row.busy_ns / 1e6:.2f}" for row in runs]),
        ("idle ms", [f"{row.idle_ns / 1e6:.2f}" for row in runs]),
        *causes.idle(runs),
        ("exposed comm ms", [f"{row.exposed_comm_ns / 1e6:.2f}" for row in runs]),
        *causes.waiting(runs),
        ("hidden comm ms", [f"{row.hidden_comm_ns / 1e6:.2f}" for row in runs]),
        ("overlap %", [_optional(row.overlap, "{:.1%}") for row in runs]),
        *causes.balance(runs),
        ("peak memory MB", [_optional(row.peak_memory_bytes, "{:,.0f}", 1e6) for row in runs]),
        ("  estimate MB", [_memory(known) for known in theories]),
        ("MFU", [_mfu(row, known) for row, known in zip(runs, theories, strict=True)]),
    ]
    for op in sorted({total.op for row in runs for total in row.collectives}):
        totals = [next((t for t in row.collectives if t.op == op), None) for row in runs]
        lines += [
            (title, ["-" if total is None else show(total) for total in totals])
            for title, show in _of_collective(op)
        ]
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
    values = {
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
    return say(COMPARED, outcome(found.base, row, change), values)


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
    """The kind of time that makes most of the difference; '' where none does, or none is sure."""
    base, other = found.parts.get(found.base.run), found.parts.get(row.run)
    if base is None or other is None or not change.significant:
        return ""
    most = because(changes(base, other), change.share)
    if most is None:
        return ""
    more = "more" if most.ns > 0 else "less"
    values = {"ns": abs(most.ns), "more": more, "rank": row.causes.late_rank}
    return say(COMPARED, most.kind, values)


def _signed(written: Callable[[float], str], value: float) -> str:
    """A change with its sign, '+31 ms', '-4.2 %'."""
    return f"{'+' if value >= 0 else '-'}{written(abs(value))}"


def matters(found: Comparison) -> list[list[str]]:
    """At most five rows: of two runs kind, change, before, after; of more a row for each run."""
    if len(found.runs) > 2:
        return [
            [
                row.run,
                about(row.training_step_ns),
                "base" if change is None else _signed(percent, change.share),
                "" if change is None else why(found, row, change),
            ]
            for row, change in zip(found.runs, [None, *found.differences], strict=True)
        ][:_MOST_ROWS]
    base, other = (found.parts.get(row.run) for row in found.runs)
    if base is None or other is None:
        return []
    return [
        [
            KINDS[change.kind],
            _signed(about, change.ns),
            about(change.base_ns),
            about(change.other_ns),
        ]
        for change in changes(base, other)[:_MOST_ROWS]
    ]


def notes(found: Comparison) -> list[str]:
    """Where the figures come from, one sentence each."""
    sources = "; ".join(sorted({row.samples_from for row in found.runs}))
    said = [
        "step ms: median of the traced, used steps, as in every command",
        f"vs base, tokens/s and MFU are of {sources}; training s is their sum (and number)",
        "times and collectives: mean over ranks and used steps, with the profiler on; of calls "
        "that overlap, total ms counts each, exposed ms shares what they have in common",
        "window ms: the whole recorded step, compute + non-compute + idle; compute % is of it "
        "(studies that count idle as kernel time print this)",
    ]
    said += [
        f"{row.run}: {too_few(change)}"
        for row, change in zip(found.runs[1:], found.differences, strict=True)
        if change.significant is None
    ]
    said += [
        f"{row.run}: every step takes exactly what it takes in {found.base.run}: nothing changed, "
        "or it is the same recording"
        for row in found.runs[1:]
        if list(row.step_samples_ns) == list(found.base.step_samples_ns)
    ]
    if any(d.significant is not None and d.autocorrelation is None for d in found.differences):
        said.append(
            "with fewer than 8 steps in both runs it cannot be seen whether neighbouring steps are "
            "alike: they count as independent, and noise shows as a difference more often"
        )
    said.append("the interval is of these steps: other runs of the same job may differ by more")
    if any(known and known.flops_per_step and not known.peak_flops for known in found.theories):
        said.append(
            "MFU: the peak of this device is not known; give it in TFLOP/s with --peak-tflops"
        )
    if None in found.theories:
        said.append("MFU, estimate and theory need a recording of `advisor profile`")
    if any(row.on_host for row in found.runs):
        said.append(
            "peak memory on a CPU is the process with Python and its libraries; the estimate is"
            " the model's state and activations alone"
        )
    return said


def too_few(change: Difference) -> str:
    """Why a difference has no interval, and what would give it one."""
    left, right = change.steps
    alike = ""
    if change.autocorrelation:
        alike = f", whose neighbours are alike (autocorrelation {change.autocorrelation:.2f}),"
    return (
        f"{left} and {right} steps{alike} are too few to tell a difference from noise: at least "
        f"{change.steps_needed} in each run"
    )


def traffic(found: Comparison) -> list[list[str]]:
    """Rows of run, operation, MB measured, MB by theory, verdict, formula, explanation."""
    return [
        [
            row.run,
            item.op,
            _optional(item.measured_bytes, "{:.3f}", 1e6),
            f"{item.theory_bytes / 1e6:.3f}",
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
            f"{(row.ns_other - row.ns_base) / 1e6:+.3f}",
            f"{row.calls_base:g} -> {row.calls_other:g}",
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


def _unprofiled(runs: Sequence[RunFigures]) -> Lines:
    """The step without the profiler, where it was timed."""
    if any(row.samples_from != UNPROFILED for row in runs):
        return []
    return [("  unprofiled ms", [f"{row.training_step_ns / 1e6:.2f}" for row in runs])]


def _training(row: RunFigures) -> str:
    return f"{sum(row.step_samples_ns) / 1e9:.2f} ({len(row.step_samples_ns)})"


def _memory(known: Theory | None) -> str:
    return _optional(known.memory_bytes if known else None, "{:,.0f}", 1e6)


def _mfu(row: RunFigures, known: Theory | None) -> str:
    if known and known.flops_per_step and not known.peak_flops:
        return _NO_PEAK
    return _optional(known.mfu(row.training_step_ns) if known else None, "{:.1%}")


def _optional(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(value / scale)


def _of_collective(op: str) -> list[tuple[str, Callable[[Any], str]]]:
    return [
        (f"{op} calls", lambda total: f"{total.calls_per_step:g}"),
        ("  total ms", lambda total: f"{total.total_ns_per_step / 1e6:.2f}"),
        ("  average us", lambda total: f"{total.average_ns / 1e3:.0f}"),
        ("  MB", lambda total: _optional(total.bytes_per_step, "{:.2f}", 1e6)),
        ("  exposed ms", lambda total: _optional(total.exposed_ns_per_step, "{:.2f}", 1e6)),
        ("  hidden %", lambda total: _optional(total.hidden, "{:.1%}")),
    ]
