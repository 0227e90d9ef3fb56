"""A sitting of a sweep: trial after trial, each in the journal before the next one begins."""

from collections.abc import Callable

from advisor.tune.job import Limits
from advisor.tune.journal import Journal, alone
from advisor.tune.search import Predicted
from advisor.tune.sweep import Plan, Sweep
from advisor.tune.trial import TrialResult, run_trial


def run(
    sweep: Sweep,
    *,
    resume: bool,
    predict: Callable[[Sweep, TrialResult], Predicted],
    notify: Callable[[Plan | None, TrialResult | None], None],
) -> None:
    """Run to the end, keeping every finished trial in the journal.

    On resuming, only a round of the confirmation that was not finished is run again.
    ``predict`` turns the traced baseline into predictions; ``notify`` is called before a trial
    (plan, None) and after it (None, result). Raises AdvisorError where somebody removed the folder,
    or another sweep runs there.
    """
    header = {
        **sweep.job.document(),
        "axes": [axis.model_dump(mode="json") for axis in sweep.axes],
        "start": sweep.start,
    }
    with alone(sweep.folder):
        journal = Journal(sweep.folder, header, resume=resume)
        sweep.results = journal.results
        sweep.sitting = journal.next_sitting
        # A round compares what ran side by side: begun in an earlier sitting it is run again whole.
        journal.drop_last(sweep.open_round)
        while True:
            _refresh_predictions(sweep, predict)
            plan = sweep.next()
            if plan is None:
                return
            notify(plan, None)
            number = len(journal.results)
            journal.require_there()
            try:
                result = run_trial(
                    sweep.job,
                    plan.configuration,
                    sweep.folder / "trials" / f"{number:04d}",
                    number=number,
                    is_baseline=plan.purpose in ("baseline", "confirm-a"),
                    purpose=plan.purpose,
                    limits=Limits(sweep.timeout_s, sweep.stop_above_cost(plan)),
                    sitting=sweep.sitting,
                )
            except OSError:
                # Without its folder nothing of a trial can be written.
                journal.require_there()
                raise
            journal.add(result)
            notify(None, result)


def _refresh_predictions(sweep: Sweep, predict: Callable[[Sweep, TrialResult], Predicted]) -> None:
    if sweep.predictions is None and sweep.baselines:
        sweep.predictions = predict(sweep, sweep.baselines[0])
