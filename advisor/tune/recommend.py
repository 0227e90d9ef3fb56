"""The outcome of a sweep: one recommendation, or "leave it", with ready files.

Only a configuration that won in fresh interleaved pairs is called ``measured`` and recommended.
"""

from __future__ import annotations

import json
import shlex
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from advisor import __version__
from advisor.config.sweep import ENVIRONMENT_PREFIX, Configuration
from advisor.config.workload import Workload
from advisor.tune.atomic_files import write_atomic
from advisor.tune.budget import CONFIRMATION_ROUNDS
from advisor.tune.frontier import frontier
from advisor.tune.patched import patched_text
from advisor.tune.surrogate import Surrogate, fit
from advisor.tune.sweep import Sweep
from advisor.tune.verdict import confidence, describe, leave_it, log_of, measured, not_reached

_EMULATED = (
    "compute: emulated: layers wait for as long as the workload says instead of computing; only "
    "communication and what hides it are real, so that the gain holds of no real job's step"
)


class Confirmation(BaseModel):
    """A candidate's gain in the search and in the fresh pairs; shares as in Recommendation."""

    model_config = ConfigDict(extra="forbid")

    changes: Configuration
    search_gain_share: float
    gain_share: float
    gain_low: float
    gain_high: float
    pairs: int
    confirmed: bool


