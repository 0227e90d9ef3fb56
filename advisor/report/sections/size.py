"""How big is it really? Roofline, traffic against theory, memory against the estimate.

Theory needs what only `advisor profile` records (workload, parameters by bucket). Other traces
show what was measured alone, and FLOPs counted from recorded shapes (sections/roofline.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from advisor.metrics.models.theory import OpTheory, Theory, theory
from advisor.model.plan_roofline import regime
from advisor.report import numbers
from advisor.report.charts.roofline import Level, flops, roofline
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.sections import roofline as counted_roofline
from advisor.report.sections.section import Section, slug
from advisor.report.tables import Row, rows, step_times, traffic
from advisor.store.store import Store

_REPLICATED = ("ddp", "zero1")
_FP32 = 4  # bytes of a gradient's element, under autocast as well


@dataclass(frozen=True)
class Recorded:
    """What `advisor profile` wrote about the model that the run trained, per rank."""

    parameters: int
    tokens: int
    emulated: bool


def build(
    store: Store,
    run: str,
    *,
    several: bool = False,
    counts: counted_roofline.Counts | None = None,
) -> Section | None:
    """The section of one run; None when nothing was measured that has a size.

    ``counts`` keeps the run's arithmetic for other sections.
    """
    suffix = f"-{slug(run)}" if several else ""
    expected = theory(store.con, run)
    figures = [
        figure
        for figure in (
            _roofline(store, run, roofline_input(store, run), suffix)
            or counted_roofline.figure(counts or counted_roofline.Counts(store), run, suffix),
            _traffic(expected, suffix),
            _memory(store, run, expected, suffix),
        )
        if figure is not None
    ]
    if not figures:
        return None
    return Section(
        id=f"size{suffix}",
        title="How big is it really?" + (f" ({run})" if several else ""),
        template="figures.html.j2",
        data={"figures": figures},
    )


def recorded(store: Store, run: str) -> Recorded | None:
    """The run's recording if it is our own of replicas; None for everything else."""
    found = rows(
        store,
        "SELECT r.strategy, r.compute, r.workload, k.metadata FROM run r JOIN rank k USING (run)"
        " WHERE run = ? ORDER BY k.rank LIMIT 1",
        [run],
    )
    if not found or found[0]["strategy"] not in _REPLICATED:
        return None
    workload, metadata = _document(found[0]["workload"]), _document(found[0]["metadata"])
    buckets = _document(metadata.get("advisor")).get("buckets")
    try:
        gradient_bytes = sum(int(bucket["bytes"]) for bucket in buckets or [])
        tokens = (
            int(workload["micro_batch"])
            * int(workload["sequence_length"])
            * int(workload["gradient_accumulation"])
        )
    except (KeyError, TypeError, ValueError):
        return None
    if not gradient_bytes:
        return None
    return Recorded(gradient_bytes // _FP32, tokens, found[0]["compute"] == "emulated")


def roofline_input(store: Store, run: str) -> Recorded | None:
    """What the roofline needs beside times and traffic; None where compute was not real either."""
    known = recorded(store, run)
    return None if known is None or known.emulated else known


def _roofline(store: Store, run: str, known: Recorded | None, suffix: str) -> Figure | None:
    if known is None:
        return None
    measured = step_times(store, run)
    sent = traffic(store, run)
    if not measured["step"] or not measured["compute"] or not sent["bytes"] or not sent["ns"]:
        return None
    work = 6.0 * known.parameters * known.tokens
    ratio = work / float(sent["bytes"])
    rate = work / (float(measured["compute"]) * 1e-9)
    achieved = work / (float(measured["step"]) * 1e-9)
    # Bytes per ns are GB/s.
    link = float(sent["bytes"]) / float(sent["ns"])
    ridge = rate / (link * 1e9)
    return Figure(
        id=f"roofline{suffix}",
        title=f"{numbers.scaled(ratio, 'FLOP')} per byte sent: {regime(ratio, ridge)} at this "
        f"run's own speeds (ridge {numbers.scaled(ridge, 'FLOP/B')})",
        description="Communication roofline, both axes logarithmic: FLOP per byte sent against "
        "FLOP/s, with the run's compute speed and its bandwidth as limits.",
        scenes=[
            roofline(ratio, achieved, rate, Level("measured", link), roof=f"compute {flops(rate)}")
        ],
        table=DataTable(
            ["what", "value", "from"],
            [
                ["work per rank and step", numbers.scaled(work, "FLOP"), "6 · parameters · tokens"],
                ["parameters", numbers.count(known.parameters), "recorded buckets"],
                ["tokens per rank and step", numbers.count(known.tokens), "recorded workload"],
                ["sent per rank and step", numbers.traffic(sent["bytes"]), "measured"],
                ["compute speed", flops(rate), "work / compute time"],
                ["bandwidth", numbers.bandwidth(link), "sent / transfer time"],
                ["achieved", flops(achieved), "work / step time"],
            ],
        ),
        note="Limits are what this run reached, not what the hardware could: left of the ridge "
        "communication takes longer than compute even if all of it overlaps.",
    )


def _traffic(known: Theory | None, suffix: str) -> Figure | None:
    found = [item for item in (known.ops if known else []) if item.measured_bytes is not None]
    if not found:
        return None
    total = sum(item.measured_bytes or 0.0 for item in found)
    return Figure(
        id=f"traffic{suffix}",
        title=f"Each rank sends {numbers.traffic(total)} per step, {_agreement(found, total)}",
        description="Bytes that a rank sends per step, measured and by theory.",
        scenes=[],
        table=DataTable(
            ["operation", "measured", "theory", "formula", "verdict", "difference"],
            [
                [
                    item.op,
                    numbers.traffic(item.measured_bytes),
                    numbers.traffic(item.theory_bytes),
                    " + ".join(item.formulas) or "none",
                    item.verdict,
                    item.explanation or "none",
                ]
                for item in found
            ],
        ),
        note="Measured: message sizes times bus factor, mean over ranks and used steps.",
    )


def _agreement(found: list[OpTheory], total: float) -> str:
    verdicts = {item.verdict for item in found}
    if verdicts <= {"equal"}:
        return "as theory says"
    if verdicts <= {"equal", "explained"}:
        return "which theory and what torch does otherwise explain"
    if "differs" not in verdicts:
        return "in part not to be predicted"
    expected = sum(item.expected_bytes for item in found)
    return (
        f"{numbers.significant(total / expected)} times what theory says"
        if expected
        else "where theory says none"
    )


def _memory(store: Store, run: str, known: Theory | None, suffix: str) -> Figure | None:
    found: list[Row] = rows(
        store,
        "SELECT rank, peak_memory_bytes AS peak, total_memory_bytes AS total, timeline FROM rank"
        " WHERE run = ? AND peak_memory_bytes > 0 ORDER BY rank",
        [run],
    )
    if not found:
        return None
    highest = max(found, key=lambda row: row["peak"])
    title = f"Rank {highest['rank']} peaks highest: {numbers.traffic(highest['peak'])}"
    if highest["total"]:
        title += f", {numbers.share(highest['peak'] / highest['total'])} of its device"
    note = ""
    if any(row["timeline"] == "host" for row in found):
        note = "On CPU the peak is the whole process, with Python and libraries."
    estimate = known.memory_bytes if known is not None else None
    if estimate is not None:
        note += (
            f" Parameters, gradients, optimizer state and activations take "
            f"{numbers.traffic(estimate)} on the fullest rank by estimate."
        )
    return Figure(
        id=f"memory{suffix}",
        title=title,
        description="Peak memory of every rank.",
        scenes=[],
        table=DataTable(
            ["rank", "peak", "device has", "estimate of the fullest"],
            [
                [
                    row["rank"],
                    numbers.traffic(row["peak"]),
                    numbers.traffic(row["total"]),
                    numbers.traffic(estimate),
                ]
                for row in found[:128]
            ],
        ),
        note=note.strip(),
    )


def _document(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
