"""The outcome of a sweep: one recommendation, or "leave it", with ready files.

Only a configuration that won in fresh interleaved pairs is called ``measured`` and recommended.
"""

import json
import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from advisor import __version__
from advisor.config.atomic_files import write_atomic
from advisor.config.sweep import Configuration
from advisor.tune.frontier import frontier
from advisor.tune.job import variables_of
from advisor.tune.points import key_of
from advisor.tune.surrogate import Surrogate, fit
from advisor.tune.sweep import Sweep
from advisor.tune.verdict import confidence, leave_it, log_of, measured, not_reached, won

# Another order of the same sums moves a loss in float32 by less; bf16 gradients move it by more.
_ROUNDING = 1e-5
# Runs of the same settings that differ by more than this have no fixed seed.
_SEEDED = 0.01
_TIMES_OWN_SPREAD = 3.0


class Confirmation(BaseModel, extra="forbid"):
    """A candidate's gain in the search and in the fresh pairs; shares as in Recommendation."""

    changes: Configuration
    search_gain_share: float | None  # None where it was confirmed without a search
    predicted_gain_share: float | None = None  # by a replay of the present settings' trace
    gain_share: float
    gain_low: float
    gain_high: float
    pairs: int
    confirmed: bool


class Recommendation(BaseModel, extra="forbid"):
    """recommendation.json. Shares are of the step: 0.05 = 5 % faster than the present setting."""

    schema_version: int = 1
    advisor_version: str = __version__
    outcome: str  # programs act on it; the words are advisor.messages.TUNED
    verdict: str  # at most 140 characters
    why: str = ""
    also: list[str] = []  # what else was faster in the search
    recommended: bool
    changes: Configuration
    confidence: str
    gain_share: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    baseline_step_ns: int | None = None
    resolution_share: float | None = None  # of a single trial
    confirmed_resolution_share: float | None = None  # of the mean over the confirmation's pairs
    predicted_gain_share: float | None = None
    how_to_set: list[str] = []  # what to write in the script, where no file of ours says it
    care: list[str] = []  # of what is assumed, what may change the training
    assumes: list[str]
    trials: dict[str, int]
    resumed_at: list[int] = []  # the first trial of every sitting but the first
    grid_points: int
    tried_points: int
    not_tried: list[str]
    confirmations: list[Confirmation] = []
    surrogate: dict[str, Any] | None = None
    frontier: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []


def recommend(sweep: Sweep, left_out: list[str]) -> Recommendation:
    """Read the sweep's results into a recommendation."""
    tried = sweep.tried()
    winner = sweep.winner()
    baselines = [result.median_ns for result in sweep.baselines]
    step = statistics.median(baselines) if baselines else None
    floor = sweep.resolution
    surrogate = fit(tried, sweep.start)
    common: dict[str, Any] = {
        "baseline_step_ns": None if step is None else round(step),
        "resolution_share": sweep.resolution_of(1),
        "confirmed_resolution_share": floor,
        "trials": Counter(result.status for result in sweep.results),
        "resumed_at": [
            after.number
            for before, after in pairwise(sweep.results)
            if after.sitting != before.sitting
        ],
        "grid_points": len(sweep.points),
        "tried_points": len(tried) + 1,
        "not_tried": [*not_reached(sweep), *_not_run(sweep), *left_out],
        "confirmations": [
            Confirmation(
                changes=sweep.changes(candidate.configuration),
                search_gain_share=None if candidate.ratio is None else 1 - candidate.ratio,
                predicted_gain_share=predicted_gain(sweep, candidate.configuration),
                gain_share=gain.share,
                gain_low=gain.low,
                gain_high=gain.high,
                pairs=gain.pairs,
                confirmed=sweep.is_real(gain),
            )
            for candidate, gain in sweep.confirmations()
        ],
        "surrogate": None if surrogate is None else _as_dict(surrogate),
        "frontier": frontier(sweep),
        "failures": [
            {
                "trial": result.number,
                "reason": (result.message.splitlines() or [""])[0],
                "log": log_of(result),
            }
            for result in sweep.results
            if not result.is_timed
        ],
        "assumes": sweep.job.assumptions(),
    }
    if winner is not None:
        configuration, gain = winner
        changes = sweep.changes(configuration)
        changed = numbers_changed(sweep, configuration)
        common["care"] = [
            f"{axis.setting} also changes numerics or memory: compare the loss before keeping it"
            for axis in sweep.axes
            if axis.changes_training and axis.setting in changes
        ] + ([changed] if changed else [])
        common["assumes"] += common["care"]
        came_to = won(sweep, changes, gain)
        common |= {
            "predicted_gain_share": predicted_gain(sweep, configuration),
            "how_to_set": sweep.job.how_to_set(changes),
            "gain_share": gain.share,
            "gain_low": gain.low,
            "gain_high": gain.high,
        }
    else:
        changes = {}
        came_to = leave_it(sweep, step, floor)
    return Recommendation(
        outcome=came_to.code,
        verdict=came_to.title,
        why=came_to.why,
        also=came_to.also,
        recommended=winner is not None,
        changes=changes,
        confidence=confidence(sweep, floor) if winner is None else measured(sweep),
        **common,
    )


