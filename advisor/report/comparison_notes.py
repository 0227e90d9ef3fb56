"""Where the figures of a comparison come from, and what they cannot show: a sentence each."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.messages import COMPARED, say
from advisor.metrics.compare.figures import UNPROFILED, RunFigures
from advisor.metrics.compare.runs import Comparison
from advisor.metrics.compare.significance import Difference
from advisor.report.numbers import short
from advisor.vocabulary.words import about


def warning(found: Comparison) -> str:
    """What makes runs another job than the base, which is to be read first; '' of one job."""
    if not found.unlike:
        return ""
    several = len(found.runs) > 2
    runs = [(run if several else "", _unlike(found, run)) for run in found.unlike]
    return say(COMPARED, "unlike", {"runs": runs})


def _unlike(found: Comparison, run: str) -> str:
    parts = found.unlike[run]
    return " and ".join(
        say(COMPARED, f"unlike-{it.code}", {"base": it.base, "other": it.other}) for it in parts
    )


def notes(found: Comparison) -> list[str]:
    """Where the figures come from, one sentence each."""
    said = [
        "step ms: median of the used steps, as in every command",
        f"vs base, tokens/s, MFU: of {_sources(found.runs)}; training s: their sum (and number)",
        "kinds of time: their shares of the mean step, of the median one; the profiler is on",
        "other times and calls: mean over ranks and used steps, with the profiler on",
        "of calls that overlap, total ms counts each; exposed ms shares what they have in common",
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
        said.append("with fewer than 8 steps in both runs, noise shows as a difference more often")
    said.append("other runs of the same job may differ by more than this interval")
    if any(known and known.flops_per_step and not known.peak_flops for known in found.theories):
        said.append(
            "MFU: the peak of this device is not known; give it in TFLOP/s with --peak-tflops"
        )
    if None in found.theories:
        said.append("MFU, estimate and theory need a recording of `advisor profile`")
    if any(row.on_host for row in found.runs):
        said.append("peak memory on a CPU includes Python and its libraries; the estimate does not")
    return said


def too_few(change: Difference) -> str:
    """Why a difference has no interval, and what would give it one."""
    left, right = change.steps
    alike = ""
    if change.autocorrelation:
        alike = f", whose neighbours are alike (autocorrelation {short(change.autocorrelation)}),"
    return (
        f"{left} and {right} steps{alike} are too few to tell a difference from noise: at least "
        f"{change.steps_needed} in each run"
    )


def _sources(runs: Sequence[RunFigures]) -> str:
    """Which steps were timed, and how long they take where that is not ``step ms``."""
    sources = "; ".join(sorted({row.samples_from for row in runs}))
    if any(row.samples_from != UNPROFILED for row in runs):
        return sources
    return f"{sources} ({', '.join(about(row.training_step_ns) for row in runs)})"
