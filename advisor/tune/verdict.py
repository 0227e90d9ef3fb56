"""What a sweep comes to, and the words that all its results share."""

from collections import Counter
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from advisor.config.sweep import ENVIRONMENT_PREFIX, Configuration
from advisor.ingest.trial_end import ENDED
from advisor.messages import MOST_TITLE, TUNED, TUNED_ALSO, TUNED_WHY, say
from advisor.tune.budget import LEAST_TRIALS, trials_of
from advisor.tune.search import Tried
from advisor.tune.statistics import Gain
from advisor.tune.sweep import Sweep
from advisor.tune.trial import TrialResult
from advisor.vocabulary.words import fitted, percent

_KINDS = {"oom": "out of memory"}
_BLUNT = 0.2
"""A resolution (share of the step) above which "not measurably faster" says next to nothing."""


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
    elif not sweep.baselines:
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
    """Why a budget of trials leaves some out: it keeps trials for the confirmation."""
    return (
        f"the budget has trials for {sweep.limit} and a confirmation; "
        f"--budget {trials_of(others, others)} tries all"
    )


class Outcome(NamedTuple):
    """What a sweep comes to: ``code`` of TUNED in the catalogue, its title, why in a sentence, and
    what else was faster in the search."""

    code: str
    title: str
    why: str
    also: list[str]


def won(sweep: Sweep, changes: Configuration, gain: Gain) -> Outcome:
    """The verdict with a winner."""
    of_change = {"change": describe(changes), "emulated": sweep.job.is_emulated}
    return _outcome("won", {**of_change, **vars(gain), "gain": gain.share})


def leave_it(sweep: Sweep, step: float | None, floor: float | None) -> Outcome:
    """The verdict without a winner: what was seen, or why nothing could be.

    ``step`` is the present settings' median (ns), ``floor`` the resolution of the confirmation.
    """
    if step is None:
        failed = next((r for r in sweep.results if not r.is_timed), None)
        return _outcome("does-not-run", {"why": _first_line(failed)})
    if not sweep.axes:
        return _outcome("modelled", {})
    if sweep.all_failed:
        return _none_ran(sweep.alternatives(), sweep.folder)
    if not sweep.tried() and not sweep.candidates() and sweep.is_out_of_time:
        usual = sum(r.seconds for r in sweep.results) / len(sweep.results)
        budget = _budget(sweep.before_s + LEAST_TRIALS * usual)
        return _outcome("too-short", {"seconds": usual, "trials": LEAST_TRIALS, "budget": budget})
    if floor is None:
        return _outcome("few-baselines", {})
    if sweep.lacks_confirmation:
        found = [_in_search(sweep, tried) for tried in sweep.candidates()]
        budget = _budget(sweep.before_s + sweep.seconds_to_confirm)
        return _outcome("too-late", {"found": found, "budget": budget})
    also = _also(sweep)
    if also["lost"] and len(also["lost"]) == len(sweep.candidates()):
        return _outcome("did-not-run-again", also)
    return _outcome("noisy" if floor > _BLUNT else "no-gain", {**also, "floor": floor})


def _outcome(code: str, values: dict[str, Any]) -> Outcome:
    title = fitted(say(TUNED, code, values), MOST_TITLE)
    why = say(TUNED_WHY, code, values) if code in TUNED_WHY else ""
    again, best = values.get("again", []), values.get("best")
    seen = [(kind, one) for kind in ("found", "again", "lost") for one in values.get(kind, [])]
    seen += [("best", best)] if best is not None and best > 0 and not again else []
    return Outcome(code, title, why, [say(TUNED_ALSO, kind, {"one": one}) for kind, one in seen])


def _also(sweep: Sweep) -> dict[str, Any]:
    """What did not win again, what did not run again, and the best single trial."""
    best = min((t.ratio for t in sweep.tried() if t.ratio is not None), default=None)
    return {
        "best": None if best is None else 1 - best,
        "again": [
            {**_in_search(sweep, tried), "pairs": gain.pairs, "share": gain.share,
             "low": gain.low, "high": gain.high}
            for tried, gain in sweep.confirmations()
        ],
        "lost": [
            {**_in_search(sweep, tried), "ended": ENDED.get(result.status, result.status),
             "why": _first_line(result), "log": sweep.folder / log_of(result)}
            for tried, result in sweep.failed_confirmations()
        ],
    }  # fmt: skip


def _in_search(sweep: Sweep, tried: Tried) -> dict[str, Any]:
    change = describe(sweep.changes(tried.configuration))
    return {"change": change, "search": None if tried.ratio is None else 1 - tried.ratio}


def _first_line(result: TrialResult | None) -> str:
    return ((result.message if result is not None else "").splitlines() or ["no message"])[0]


def _budget(seconds: float) -> str:
    return f"{ceil(seconds / 60)}m" if seconds > 90 else f"{ceil(seconds)}s"


def _none_ran(failed: list[TrialResult], folder: Path) -> Outcome:
    kinds = Counter(_KINDS.get(result.status, result.status) for result in failed)
    started = next((result for result in failed if result.status != "refused"), None)
    why = _first_line(failed[0])
    if started is not None:
        others = " and those after it" if len(failed) > 1 else ""
        why = f"see {folder / log_of(started)}{others}"
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return _outcome("none-ran", {"failed": len(failed), "kinds": listed, "why": why})


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
