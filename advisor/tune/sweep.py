"""The sweep: baseline and trials in turn, then the winner against the baseline once more.

What to do next is a function of the results so far, so that ``--resume`` simply goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.config.sweep import Axis, Configuration
from advisor.tune.budget import (
    CANDIDATES,
    CONFIRMATION_ROUNDS,
    FIRST_BASELINES,
    Budget,
    combinations_in,
    trials_of,
    trials_to_confirm,
)
from advisor.tune.evidence import Evidence
from advisor.tune.job import Job
from advisor.tune.points import Points
from advisor.tune.search import Predicted, Search, Tried, default_limit

# A trial is stopped early only when it is slower than the best by this share at least.
LEAST_LEAD = 0.05


@dataclass(frozen=True)
class Plan:
    """What to run next and why: ``purpose`` is baseline, search, confirm-a or confirm-b."""

    purpose: str
    configuration: Configuration


@dataclass(kw_only=True)
class Sweep(Evidence):
    """One sweep over ``axes`` of ``job``; results live in ``folder``.

    ``fixed`` are axes without a second value that this job can run, ``refused`` says of each
    value that it refuses why. Without ``axes`` the present settings run once, for their trace.
    ``trials``: how many may run in all, None for as many as ``limit`` tries need. ``seconds`` are
    of the trials, ``before_s`` of what ran before them, and ``trial_s`` of a trial, as that tells.
    """

    job: Job
    axes: Sequence[Axis]
    folder: Path
    points: Points
    limit: int
    seconds: float | None = None
    before_s: float = 0.0
    trial_s: float | None = None
    trials: int | None = None
    timeout_s: float = 120.0
    fixed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    predictions: Predicted | None = None

    @property
    def start(self) -> Configuration:
        """The present settings."""
        return self.points.start

    def changes(self, configuration: Configuration) -> Configuration:
        """What a configuration has otherwise than the present settings."""
        return {name: value for name, value in configuration.items() if value != self.start[name]}

    @property
    def search(self) -> Search:
        """The search over this sweep's axes."""
        predictions = self.predictions or Predicted()
        return Search(self.axes, self.start, self.limit, predictions, points=self.points)

    def candidates(self) -> list[Tried]:
        """What is worth a confirmation; at once what is worth a try most, where the time holds that
        and no search. Its pairs are as fresh as after one."""
        if not self._goes_straight:
            return super().candidates()
        begun = [result.configuration for result in self.alternatives()]
        first = begun[0] if begun else self.search.next([])
        return [] if first is None else [Tried(first, None)]

    @property
    def _goes_straight(self) -> bool:
        """Whether something is confirmed without a search."""
        purposes = {result.purpose for result in self.results}
        if "search" in purposes or not self._usual_s:
            return False
        baselines = max(0, FIRST_BASELINES - len(self.results))
        searched = self._time_holds(baselines + 2 + trials_to_confirm(1))
        return "confirm-a" in purposes or (not searched and self._time_holds(trials_to_confirm(1)))

    @property
    def spent_s(self) -> float:
        """Time of all trials so far, also those of an interrupted sitting."""
        return sum(result.seconds for result in self.results)

    @property
    def left_s(self) -> float | None:
        """About how long the rest will take, a confirmation included; None before any trial."""
        usual = [result.seconds for result in self.results if result.is_timed]
        if not usual or not self.axes:
            return None
        if self.lacks_confirmation:
            return 0.0
        confirming = [r for r in self.results if r.purpose.startswith("confirm")]
        untried = min(self.limit, len(self.points) - 1) - len(self.tried())
        if confirming or self.is_out_of_time or untried <= 0:
            trials = trials_to_confirm(len(self.candidates())) - len(confirming)
            trials += self.results[-1].purpose == "search"
        else:
            trials = trials_to_confirm(CANDIDATES) + 2 * untried
            trials += max(0, FIRST_BASELINES - len(self.results))
        left = max(trials, 0) * sum(usual) / len(usual)
        return left if self.seconds is None else max(0.0, min(left, self.seconds - self.spent_s))

    @property
    def is_out_of_time(self) -> bool:
        """Whether what is left of the time holds no other try with what would confirm it.

        After a first one that nothing so far needs the time for a confirmation, a try alone will
        do: what it wins is said, and a larger budget confirms it.
        """
        alone = bool(self.tried()) and not self.candidates()
        return not self._time_holds(2 if alone else self._trials_of_another())

    @property
    def lacks_confirmation(self) -> bool:
        """Whether what won was tried when the time held no confirmation of it, nor does it now."""
        searched = [i for i, result in enumerate(self.results) if result.purpose == "search"]
        if not searched or any(r.purpose.startswith("confirm") for r in self.results):
            return False
        winners = len(self.candidates())
        if not winners or self._time_holds(trials_to_confirm(winners)):
            return False
        before = replace(self, results=self.results[: searched[-1]])
        return not before._time_holds(before._trials_of_another())

    def stop_above_cost(self, plan: Plan) -> float | None:
        """Cost at which a search trial has lost: the best so far and clearly more, ns per token.

        The best is its ratio to the baselines around it times the last baseline, so that a machine
        that drifts does not end trials. None for all other trials and before the resolution is
        known.
        """
        last = self._baseline(len(self.results), -1)
        noise = self.resolution_of(1)
        if plan.purpose != "search" or last is None or noise is None:
            return None
        best = min((t.ratio for t in self.tried() if t.ratio is not None), default=1.0)
        return last * min(best, 1.0) * (1 + max(2 * noise, LEAST_LEAD))

    def next(self) -> Plan | None:
        """The next trial, or None at the end."""
        last = self.results[-1] if self.results else None
        baselines = [result for result in self.results if result.is_baseline]
        if baselines and all(r.status != "ok" for r in baselines[:2]) and len(baselines) >= 2:
            return None
        if len(self.results) < (FIRST_BASELINES if self.axes else 1):
            if not (self.axes and self.results and self.is_out_of_time):
                return Plan("baseline", self.start)
            return self._confirmation()
        confirming = any(result.purpose.startswith("confirm") for result in self.results)
        if not confirming and not self.is_out_of_time:
            if last is not None and not last.is_baseline:
                return Plan("baseline", self.start)
            proposal = self.search.next(self.tried())
            if proposal is not None:
                begun = any(result.sitting == self.sitting for result in baselines)
                first = not begun and self._holds_another_baseline()
                return Plan("baseline", self.start) if first else Plan("search", proposal)
        elif last is not None and not last.is_baseline and last.purpose == "search":
            return Plan("baseline", self.start)
        return None if self.lacks_confirmation else self._confirmation()

    def _confirmation(self) -> Plan | None:
        """Rounds of the present settings and every candidate that has not failed."""
        started = [
            (c.configuration, self._confirmations(c.configuration)) for c in self.candidates()
        ]
        alive = [entry for entry in started if all(r.status == "ok" for _, r in entry[1])]
        baselines = sum(result.purpose == "confirm-a" for result in self.results)
        for number in range(1, CONFIRMATION_ROUNDS + 1):
            waiting = [configuration for configuration, done in alive if len(done) < number]
            if waiting and baselines < number:
                return Plan("confirm-a", self.start)
            if waiting:
                return Plan("confirm-b", waiting[0])
        return None

    @property
    def open_round(self) -> int:
        """Trials of a confirmation round that was begun and not finished; 0 between two rounds."""
        plan = self.next()
        if plan is None or plan.purpose != "confirm-b":
            return 0
        begun = max(i for i, r in enumerate(self.results) if r.purpose == "confirm-a")
        return len(self.results) - begun

    def _trials_of_another(self) -> int:
        """The first baselines still to run, one more try, its baseline and what confirms it and
        the candidates so far."""
        candidates = min(CANDIDATES, len(self.points) - 1, len(self.candidates()) + 1)
        return max(0, FIRST_BASELINES - len(self.results)) + 2 + trials_to_confirm(candidates)

    def _holds_another_baseline(self) -> bool:
        """Whether the trials hold one more before a sitting's first try: else the baseline after it
        is what that is compared with."""
        if self.trials is None:
            return True
        left = trials_of(self.limit - len(self.tried()), len(self.points) - 1) - FIRST_BASELINES
        return len(self.results) + 1 + left <= self.trials

    def _time_holds(self, trials: int) -> bool:
        """Whether what is left of the time holds so many more, each as long as those so far."""
        return self.seconds is None or self.spent_s + trials * self._usual_s <= self.seconds

    @property
    def _usual_s(self) -> float:
        usual = [r.seconds for r in self.results if r.status == "ok"]
        return sum(usual) / len(usual) if usual else 0.0

    @property
    def seconds_to_confirm(self) -> float:
        """Time of all trials so far and of what would confirm the candidates."""
        return self.spent_s + trials_to_confirm(len(self.candidates())) * self._usual_s


def planned(
    job: Job, axes: Sequence[Axis], folder: Path, points: Points, budget: Budget, **more: Any
) -> Sweep:
    """The sweep over those of ``axes`` that vary in ``points``. Raises AdvisorError.

    It may have no other combination than the present one: whoever asks for it says why.
    """
    varied = [axis for axis in axes if points.varies(axis.setting)]
    fixed = [axis.setting for axis in axes if axis not in varied]
    points = points.without(fixed)
    others, limit = len(points) - 1, 0
    if others:
        limit = default_limit(others, len(varied))
        limit = limit if budget.trials is None else combinations_in(budget.trials, others)
    return Sweep(
        job=job,
        axes=varied,
        folder=folder,
        points=points,
        limit=limit,
        fixed=fixed,
        seconds=budget.seconds,
        trials=budget.trials,
        timeout_s=budget.timeout_s,
        **more,
    )
