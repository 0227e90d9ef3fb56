"""How big is it really? Arithmetic and speeds, traffic against theory, memory against estimate."""

from __future__ import annotations

from advisor.metrics.models.speeds import Speeds
from advisor.metrics.models.theory import OpTheory, Theory, theory
from advisor.model.operator_flops import NO_SHAPES, NO_STRIDES
from advisor.model.plan_roofline import regime
from advisor.report import numbers
from advisor.report.figures import DataTable, Figure
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import rows
from advisor.store.store import Store

_SHAPES = "Record with torch.profiler.profile(record_shapes=True)."
_STRIDES = (
    "Record with torch 2.1 or later and record_shapes=True: it notes strides and padding too."
)
_OPERATORS = (
    "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] and record_shapes=True. "
    "Compute in compiled or hand-written kernels is not counted."
)
_NAME = (
    "Keep deviceProperties, which torch's profiler writes at the head of a GPU trace: they name "
    "the device."
)
_WITH_TORCH = (
    "An nsys export does not hold the operators' shapes: record a few steps with torch.profiler "
    "as well (torchrun ... -m advisor.record train.py)."
)
_TABLE = (
    "The peak must stand in advisor/model/hardware/devices.yaml, with its source; until then the "
    "run's own speed is the limit."
)
_REAL = (
    "Record with `advisor profile` on the real device (DDP or ZeRO-1): it notes the model's size "
    "and the tokens per step, which a trace does not hold."
)


def build(
    store: Store, run: str, counted: Speeds | None, *, several: bool = False
) -> Section | None:
    """The section of one run; None when nothing was measured that has a size."""
    suffix, name, title = of_run("size", "Sizes and speeds", run, several)
    expected = theory(store.con, run)
    found = (
        None if counted is None or counted.emulated else _arithmetic(counted, suffix),
        _traffic(expected, suffix),
        _memory(store, run, expected, suffix),
    )
    figures = [figure for figure in found if figure is not None]
    return Section(name, "Sizes", title, figures, figures[0].title) if figures else None


def missing(counted: Speeds) -> list[tuple[str, str]]:
    """(how to get it, what is missing) to hold the arithmetic against the device's peak."""
    work = counted.work
    if counted.emulated:
        return [(_REAL, "compute was emulated")]
    found = []
    if work.left_out[NO_SHAPES]:
        calls = numbers.plural(work.left_out[NO_SHAPES], "matrix product or convolution",
                               "matrix products, convolutions and attention calls")  # fmt: skip
        found.append((_SHAPES, f"shapes of {calls}"))
    if work.left_out[NO_STRIDES]:
        found.append(
            (_STRIDES, f"strides of {numbers.plural(work.left_out[NO_STRIDES], 'convolution')}")
        )
    if not work.flops and not work.left_out:
        found.append((_OPERATORS, "no matrix product, convolution or attention call is recorded"))
    if work.flops and counted.peak is None and counted.device != "CPU":
        if counted.device is None:
            found.append((_NAME, "name of the device, and so its peak"))
        else:
            found.append((_TABLE, f"peak of '{counted.device}' for {', '.join(work.by_dtype)}"))
    return [(_WITH_TORCH, what) for _, what in found] if counted.only_nsys else found


