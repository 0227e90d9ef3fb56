"""How big is it really? Roofline, traffic against theory, memory against the estimate.

FLOPs and theory need what only `advisor profile` records (workload, parameters by bucket); other
traces show what was measured alone, and the section says so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from advisor.model.plan_roofline import regime
from advisor.model.plan_traffic import ddp_bytes
from advisor.model.transformer import ADAM_BYTES, state_bytes
from advisor.report import numbers
from advisor.report.charts.roofline import Level, flops, roofline
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.sections.section import Section, slug
from advisor.report.tables import Row, rows
from advisor.store.store import Store

_ZERO_STAGES = {"ddp": 0, "zero1": 1}


@dataclass(frozen=True)
class Recorded:
    """What `advisor profile` wrote about the run: the strategy, and the model it trained."""

    strategy: str
    parameters: int
    gradient_bytes: int
    tokens: int
    precision: str
    world_size: int
    emulated: bool


def build(store: Store, run: str, *, several: bool = False) -> Section | None:
    """The section of one run; None when nothing was measured that has a size."""
    suffix = f"-{slug(run)}" if several else ""
    known = recorded(store, run)
    figures = [
        figure
        for figure in (
            _roofline(store, run, known, suffix),
            _traffic(store, run, known, suffix),
            _memory(store, run, known, suffix),
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
    """The run's recording if it is our own data-parallel one; None for everything else."""
    found = rows(
        store,
        "SELECT r.strategy, r.compute, r.workload, k.metadata FROM run r JOIN rank k USING (run)"
        " WHERE run = ? ORDER BY k.rank LIMIT 1",
        [run],
    )
    if not found or found[0]["strategy"] not in _ZERO_STAGES:
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
        precision = str(workload["precision"])
        world_size = int(workload["world_size"])
    except (KeyError, TypeError, ValueError):
        return None
    width = {"fp32": 4, "mixed": 4, "bf16": 2}.get(precision)
    if not gradient_bytes or width is None:
        return None
    return Recorded(
        found[0]["strategy"],
        gradient_bytes // width,
        gradient_bytes,
        tokens,
        precision,
        world_size,
        found[0]["compute"] == "emulated",
    )


def _roofline(store: Store, run: str, known: Recorded | None, suffix: str) -> Figure | None:
    if known is None or known.emulated:
        return None
    measured = rows(
        store,
        "SELECT median(window_ns) AS step, median(compute_ns) AS compute FROM step_breakdown"
        " WHERE run = ? AND complete",
        [run],
    )[0]
    sent = rows(
        store,
        "SELECT sum(wire_bytes_per_step) AS bytes, sum(transfer_ns_per_step) AS ns FROM traffic"
        " WHERE run = ?",
        [run],
    )[0]
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


def _traffic(store: Store, run: str, known: Recorded | None, suffix: str) -> Figure | None:
    if known is None or known.world_size < 2:
        return None
    found = rows(
        store,
        "SELECT sum(wire_bytes_per_step) AS bytes FROM traffic WHERE run = ?",
        [run],
    )
    measured = found[0]["bytes"] if found else None
    if not measured:
        return None
    theory = ddp_bytes(known.gradient_bytes, known.world_size)
    ratio = float(measured) / theory
    return Figure(
        id=f"traffic{suffix}",
        title=f"Each rank sends {numbers.traffic(measured)} per step, "
        + (
            "as theory says"
            if abs(ratio - 1) < 0.02
            else f"{numbers.significant(ratio)} times what theory says"
        ),
        description="Bytes that a rank sends per step, measured and by theory.",
        scenes=[],
        table=DataTable(
            ["", "per rank and step"],
            [
                ["measured, sizes times bus factor", numbers.traffic(measured)],
                [f"{known.strategy}: 2(n−1)/n times the gradients", numbers.traffic(theory)],
                ["gradients", numbers.traffic(known.gradient_bytes)],
            ],
        ),
    )


def _memory(store: Store, run: str, known: Recorded | None, suffix: str) -> Figure | None:
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
    state = None
    if known is not None and known.precision in ADAM_BYTES:
        state = _state(known)
        note += (
            f" Parameters, gradients and Adam's state take {numbers.traffic(state)} per rank by "
            "estimate; the rest is activations and the runtime."
        )
    return Figure(
        id=f"memory{suffix}",
        title=title,
        description="Peak memory of every rank.",
        scenes=[],
        table=DataTable(
            ["rank", "peak", "device has", "estimated state"],
            [
                [
                    row["rank"],
                    numbers.traffic(row["peak"]),
                    numbers.traffic(row["total"]),
                    numbers.traffic(state),
                ]
                for row in found[:128]
            ],
        ),
        note=note.strip(),
    )


def _state(known: Recorded) -> float:
    kept: Any = state_bytes(
        known.parameters,
        _ZERO_STAGES[known.strategy],
        known.world_size,
        precision=known.precision,  # type: ignore[arg-type]
    )
    return float(kept.parameters + kept.gradients + kept.optimizer)


def _document(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
