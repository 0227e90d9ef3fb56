"""The roofline of any trace with shapes: counted FLOPs, the device's peak, and bytes sent.

Where something is missing, the figure and the list of missing evidence say what, and how to get it.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.metrics.models.roofline import Arithmetic, Peak, arithmetic, device_peak
from advisor.metrics.models.roofline_shapes import NO_SHAPES, NO_STRIDES
from advisor.model.plan_roofline import regime
from advisor.report import numbers
from advisor.report.charts.roofline import Level, flops, roofline
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.tables import rows, step_times, traffic
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


@dataclass(frozen=True)
class Counted:
    """A run's arithmetic with the times and traffic beside it."""

    work: Arithmetic
    device: str | None
    peak: Peak | None
    step_ns: float
    compute_ns: float
    sent_bytes: float
    sent_ns: float
    whole: bool
    apart: bool

    @property
    def link_gbps(self) -> float | None:
        """Bytes per ns are GB/s; None where waiting cannot be told from transfer."""
        return self.sent_bytes / self.sent_ns if self.apart and self.sent_ns else None

    @property
    def own_flops(self) -> float:
        """FLOP/s over the compute time."""
        return self.work.flops / (self.compute_ns * 1e-9)


class Counts:
    """Each run's arithmetic, counted when first asked for: two sections of a report need it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[str, Counted] = {}

    def of(self, run: str) -> Counted:
        """The run's, counted once."""
        if run not in self._known:
            self._known[run] = _counted(self.store, run)
        return self._known[run]


def figure(counts: Counts, run: str, suffix: str) -> Figure | None:
    """The picture, or what it lacks; None without a known operator, or with emulated compute."""
    if _is_emulated(counts.store, run):
        return None
    counted = counts.of(run)
    if not counted.work.flops:
        return _lacking(missing(counts, run), counted, suffix) if counted.work.left_out else None
    if not counted.step_ns or not counted.compute_ns:
        return None
    return _drawn(counted, suffix)


def missing(counts: Counts, run: str) -> list[tuple[str, str]]:
    """(how to get it, what is missing) for a roofline against the device's peak."""
    if _is_emulated(counts.store, run):
        return [
            (
                "Record with `advisor profile` on the real device (DDP or ZeRO-1): it notes the "
                "model's size and the tokens per step, which a trace does not hold.",
                "compute was emulated",
            )
        ]
    found = _missing(counts.of(run))
    if _only_nsys(counts.store, run):
        return [(_WITH_TORCH, what) for _, what in found]
    return found


def _missing(counted: Counted) -> list[tuple[str, str]]:
    work = counted.work
    found = []
    if work.left_out[NO_SHAPES]:
        calls = numbers.plural(work.left_out[NO_SHAPES], "matrix product or convolution",
                               "matrix products, convolutions and attention calls")  # fmt: skip
        found.append((_SHAPES, f"shapes of {calls}"))
    if work.left_out[NO_STRIDES]:
        calls = numbers.plural(work.left_out[NO_STRIDES], "convolution")
        found.append((_STRIDES, f"strides of {calls}"))
    if not work.flops and not work.left_out:
        found.append((_OPERATORS, "no matrix product, convolution or attention call is recorded"))
    if work.flops and counted.peak is None and counted.device != "CPU":
        if counted.device is None:
            found.append((_NAME, "name of the device, and so its peak"))
        else:
            kinds = ", ".join(work.by_dtype)
            found.append((_TABLE, f"peak of '{counted.device}' for {kinds}"))
    return found


def _only_nsys(store: Store, run: str) -> bool:
    found = rows(store, "SELECT DISTINCT format FROM source WHERE run = ?", [run])
    return "nsys" in (formats := {row["format"] for row in found}) and "kineto" not in formats


def _is_emulated(store: Store, run: str) -> bool:
    found = rows(store, "SELECT compute FROM run WHERE run = ?", [run])
    return bool(found) and found[0]["compute"] == "emulated"


def _counted(store: Store, run: str) -> Counted:
    work = arithmetic(store.con, run)
    measured = step_times(store, run)
    whole = not measured["step"]
    if whole:
        measured = rows(
            store,
            "SELECT median(window_ns) AS step, median(compute_ns) AS compute FROM run_breakdown"
            " WHERE run = ?",
            [run],
        )[0]
    sent = traffic(store, run)
    # Times of a call of which a rank was not read hold waiting as well.
    bounds = rows(
        store,
        "SELECT count(*) FILTER (t_is IS DISTINCT FROM 'matched') AS bounds FROM collective"
        " WHERE run = ? AND step IS NOT NULL AND bytes > 0",
        [run],
    )[0]["bounds"]
    names = rows(store, "SELECT DISTINCT device_name AS name FROM rank WHERE run = ?", [run])
    device = names[0]["name"] if len(names) == 1 else None
    return Counted(
        work=work,
        device=device or None,
        peak=device_peak(device, work),
        step_ns=float(measured["step"] or 0),
        compute_ns=float(measured["compute"] or 0),
        sent_bytes=0.0 if whole else float(sent["bytes"] or 0),
        sent_ns=0.0 if whole else float(sent["ns"] or 0),
        whole=whole,
        apart=not bounds,
    )