def _arithmetic(counted: Speeds, suffix: str) -> Figure | None:
    work, peak, achieved = counted.work, counted.peak, counted.achieved_flops
    if not work.flops or not achieved or not counted.own_flops:
        return None
    per = "the recording" if counted.whole else "step"
    title = f"{numbers.scaled(work.flops, 'FLOP')} per rank and {per}, {_flops(achieved)}"
    if peak:
        title += f": {numbers.share(achieved / peak.flops)} of the device's peak"
    shown = [["achieved", _flops(achieved), f"work / time of {per}"],
             ["compute speed", _flops(counted.own_flops), "work / compute time"]]  # fmt: skip
    if peak:
        shown.append(["peak", _flops(peak.flops), f"{counted.device}: {peak.source}"])
    for dtype in work.by_dtype:
        if (speed := work.speed(dtype)) is not None:
            part = (
                f", {numbers.share(speed / peak.by_dtype[dtype])} of "
                f"{_flops(peak.by_dtype[dtype])}" if peak else ""
            )  # fmt: skip
            shown.append([f"{dtype} while these ran", _flops(speed) + part, "work / own time"])
    if counted.link_gbps:
        ratio = work.flops / counted.sent_bytes
        own = regime(ratio, counted.own_flops / (counted.link_gbps * 1e9))
        shown += [
            ["sent per rank and step", numbers.traffic(counted.sent_bytes), "measured"],
            ["bandwidth", numbers.bandwidth(counted.link_gbps), "sent / transfer time"],
            ["work per byte sent", numbers.scaled(ratio, "FLOP/B"), f"{own} at its own speeds"],
        ]
        if peak:
            best = regime(ratio, peak.flops / (counted.link_gbps * 1e9))
            shown.append(["  were compute at its peak", best, "roofline"])
    shown.append([f"work per rank and {per}", numbers.scaled(work.flops, "FLOP"), "shapes"])
    least, most = min(work.by_rank.values()), max(work.by_rank.values())
    if most > 1.01 * least:
        uneven = f"{numbers.scaled(least, 'FLOP')} to {numbers.scaled(most, 'FLOP')}"
        shown.append(["  by rank", uneven, "shapes"])
    shown += [
        [f"  {name}", numbers.scaled(amount, "FLOP"), "shapes"]
        for name, amount in work.by_operator.most_common(6)
    ]
    note = "Counted: matrix products, convolutions and attention, recomputation included."
    if work.left_out:
        calls = ", ".join(f"{count:,} {why}" for why, count in work.left_out.most_common())
        note += f" Calls left out, so the work is more than this: {calls}."
    return Figure(f"arithmetic{suffix}", title, table=DataTable(["what", "value", "from"], shown),
                  note=note)  # fmt: skip


def _flops(value: float) -> str:
    return numbers.scaled(value, "FLOP/s")


def _traffic(known: Theory | None, suffix: str) -> Figure | None:
    found = [item for item in (known.ops if known else []) if item.measured_bytes is not None]
    if not found:
        return None
    total = sum(item.measured_bytes or 0.0 for item in found)
    return Figure(
        id=f"traffic{suffix}",
        title=f"Each rank sends {numbers.traffic(total)} per step, {_agreement(found, total)}",
        table=DataTable(
            ["operation", "measured", "theory", "verdict", "formula", "difference"],
            [
                [
                    item.op,
                    numbers.traffic(item.measured_bytes),
                    numbers.traffic(item.theory_bytes),
                    item.verdict,
                    " + ".join(item.formulas) or "none",
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
    """One line: the fullest rank; the table where ranks differ."""
    found = rows(
        store,
        "SELECT rank, peak_memory_bytes AS peak, total_memory_bytes AS total, timeline FROM rank"
        " WHERE run = ? AND peak_memory_bytes > 0 ORDER BY peak DESC, rank",
        [run],
    )
    if not found:
        return None
    highest = found[0]
    title = f"Rank {highest['rank']} peaks highest: {numbers.traffic(highest['peak'])}"
    if highest["total"]:
        title += f", {numbers.share(highest['peak'] / highest['total'])} of its device"
    notes = []
    if any(row["timeline"] == "host" for row in found):
        notes.append("On CPU the peak is the whole process, with Python and libraries.")
    if known is not None and known.memory_bytes is not None:
        notes.append(
            "Parameters, gradients, optimizer state and activations take "
            f"{numbers.traffic(known.memory_bytes)} on the fullest rank by estimate."
        )
    table = DataTable(
        ["rank", "peak", "device has"],
        [[row["rank"], numbers.traffic(row["peak"]), numbers.traffic(row["total"])]
         for row in found[:128]],
    )  # fmt: skip
    return Figure(
        f"memory{suffix}", title, table=table if len(found) > 1 else None, note=" ".join(notes)
    )
