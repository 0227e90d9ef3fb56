"""What a sweep that recommends nothing says, and the words that all its results share."""

from __future__ import annotations

from collections import Counter
from math import ceil
from pathlib import Path

from advisor.config.sweep import ENVIRONMENT_PREFIX, Configuration
from advisor.ingest.trial_end import ENDED
from advisor.tune.budget import CONFIRMATION_ROUNDS, LEAST_TRIALS, trials_of
from advisor.tune.search import Tried
from advisor.tune.sweep import Sweep
from advisor.tune.trial import TrialResult
from advisor.vocabulary.words import percent

_KINDS = {"oom": "out of memory"}
_BLUNT = 0.2
"""A resolution (share of the step) above which "no measurable gain" says next to nothing."""


def describe(changes: Configuration) -> str:
    """``bucket_cap_mb=5, NCCL_ALGO=allreduce:ring`` for people."""
    return ", ".join(
        f"{name.removeprefix(ENVIRONMENT_PREFIX)}={'unset' if value is None else value}"
        for name, value in changes.items()
    )


def faster(ratio: float) -> str:
    """A step relative to the present one, in words."""
    return f"{percent(abs(1 - ratio))} {'faster' if ratio <= 1 else 'slower'}"


def log_of(result: TrialResult) -> str:
    """Where a trial's logs are, in the sweep's folder."""
    return f"trials/{result.folder}/logs"


def not_reached(sweep: Sweep) -> list[str]:
    """How many combinations of the grid were not tried and why, in one line; [] when all were."""
    others = len(sweep.points) - 1
    tried = len(sweep.tried())
    if tried >= others:
        return []
    if tried >= sweep.limit:
        why = (
            _budget_of_trials(sweep, others)
            if sweep.seconds is None
            else f"of a grid this large the search tries {sweep.limit}"
        )
    elif not any(r.is_baseline and r.status == "ok" for r in sweep.results):
        why = "the present settings did not run"
    elif sweep.seconds is not None:
        why = _budget_of_time(sweep, sweep.seconds)
    else:
        why = "the sweep was stopped before them"
    return [f"{others - tried} of the {others} other combinations of the grid: {why}"]


def _budget_of_time(sweep: Sweep, seconds: float) -> str:
    """Why a budget of time leaves some out: it ended, or holds no first try."""
    left = seconds - sweep.spent_s
    if sweep.tried() or left <= 0 or not sweep.is_out_of_time:
        return "the time of the budget ended"
    scale, unit = (60, "min") if seconds >= 90 else (1, "s")
    return (
        f"what was left of the time ({left / scale:.3g} of {seconds / scale:.3g} {unit}) does not "
        "hold one with what would confirm it"
    )


def _budget_of_trials(sweep: Sweep, others: int) -> str:
    """Why a budget of trials leaves some out: what it keeps for the confirmation may go unused."""
    most, used = trials_of(sweep.limit, others), len(sweep.results)
    kept = most - used
    text = f"the budget of trials allows for {sweep.limit} beside the confirmation"
    if kept > 0:
        text += f", of which {kept} trials were not needed"
    return f"{text}; --budget {trials_of(others, others)} tries all"