def _lacking(lacks: list[tuple[str, str]], counted: Counted, suffix: str) -> Figure:
    found = lacks or [("", ", ".join(counted.work.left_out))]
    return Figure(
        id=f"no-roofline{suffix}",
        title="No roofline: how much arithmetic a step does cannot be counted",
        description="",
        scenes=[],
        table=DataTable(["missing", "how to record it"], [[what, how] for how, what in found]),
    )


def _drawn(counted: Counted, suffix: str) -> Figure:
    work, peak = counted.work, counted.peak
    total = work.flops
    achieved = total / (counted.step_ns * 1e-9)
    roof = peak.flops if peak else counted.own_flops
    per = "the recording" if counted.whole else "step"
    title = f"{numbers.scaled(total, 'FLOP')} per rank and {per}, {flops(achieved)}"
    if peak:
        title += f": {numbers.share(achieved / peak.flops)} of the device's peak"
    scenes = []
    if counted.link_gbps:
        name = f"peak {flops(roof)}" if peak else f"compute {flops(roof)}"
        ratio = total / counted.sent_bytes
        level = Level("measured", counted.link_gbps)
        scenes = [roofline(ratio, achieved, roof, level, roof=name)]
    return Figure(
        id=f"roofline{suffix}",
        title=title,
        description="Communication roofline, both axes logarithmic: FLOP per byte sent against "
        "FLOP/s, with the device's peak (or the run's own compute speed) and the measured "
        "bandwidth as limits.",
        scenes=scenes,
        table=DataTable(["what", "value", "from"], _table(counted, achieved, per)),
        note=_note(counted),
    )


def _table(counted: Counted, achieved: float, per: str) -> list[list[str]]:
    work, peak = counted.work, counted.peak
    shown = [[f"work per rank and {per}", numbers.scaled(work.flops, "FLOP"), "recorded shapes"]]
    least, most = min(work.by_rank.values()), max(work.by_rank.values())
    if most > 1.01 * least:
        uneven = f"{numbers.scaled(least, 'FLOP')} to {numbers.scaled(most, 'FLOP')}"
        shown.append(["  by rank", uneven, "recorded shapes"])
    for name, amount in work.by_operator.most_common(6):
        shown.append([f"  {name}", numbers.scaled(amount, "FLOP"), "recorded shapes"])
    shown.append(["achieved", flops(achieved), f"work / time of {per}"])
    shown.append(["compute speed", flops(counted.own_flops), "work / compute time"])
    for dtype in work.by_dtype:
        speed = work.speed(dtype)
        if speed is not None:
            words = flops(speed)
            if peak:
                part = numbers.share(speed / peak.by_dtype[dtype])
                words += f", {part} of {flops(peak.by_dtype[dtype])}"
            shown.append([f"{dtype} while these ran", words, "work / their own time"])
    if peak:
        shown.append(["peak", flops(peak.flops), f"{counted.device}: {peak.source}"])
    if counted.sent_bytes:
        shown.append(["sent per rank and step", numbers.traffic(counted.sent_bytes), "measured"])
        ratio = numbers.scaled(work.flops / counted.sent_bytes, "FLOP/B")
        shown.append(["work per byte sent", ratio, "work / sent"])
    if counted.link_gbps:
        link = numbers.bandwidth(counted.link_gbps)
        shown.append(["bandwidth", link, "sent / transfer time"])
    return shown


def _note(counted: Counted) -> str:
    work = counted.work
    parts = [
        "Counted: matrix products, convolutions and attention as they ran, recomputation included; "
        "custom and compiled kernels are not."
    ]
    if counted.link_gbps:
        ratio = work.flops / counted.sent_bytes
        own = regime(ratio, counted.own_flops / (counted.link_gbps * 1e9))
        parts.append(f"At this run's own compute speed and bandwidth it is {own}")
        if counted.peak:
            best = regime(ratio, counted.peak.flops / (counted.link_gbps * 1e9))
            parts[-1] += f"; were compute at its peak, {best}"
        parts[-1] += (
            ". That compares the time of the work with the time of the bytes, waits left out and "
            "as if all of both overlapped: what is exposed, the time split says."
        )
    elif counted.sent_bytes:
        parts.append(
            "No bandwidth is drawn: without the traces of all ranks waiting cannot be told from "
            "transfer."
        )
    if work.left_out:
        calls = ", ".join(f"{count:,} {why}" for why, count in work.left_out.most_common())
        parts.append(f"Calls left out, so the work is more than this: {calls}.")
    if counted.peak is None:
        name = f"'{counted.device}'" if counted.device else "an unnamed device"
        parts.append(f"No peak is known of {name}: the limit is the run's own compute speed.")
    elif "fp32" in counted.peak.by_dtype:
        parts.append("fp32 stands against the fp32 peak unless it ran faster than that (TF32).")
    return " ".join(parts)
