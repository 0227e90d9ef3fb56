"""What `advisor compare` prints: one column per run, traffic beside theory, operators; or JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from advisor.metrics.compare import Difference, RunFigures, scaling_efficiency
from advisor.metrics.theory import Theory


def table(
    found: list[RunFigures], differences: list[Difference], theories: list[Theory | None]
) -> str:
    """One line per figure, one column per run; the first run is the base."""
    base = found[0]
    lines: list[tuple[str, list[str]]] = [
        ("strategy", [row.strategy or "-" for row in found]),
        ("ranks", [str(row.world_size or row.ranks) for row in found]),
        ("step ms", [f"{row.step_ns / 1e6:.2f}" for row in found]),
        ("  MAD ms", [f"{row.step_mad_ns / 1e6:.2f}" for row in found]),
        ("  vs base", ["base", *(f"{d.share:+.1%}" for d in differences)]),
        ("  95 % low", ["", *(f"{d.low:+.1%}" for d in differences)]),
        ("  95 % high", ["", *(f"{d.high:+.1%}" for d in differences)]),
        ("  significant", ["", *("yes" if d.significant else "no" for d in differences)]),
        ("training s", [_training(row) for row in found]),
        ("tokens/s", [_optional(row.tokens_per_second, "{:,.0f}") for row in found]),
        ("speed-up", [_ratio(base, row) for row in found]),
        ("efficiency", [_optional(scaling_efficiency(base, row), "{:.1%}") for row in found]),
        ("compute ms", [f"{row.compute_ns / 1e6:.2f}" for row in found]),
        ("compute %", [f"{row.compute_ns / row.window_ns:.1%}" for row in found]),
        ("non-compute ms", [f"{row.non_compute_ns / 1e6:.2f}" for row in found]),
        ("busy (kernel) ms", [f"{row.busy_ns / 1e6:.2f}" for row in found]),
        ("idle ms", [f"{row.idle_ns / 1e6:.2f}" for row in found]),
        ("exposed comm ms", [f"{row.exposed_comm_ns / 1e6:.2f}" for row in found]),
        ("overlap %", [_optional(row.overlap, "{:.1%}") for row in found]),
        ("peak memory MB", [_optional(row.peak_memory_bytes, "{:,.0f}", 1e6) for row in found]),
        (
            "  estimate MB",
            [_memory(known) for known in theories],
        ),
        ("MFU", [_mfu(row, t) for row, t in zip(found, theories, strict=True)]),
    ]
    ops = sorted({total.op for row in found for total in row.collectives})
    for op in ops:
        totals = [next((t for t in row.collectives if t.op == op), None) for row in found]
        lines += [(title, [_total(t, show) for t in totals]) for title, show in _columns(op)]
    names = [row.run for row in found]
    width = max(14, *(len(name) + 2 for name in names))
    head = f"{'per step':18s}" + "".join(f"{name:>{width}s}" for name in names)
    body = [f"{title:18s}" + "".join(f"{v:>{width}s}" for v in values) for title, values in lines]
    sources = {row.samples_from for row in found}
    notes = [
        f"step times: {'; '.join(sorted(sources))}; training s is their sum (and number)",
        "times and collectives: mean over ranks and complete steps, with the profiler on",
    ]
    if any(row.on_host for row in found):
        notes.append(
            "peak memory on a CPU is the process with Python and its libraries; the estimate is"
            " the model's state and activations alone"
        )
    return "\n".join([head, *body, "", *notes, ""])


def traffic(found: list[RunFigures], theories: list[Theory | None]) -> str:
    """Bytes sent per rank and step beside METRICS section 7; empty where no run has a theory."""
    lines = []
    for row, known in zip(found, theories, strict=True):
        for item in known.ops if known else []:
            measured = _optional(item.measured_bytes, "{:.3f}", 1e6)
            formula = " + ".join(item.formulas)
            lines.append(
                f"  {row.run:16s} {item.op:15s} {measured:>10s} {item.theory_bytes / 1e6:>10.3f}"
                f"  {item.verdict:13s} {formula}"
            )
            if item.explanation:
                lines.append(f"  {'':54s} {item.explanation}")
    if not lines:
        return ""
    head = f"  {'run':16s} {'op':15s} {'measured':>10s} {'theory':>10s}"
    return "\n".join(["\nMB that each rank sends per step, against theory", head, *lines, ""])


def operators(changes: dict[str, Any]) -> str:
    """Operators that a run added, removed or changed against the base."""
    parts = []
    for run, rows in changes.items():
        parts.append(f"\noperators, {run} against the base (per step and rank)")
        for row in rows:
            delta = (row.ns_other - row.ns_base) / 1e6
            calls = f"{row.calls_base:g} -> {row.calls_other:g}"
            parts.append(f"  {row.change:8s} {delta:+9.3f} ms  calls {calls:14s} {row.name[:60]}")
    return "\n".join(parts)


def document(
    found: list[RunFigures],
    differences: list[Difference],
    changes: dict[str, Any],
    theories: list[Theory | None],
) -> dict[str, Any]:
    """The same figures for programs: times in ns, sizes in bytes."""
    return {
        "schema_version": 1,
        "base": found[0].run,
        "runs": [
            {
                **asdict(row),
                "overlap": row.overlap,
                "busy_ns": row.busy_ns,
                "non_compute_ns": row.non_compute_ns,
                "tokens_per_second": row.tokens_per_second,
                "training_ns": sum(row.step_samples_ns),
                "speed_up": _speed_up(found[0], row),
                "scaling_efficiency": scaling_efficiency(found[0], row),
                "theory": _theory_document(row, theories[index]),
                "difference": None
                if index == 0
                else {
                    **asdict(differences[index - 1]),
                    "significant": differences[index - 1].significant,
                },
            }
            for index, row in enumerate(found)
        ],
        "operators": {run: [asdict(row) for row in rows] for run, rows in changes.items()},
    }


def _theory_document(row: RunFigures, known: Theory | None) -> dict[str, Any] | None:
    if known is None:
        return None
    return {
        "memory_bytes": known.memory_bytes,
        "flops_per_step": known.flops_per_step,
        "peak_flops": known.peak_flops,
        "peak_source": known.peak_source,
        "mfu": known.mfu(row.step_ns),
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


def _training(row: RunFigures) -> str:
    return f"{sum(row.step_samples_ns) / 1e9:.2f} ({len(row.step_samples_ns)})"


def _memory(known: Theory | None) -> str:
    return _optional(known.memory_bytes if known else None, "{:,.0f}", 1e6)


def _mfu(row: RunFigures, known: Theory | None) -> str:
    return _optional(known.mfu(row.step_ns) if known else None, "{:.1%}")


def _speed_up(base: RunFigures, row: RunFigures) -> float:
    if base.tokens_per_second and row.tokens_per_second:
        return row.tokens_per_second / base.tokens_per_second
    return base.step_ns / row.step_ns


def _ratio(base: RunFigures, row: RunFigures) -> str:
    return f"{_speed_up(base, row):.2f}x"


def _optional(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(value / scale)


def _total(total: Any, form: Callable[[Any], str]) -> str:
    return "-" if total is None else form(total)


def _columns(op: str) -> list[tuple[str, Callable[[Any], str]]]:
    return [
        (f"{op} calls", lambda total: f"{total.calls_per_step:g}"),
        ("  total ms", lambda total: f"{total.total_ns_per_step / 1e6:.2f}"),
        ("  average us", lambda total: f"{total.average_ns / 1e3:.0f}"),
        ("  MB", lambda total: _optional(total.bytes_per_step, "{:.2f}", 1e6)),
    ]