def leave_it(sweep: Sweep, step: float | None, floor: float | None) -> str:
    """The verdict without a winner: what was seen, or why nothing could be.

    ``step`` is the present settings' median (ns), ``floor`` the resolution of the confirmation.
    """
    if step is None:
        failed = next((r for r in sweep.results if not r.is_timed), None)
        why = f": {failed.message.splitlines()[0]}" if failed and failed.message else ""
        return f"the workload itself does not run{why}"
    if not sweep.axes:
        return "no setting was measured: gloo ignores all of this space; its ranking is modelled"
    if sweep.all_failed:
        return _none_ran([r for r in sweep.results if r.purpose == "search"], sweep.folder)
    if not sweep.tried() and sweep.is_out_of_time:
        usual = sum(r.seconds for r in sweep.results) / len(sweep.results)
        return (
            f"nothing was tried: trials take {usual:.0f} s here, and a comparison with its "
            f"confirmation takes {LEAST_TRIALS} of them; pass a --budget of "
            f"{_budget(LEAST_TRIALS * usual)} or more"
        )
    if floor is None:
        return "leave it: too few baseline trials to tell a gain from noise"
    others = len(sweep.points) - 1
    part = f" in the {len(sweep.tried())} of {others} other combinations tried"
    part = part if not_reached(sweep) else ""
    if sweep.lacks_confirmation:
        return (
            f"leave it for now: {_found_too_late(sweep)}; --resume with a --budget of "
            f"{_budget(sweep.seconds_to_confirm)} or more confirms it or not"
        )
    lost = sweep.failed_confirmations()
    if lost and len(lost) == len(sweep.candidates()):
        return (
            f"nothing was confirmed: {_did_not_run_again(sweep, lost)}. Leave the present "
            "settings until that is mended"
        )
    best = min((t.ratio for t in sweep.tried() if t.ratio is not None), default=None)
    seen = "" if best is None else f"; the best single trial was {faster(best)}"
    again = _did_not_win_again(sweep)
    # What the confirmation says of the best says more than the single trial that it repeats.
    seen = "" if again else seen
    again = f"; {again}" if again else ""
    also = f"; not confirmed: {_did_not_run_again(sweep, lost)}" if lost else ""
    if floor > _BLUNT:
        return (
            "leave it for now: steps vary so much here that only gains above "
            f"{percent(floor)} of the step can be seen{part}{seen}{again}; repeat where "
            f"nothing else runs, or with more timed_steps{also}"
        )
    return (
        f"leave it: no measurable gain{part} (resolution {percent(floor)} of the step in "
        f"{CONFIRMATION_ROUNDS} pairs, {percent(sweep.resolution_of(1) or 0.0)} in a single "
        f"trial{seen}){again}{also}"
    )


def _budget(seconds: float) -> str:
    return f"{ceil(seconds / 60)}m" if seconds > 90 else f"{ceil(seconds)}s"


def _did_not_run_again(sweep: Sweep, lost: list[tuple[Tried, TrialResult]]) -> str:
    said = []
    for candidate, result in lost:
        changes = {k: v for k, v in candidate.configuration.items() if v != sweep.start[k]}
        why = (result.message.splitlines() or ["no message"])[0]
        said.append(
            f"{describe(changes)} was {faster(candidate.ratio or 1.0)} in the search, but "
            f"{ENDED.get(result.status, result.status)} when it was run again ({why}): see "
            f"{sweep.folder / log_of(result)}"
        )
    return "; ".join(said)


def _found_too_late(sweep: Sweep) -> str:
    found = " and ".join(
        f"{describe({k: v for k, v in tried.configuration.items() if v != sweep.start[k]})} was "
        f"{faster(tried.ratio or 1.0)} in the search"
        for tried in sweep.candidates()
    )
    return f"{found}, and the time left does not hold the fresh pairs that would confirm it"


def _did_not_win_again(sweep: Sweep) -> str:
    """``X was 16.0% faster in the search; in 4 fresh pairs it was 0.8% faster (...): ...``."""
    return "; ".join(
        f"{describe({k: v for k, v in tried.configuration.items() if v != sweep.start[k]})} was "
        f"{faster(tried.ratio or 1.0)} in the search; in {gain.pairs} fresh pairs it was "
        f"{faster(1 - gain.share)} ({percent(gain.low)} to {percent(gain.high)}): not confirmed"
        for tried, gain in sweep.confirmations()
    )


def _none_ran(failed: list[TrialResult], folder: Path) -> str:
    kinds = Counter(_KINDS.get(result.status, result.status) for result in failed)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    started = next((result for result in failed if result.status != "refused"), None)
    why = failed[0].message.splitlines()[0] if failed[0].message else "no message"
    if started is not None:
        others = " and those after it" if len(failed) > 1 else ""
        why = f"see {folder / log_of(started)}{others}"
    return (
        f"none of the {len(failed)} alternatives tried ran to the end ({listed}), so nothing is "
        f"known about them: {why}"
    )


EMULATED = "emulated"
"""What a sweep gives whose layers wait instead of computing: true of communication, not of a job's
step."""


def measured(sweep: Sweep) -> str:
    """What to call what the trials of ``sweep`` gave: measured, or emulated."""
    return EMULATED if sweep.job.is_emulated else "measured"


def confidence(sweep: Sweep, floor: float | None) -> str:
    """How far a verdict without a winner can be relied on."""
    if not sweep.axes:
        return "modelled"
    failed = sweep.failed_confirmations()
    open_ends = bool(failed) and len(failed) == len(sweep.candidates())
    seen = floor is not None and floor <= _BLUNT
    known = seen and not sweep.all_failed and not open_ends and not sweep.lacks_confirmation
    return measured(sweep) if known else "rule-of-thumb"