class Recommendation(BaseModel):
    """recommendation.json. Shares are of the step: 0.05 = 5 % faster than the present setting."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    advisor_version: str = __version__
    verdict: str
    recommended: bool
    changes: Configuration
    confidence: str
    gain_share: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    baseline_step_ns: int | None = None
    resolution_share: float | None = None  # of a single trial
    confirmed_resolution_share: float | None = None  # of the mean over the confirmation's pairs
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
    counts: dict[str, int] = {}
    for result in sweep.results:
        counts[result.status] = counts.get(result.status, 0) + 1
    tried = sweep.tried()
    winner = sweep.winner()
    baselines = [r for r in sweep.results if r.is_baseline and r.status == "ok"]
    step = statistics.median(r.median_ns for r in baselines) if baselines else None
    floor = sweep.resolution
    surrogate = fit(tried, sweep.start)
    common: dict[str, Any] = {
        "baseline_step_ns": None if step is None else round(step),
        "resolution_share": sweep.resolution_of(1),
        "confirmed_resolution_share": floor,
        "trials": counts,
        "resumed_at": [
            after.number
            for before, after in pairwise(sweep.results)
            if after.sitting != before.sitting
        ],
        "grid_points": len(sweep.points),
        "tried_points": len(tried) + 1,
        "not_tried": [
            *not_reached(sweep),
            *_not_run(sweep),
            *left_out,
        ],
        "confirmations": [
            Confirmation(
                changes=_changes(sweep, candidate.configuration),
                search_gain_share=1 - (candidate.ratio or 1.0),
                gain_share=gain.share,
                gain_low=gain.low,
                gain_high=gain.high,
                pairs=gain.pairs,
                confirmed=sweep.is_real(gain),
            )
            for candidate, gain in sweep.confirmations()
        ],
        "surrogate": None if surrogate is None else _as_dict(surrogate),
        "frontier": frontier(
            sweep, lambda point: describe(_changes(sweep, point)) or "present settings"
        ),
        "failures": [
            {
                "trial": result.number,
                "reason": (result.message.splitlines() or [""])[0],
                "log": log_of(result),
            }
            for result in sweep.results
            if not result.is_timed
        ],
        "assumes": [
            f"{sweep.workload.world_size} ranks on this machine, {sweep.workload.name}, "
            f"strategy {sweep.workload.strategy}",
            "the same torch, backend and links; check again after changing one of them",
            *([_EMULATED] if sweep.workload.compute == "emulated" else []),
        ],
    }
    if winner is not None:
        configuration, gain = winner
        changes = _changes(sweep, configuration)
        common["assumes"] += [
            f"{axis.setting} also changes numerics or memory: compare the loss before keeping it"
            for axis in sweep.axes
            if axis.changes_training and axis.setting in changes
        ]
        return Recommendation(
            verdict=f"set {describe(changes)}: the {_step(sweep)} is {gain.share:.1%} shorter "
            f"({gain.low:.1%} to {gain.high:.1%}, {CONFIRMATION_ROUNDS} fresh A/B pairs)",
            recommended=True,
            changes=changes,
            confidence=measured(sweep),
            gain_share=gain.share,
            gain_low=gain.low,
            gain_high=gain.high,
            **common,
        )
    return Recommendation(
        verdict=leave_it(sweep, step, floor),
        recommended=False,
        changes={},
        confidence=confidence(sweep, floor),
        **common,
    )


def _step(sweep: Sweep) -> str:
    return "emulated step" if sweep.workload.compute == "emulated" else "step"


def start_line(folder: Path) -> str:
    """The command that runs the recommended job of the sweep in ``folder``, to be pasted."""
    return shlex.join(["sh", str(folder / "run.sh")])


def write_files(
    sweep: Sweep, recommendation: Recommendation, folder: Path, *, source: Path | None = None
) -> list[Path]:
    """recommendation.json, and with a winner env.sh, workload.yaml, run.sh and torchrun.sh.

    ``source`` is the workload's own file, whose comments are kept.
    """
    text = recommendation.model_dump_json(indent=1)
    written = [write_atomic(folder / "recommendation.json", f"{text}\n")]
    if not recommendation.recommended:
        return written
    changes = recommendation.changes
    variables = {
        name.removeprefix(ENVIRONMENT_PREFIX): value
        for name, value in changes.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }
    settings = {k: v for k, v in changes.items() if not k.startswith(ENVIRONMENT_PREFIX)}
    note = f"# advisor tune: {recommendation.verdict}\n"
    lines = [
        f"unset {name}" if value is None else f"export {name}={shlex.quote(str(value))}"
        for name, value in variables.items()
    ]
    body = "\n".join(lines) if lines else "# no environment variable changes"
    written.append(write_atomic(folder / "env.sh", f"{note}{body}\n"))
    patched = sweep.workload.with_settings(settings).without("timed_steps")
    if sweep.timed_steps is not None:
        patched = patched.with_settings({"timed_steps": sweep.timed_steps})
    text = patched_text(patched, source)
    written.append(write_atomic(folder / "workload.yaml", note + text))
    script = f"#!/bin/sh\n{note}set -eu\n. {shlex.quote(str((folder / 'env.sh').resolve()))}\n"
    recommended = shlex.quote(str((folder / "recommended").resolve()))
    job = shlex.quote(str((folder / "workload.yaml").resolve()))
    started = {
        "run.sh": f'advisor profile {job} -o {recommended} "$@"',
        "torchrun.sh": _torchrun(patched, folder / "recommended-torchrun"),
    }
    for name, line in started.items():
        written.append(write_atomic(folder / name, f"{script}exec {line}\n", mode=0o755))
    return written


def _torchrun(workload: Workload, folder: Path) -> str:
    """The torchrun line that runs ``workload`` into ``folder``, which is prepared for it."""
    from advisor.profile import commands, launch

    (folder / "logs").mkdir(parents=True, exist_ok=True)
    launch.write_job(workload, folder)
    (line,) = commands.torchrun(workload, folder, nodes=1, endpoint="")
    return line


def trial_rows(sweep: Sweep) -> list[tuple[Any, ...]]:
    """Rows for the store's table ``trial``."""
    rows = []
    for result in sweep.results:
        good = result.is_timed
        rows.append(
            (
                sweep.workload.name,
                result.number,
                json.dumps(_changes(sweep, result.configuration)),
                result.is_baseline,
                result.status,
                measured(sweep),
                len(result.step_ns),
                round(result.median_ns) if good else None,
                round(result.mad_ns) if good else None,
                log_of(result),
            )
        )
    return rows


def _changes(sweep: Sweep, configuration: Configuration) -> Configuration:
    return {k: v for k, v in configuration.items() if v != sweep.start[k]}


def _not_run(sweep: Sweep) -> list[str]:
    points = sweep.points
    return [
        *([f"{', '.join(sweep.fixed)}: this job has one value only"] if sweep.fixed else []),
        *sweep.refused,
        *(
            [f"{points.refused} combinations that this job refuses (other global batch, "
             "too few ranks, settings that exclude each other)"] if points.refused else []
        ),
        *([f"{points.same} combinations that come to the same job as another"] if points.same
          else []),
    ]  # fmt: skip


def _as_dict(surrogate: Surrogate) -> dict[str, Any]:
    return {
        "effects": [vars(effect) for effect in surrogate.effects],
        "interactions": [
            {"left": a, "right": b, "share": share} for a, b, share in surrogate.interactions
        ],
        "out_of_sample_error": surrogate.out_of_sample_error,
        "trials": surrogate.trials,
    }
