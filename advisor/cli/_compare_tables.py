"""What `advisor compare` prints: one column per run, traffic beside theory, operators; or JSON."""

from dataclasses import asdict
from typing import Any

from click import style

from advisor.messages import COMPARED, say
from advisor.metrics.compare.figures import RunFigures, scaling_efficiency
from advisor.metrics.compare.runs import Comparison
from advisor.metrics.models.theory import Theory
from advisor.report import comparison as rows
from advisor.report import comparison_figures
from advisor.report.comparison import notes, warning


def text(found: Comparison, *, whole: bool, color: bool = False) -> str:
    """The headline and what matters; then all of it, where it is ``whole`` or nothing matters."""
    matters = _matters(found)
    headline = rows.headline(found)
    if color:  # words say it too
        (change, *more) = found.differences
        alone = bool(change.significant) and not more
        headline = style(headline, fg=("red" if change.share > 0 else "green") if alone else None,
                         bold=True)  # fmt: skip
    first = "\n".join(filter(None, (warning(found), headline))) + f"\n\n{matters}"
    if matters and not whole:
        return f"{first}{say(COMPARED, 'more', {})}"
    return first + _figures(found) + _traffic(found) + _operators(found)


def _matters(found: Comparison) -> str:
    matters = rows.matters(found)
    widths = [max(map(len, column)) for column in zip(*matters, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in matters
    ]
    return "".join(f"{line}\n" for line in [*lines, ""]) if lines else ""


def _figures(found: Comparison) -> str:
    """One line per figure, one column per run; the first run is the base."""
    lines = comparison_figures.figures(found)
    names = [row.run for row in found.runs]
    title_width = max(18, *(len(title) + 2 for title, _ in lines))
    width = max(14, *(len(name) + 2 for name in names))
    head = " " * title_width + "".join(f"{name:>{width}s}" for name in names)
    body = [
        f"{title:{title_width}s}" + "".join(f"{value:>{width}s}" for value in values)
        for title, values in lines
    ]
    return "\n".join([f"per step{head[8:]}", *body, "", *notes(found), ""])


def _traffic(found: Comparison) -> str:
    """Bytes sent per rank and step beside METRICS section 7; empty where no run has a theory."""
    lines = []
    for run, op, measured, theory, verdict, formula, why in comparison_figures.traffic(found):
        lines.append(
            f"  {run:16s} {op:15s} {measured:>10s} {theory:>10s}  {verdict:13s} {formula}".rstrip()
        )
        lines += [f"  {'':54s} {part}" for part in why.split("; ") if part]
    if not lines:
        return ""
    head = f"  {'run':16s} {'op':15s} {'measured':>10s} {'theory':>10s}"
    return "\n".join(["\nMB that each rank sends per step, against theory", head, *lines, ""])


def _operators(found: Comparison) -> str:
    """Operators that a run added, removed or changed against the base."""
    parts = []
    shown = ""
    for run, change, delta, calls, name in comparison_figures.operators(found):
        if run != shown:
            parts.append(f"\noperators, {run} against {found.base.run} (per step and rank)")
            shown = run
        parts.append(f"  {change:8s} {delta:>9s} ms  calls {calls:14s} {name[:60]}")
    parts += [
        f"\noperators, {run} against {found.base.run}: none changed in calls or time"
        for run in comparison_figures.nothing_changed(found)
    ]
    return "\n".join(parts)


def document(found: Comparison) -> dict[str, Any]:
    """The same figures for programs: times in ns, sizes in bytes."""
    differences = [None, *found.differences]
    return {
        "schema_version": 1,
        "base": found.base.run,
        "runs": [
            {
                **asdict(row),
                "overlap": row.overlap,
                "unprofiled_step_ns": row.unprofiled_step_ns,
                "busy_ns": row.busy_ns,
                "non_compute_ns": row.non_compute_ns,
                "tokens_per_second": row.tokens_per_second,
                "speed_up": comparison_figures.speed_up(found.base, row),
                "scaling_efficiency": scaling_efficiency(found.base, row),
                "theory": _theory(row, known),
                "difference": None
                if change is None
                else {**asdict(change), "significant": change.significant},
                "unlike": [asdict(part) for part in found.unlike.get(row.run, [])],
                "cause": None if change is None else _cause(found, row),
            }
            for row, known, change in zip(found.runs, found.theories, differences, strict=True)
        ],
        "operators": {run: [asdict(row) for row in rows] for run, rows in found.operators.items()},
    }


def _cause(found: Comparison, row: RunFigures) -> dict[str, Any] | None:
    """The finding behind most of the difference, by its run and id."""
    new = rows.cause(found, row)
    if new is None:
        return None
    return {
        "run": new.finding.run,
        "finding": new.finding.id,
        "rule": new.finding.rule,
        "ranks": new.finding.ranks,
        "more_ns": round(new.more_ns),
        "is_new": new.is_new,
    }


def _theory(row: RunFigures, known: Theory | None) -> dict[str, Any] | None:
    if known is None:
        return None
    return {
        "memory_bytes": known.memory_bytes,
        "flops_per_step": known.flops_per_step,
        "peak_flops": known.peak_flops,
        "peak_source": known.peak_source,
        "mfu": known.mfu(row.step_ns),
        "mfu_missing": None
        if known.peak_flops or not known.flops_per_step
        else "peak not known for this device; --peak-tflops gives it",
        "traffic": [
            {
                "op": item.op,
                "formulas": item.formulas,
                "theory_bytes": round(item.theory_bytes),
                "measured_bytes": None
                if item.measured_bytes is None
                else round(item.measured_bytes),
                "verdict": item.verdict,
                "explanation": item.explanation,
            }
            for item in known.ops
        ],
    }