def predicted_gain(sweep: Sweep, configuration: Configuration) -> float | None:
    """Share of the step that a replay gives back for what changes; None where it covers none."""
    known = sweep.predictions
    if known is None or all(configuration[name] == sweep.start[name] for name in known.settings):
        return None
    ratio = known.of(configuration)
    return None if ratio is None else 1 - ratio


def start_line(folder: Path) -> str:
    """The command that runs the recommended job of the sweep in ``folder``, to be pasted."""
    return shlex.join(["sh", str(folder / "run.sh")])


def write_files(sweep: Sweep, recommendation: Recommendation, folder: Path) -> list[Path]:
    """recommendation.json, and with a winner env.sh and what runs the job with it."""
    text = recommendation.model_dump_json(indent=1)
    written = [write_atomic(folder / "recommendation.json", f"{text}\n")]
    if not recommendation.recommended:
        return written
    note = f"# advisor tune: {recommendation.verdict}\n"
    lines = [
        f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
        for name, value in variables_of(recommendation.changes).items()
    ]
    body = "\n".join(lines) if lines else "# no environment variable changes"
    written.append(write_atomic(folder / "env.sh", f"{note}{body}\n"))
    return [*written, *sweep.job.write(recommendation.changes, folder, note)]


def trial_rows(sweep: Sweep) -> list[dict[str, Any]]:
    """Rows for the store's table ``trial``."""
    return [
        {
            "run": sweep.job.name,
            "trial": result.number,
            "settings": json.dumps(sweep.changes(result.configuration)),
            "is_baseline": result.is_baseline,
            "outcome": result.status,
            "origin": measured(sweep),
            "steps": len(result.step_ns),
            "step_ns_median": round(result.median_ns) if result.is_timed else None,
            "step_ns_mad": round(result.mad_ns) if result.is_timed else None,
            "log": log_of(result),
        }
        for result in sweep.results
    ]


def _not_run(sweep: Sweep) -> list[str]:
    points = sweep.points
    return [
        *([f"{', '.join(sweep.fixed)}: this job has one value only"] if sweep.fixed else []),
        *sweep.refused,
        *(
            [f"{points.refused:,} combinations that this job refuses (other global batch, "
             "too few ranks, settings that exclude each other)"] if points.refused else []
        ),
        *([f"{points.same:,} combinations that come to the same job as another"] if points.same
          else []),
    ]  # fmt: skip


def _as_dict(surrogate: Surrogate) -> dict[str, Any]:
    pairs = [{"left": a, "right": b, "share": share} for a, b, share in surrogate.interactions]
    return asdict(surrogate) | {"interactions": pairs}


def numbers_changed(sweep: Sweep, configuration: Configuration) -> str:
    """What the losses say of ``configuration``, a sentence; '' where they agree or none is known.

    Steps are compared one by one, as far as all runs got.
    """
    before = [r.losses for r in sweep.baselines if r.losses]
    key = key_of(configuration)
    after = [r.losses for r in sweep.results if key_of(r.configuration) == key and r.losses]
    if len(before) < 2 or not after:
        return ""
    own = max(_difference(a, b) for a, b in combinations(before, 2))
    if own > _SEEDED:
        return (
            f"losses cannot be compared: runs of the present settings differ by {own:.1%} "
            "themselves; fix the script's seed to see whether the numbers change"
        )
    found = max(_difference(a, b) for a in after for b in before)
    if found <= max(_TIMES_OWN_SPREAD * own, _ROUNDING):
        return ""
    steps = min(map(len, [*before, *after]))
    return (
        f"it changes the numbers: losses of the first {steps} steps differ by up to {found:.2g} "
        f"of their value (runs of the present settings: {own:.2g}); compare a longer training "
        "before keeping it"
    )


def _difference(left: Sequence[float], right: Sequence[float]) -> float:
    pairs = zip(left, right, strict=False)
    return max((abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs), default=0.0)
