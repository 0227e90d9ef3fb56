"""Where the figures of a comparison come from, and what they cannot show: a sentence each."""

from __future__ import annotations

from advisor.messages import COMPARED, COMPARED_NOTES, say
from advisor.metrics.compare.runs import Comparison
from advisor.metrics.compare.significance import Difference


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
    few = any(d.significant is not None and d.autocorrelation is None for d in found.differences)
    no_peak = any(it and it.flops_per_step and not it.peak_flops for it in found.theories)
    return [
        *(say(COMPARED_NOTES, code, {}) for code in ("step", "kinds", "others", "overlapping")),
        *(
            f"{row.run}: {too_few(change)}"
            for row, change in zip(found.runs[1:], found.differences, strict=True)
            if change.significant is None
        ),
        *(
            say(COMPARED_NOTES, "same-steps", {"run": row.run, "base": found.base.run})
            for row in found.runs[1:]
            if row.step_samples_ns == found.base.step_samples_ns
        ),
        *(
            say(COMPARED_NOTES, code, {})
            for code, holds in (
                ("unprofiled", any(row.unprofiled_samples_ns for row in found.runs)),
                ("few-steps", few),
                ("other-runs", True),
                ("no-peak", no_peak),
                ("no-theory", None in found.theories),
                ("on-host", any(row.on_host for row in found.runs)),
            )
            if holds
        ),
    ]


def too_few(change: Difference) -> str:
    """Why a difference has no interval, and what would give it one."""
    return say(COMPARED_NOTES, "too-few", vars(change))
