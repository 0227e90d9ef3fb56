"""The sweep: baseline and trials in turn, then the winner against the baseline once more.

What to do next is a function of the results so far, so that ``--resume`` simply goes on. A
configuration is recommended only when fresh interleaved pairs confirm it above the resolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.config.sweep import Axis, Configuration, baseline, grid
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.tune.journal import Journal
from advisor.tune.search import Predicted, Search, Tried, default_limit, key_of
from advisor.tune.statistics import Gain, paired_gain, ratio_to_neighbours, resolution
from advisor.tune.trial import TrialResult, run_trial

MINIMUM_TIMED_STEPS = 15
CONFIRMATION_PAIRS = 4
# Candidates that go into a confirmation when the first one fails it.
_CANDIDATES = 2
_FIRST_BASELINES = 3
# A trial is stopped early only when it is slower than the best by this share at least.
LEAST_LEAD = 0.05


@dataclass(frozen=True)
class Plan:
    """What to run next and why: ``purpose`` is baseline, search, confirm-a or confirm-b."""

    purpose: str
    configuration: Configuration


@dataclass
class Sweep:
    """One sweep over ``axes`` of ``workload``; results live in ``folder``."""

    workload: Workload
    axes: Sequence[Axis]
    folder: Path
    start: Configuration
    limit: int
    seconds: float | None = None
    timeout_s: float = 120.0
    predictions: Predicted | None = None
    results: list[TrialResult] = field(default_factory=list)

    @property
    def search(self) -> Search:
        """The search over this sweep's axes."""
        return Search(self.axes, self.start, self.limit, self.predictions or Predicted())

    def tried(self) -> list[Tried]:
        """Every search trial with its ratio to the baselines around it."""
        return [
            Tried(result.configuration, ratio)
            for result, ratio in self.with_ratios()
            if result.purpose == "search"
        ]

    def with_ratios(self) -> list[tuple[TrialResult, float | None]]:
        """Results with cost / cost of the neighbouring baselines (None: failed, or baseline)."""
        pairs = []
        for index, result in enumerate(self.results):
            ratio = None
            if result.is_timed and not result.is_baseline:
                ratio = ratio_to_neighbours(
                    result.cost, self._baseline(index, -1), self._baseline(index, 1)
                )
            pairs.append((result, ratio))
        return pairs

    def _baseline(self, index: int, direction: int) -> float | None:
        position = index + direction
        while 0 <= position < len(self.results):
            result = self.results[position]
            if result.is_baseline and result.status == "ok":
                return result.cost
            position += direction
        return None

    @property
    def resolution(self) -> float | None:
        """Smallest gain that can be told from noise, from baseline against baseline."""
        return resolution([r.cost for r in self.results if r.is_baseline and r.status == "ok"])

    @property
    def spent_s(self) -> float:
        """Time of all trials so far, also those of an interrupted sitting."""
        return sum(result.seconds for result in self.results)

    @property
    def left_s(self) -> float | None:
        """About how long the rest will take, a confirmation included; None before any trial."""
        usual = [result.seconds for result in self.results if result.is_timed]
        if not usual:
            return None
        confirming = [r for r in self.results if r.purpose.startswith("confirm")]
        trials = 2 * CONFIRMATION_PAIRS - len(confirming)
        if not confirming:
            trials += max(0, _FIRST_BASELINES - len(self.results))
            trials += 2 * (min(self.limit, len(self.search.points)) - len(self.tried()))
        left = max(trials, 0) * sum(usual) / len(usual)
        return left if self.seconds is None else max(0.0, min(left, self.seconds - self.spent_s))

    def stop_above_cost(self, plan: Plan) -> float | None:
        """Cost at which a search trial has lost: the best so far and clearly more, ns per token.

        The best is its ratio to the baselines around it times the last baseline, so that a machine
        that drifts does not end trials. None for all other trials and before the resolution is
        known.
        """
        last = self._baseline(len(self.results), -1)
        if plan.purpose != "search" or last is None or self.resolution is None:
            return None
        best = min((t.ratio for t in self.tried() if t.ratio is not None), default=1.0)
        return last * min(best, 1.0) * (1 + max(2 * self.resolution, LEAST_LEAD))

    def candidates(self) -> list[Tried]:
        """Configurations worth a confirmation, best first: faster by more than the resolution."""
        floor = self.resolution or 0.0
        good = [t for t in self.tried() if t.ratio is not None and 1 - t.ratio > floor]
        good.sort(key=lambda item: item.ratio or 1.0)
        return good[:_CANDIDATES]

    def confirmed(self, configuration: Configuration) -> Gain | None:
        """The gain in the confirmation pairs; None before all pairs ran (or when one failed)."""
        key = key_of(configuration)
        wins = [
            (index, result)
            for index, result in enumerate(self.results)
            if result.purpose == "confirm-b" and key_of(result.configuration) == key
        ]
        if len(wins) < CONFIRMATION_PAIRS or any(r.status != "ok" for _, r in wins):
            return None
        before = [self._baseline(index, -1) for index, _ in wins]
        if any(value is None for value in before):
            return None
        return paired_gain([v for v in before if v is not None], [r.cost for _, r in wins])

    def next(self) -> Plan | None:
        """The next trial, or None at the end."""
        last = self.results[-1] if self.results else None
        baselines = [result for result in self.results if result.is_baseline]
        if baselines and all(r.status != "ok" for r in baselines[:2]) and len(baselines) >= 2:
            return None
        if len(self.results) < _FIRST_BASELINES:
            return Plan("baseline", self.start)
        confirming = any(result.purpose.startswith("confirm") for result in self.results)
        over = self.seconds is not None and self.spent_s + self._reserve_s() > self.seconds
        if not confirming and not over:
            if last is not None and not last.is_baseline:
                return Plan("baseline", self.start)
            proposal = self.search.next(self.tried())
            if proposal is not None:
                return Plan("search", proposal)
        elif last is not None and not last.is_baseline and last.purpose == "search":
            return Plan("baseline", self.start)
        return self._confirmation(last)

    def _confirmation(self, last: TrialResult | None) -> Plan | None:
        for candidate in self.candidates():
            key = key_of(candidate.configuration)
            done = [
                result
                for result in self.results
                if result.purpose == "confirm-b" and key_of(result.configuration) == key
            ]
            if any(result.status != "ok" for result in done):
                continue
            if len(done) < CONFIRMATION_PAIRS:
                if last is not None and last.purpose == "confirm-a":
                    return Plan("confirm-b", candidate.configuration)
                return Plan("confirm-a", self.start)
            gain = self.confirmed(candidate.configuration)
            if gain is not None and self.is_real(gain):
                return None
        return None

    def is_real(self, gain: Gain) -> bool:
        """Whether a confirmed gain is above the resolution, with its whole interval above zero."""
        return gain.low > 0 and gain.share > (self.resolution or 0.0)

    def _reserve_s(self) -> float:
        """Time that one more trial, its baseline and the confirmation will need."""
        usual = [r.seconds for r in self.results if r.status == "ok"]
        return (2 * CONFIRMATION_PAIRS + 2) * (sum(usual) / len(usual)) if usual else 0.0

    def winner(self) -> tuple[Configuration, Gain] | None:
        """The confirmed configuration and its gain, or None: leave it."""
        for candidate in self.candidates():
            gain = self.confirmed(candidate.configuration)
            if gain is not None and self.is_real(gain):
                return candidate.configuration, gain
        return None


def prepare(
    workload: Workload,
    axes: Sequence[Axis],
    folder: Path,
    environment: dict[str, str],
    *,
    limit: int | None,
    seconds: float | None,
    timeout_s: float,
) -> Sweep:
    """A sweep ready to run. Raises AdvisorError when there is nothing to vary."""
    if not axes:
        raise AdvisorError(
            "no axis of the space applies to this workload",
            hint="see the strategies and backends of the axes, or pass --space",
        )
    steps = max(workload.timed_steps, MINIMUM_TIMED_STEPS)
    workload = workload.with_settings({"timed_steps": steps})
    start = baseline(list(axes), workload, environment)
    points = sum(1 for _ in grid(list(axes), start)) - 1
    return Sweep(
        workload=workload,
        axes=axes,
        folder=folder,
        start=start,
        limit=min(points, limit if limit is not None else default_limit(points, len(axes))),
        seconds=seconds,
        timeout_s=timeout_s,
    )


def run(
    sweep: Sweep,
    *,
    resume: bool,
    predict: Callable[[Sweep, TrialResult], Predicted],
    notify: Callable[[Plan | None, TrialResult | None], None],
) -> None:
    """Run to the end, keeping every finished trial in the journal.

    ``predict`` turns the traced baseline into predictions; ``notify`` is called before a trial
    (plan, None) and after it (None, result).
    """
    header = {
        "workload": sweep.workload.model_dump(mode="json"),
        "axes": [axis.model_dump(mode="json") for axis in sweep.axes],
        "start": sweep.start,
    }
    journal = Journal(sweep.folder, header, resume=resume)
    sweep.results = journal.results
    while True:
        _refresh_predictions(sweep, predict)
        plan = sweep.next()
        if plan is None:
            return
        notify(plan, None)
        number = len(journal.results)
        result = run_trial(
            sweep.workload,
            plan.configuration,
            sweep.folder / "trials" / f"{number:04d}",
            number=number,
            is_baseline=plan.purpose in ("baseline", "confirm-a"),
            purpose=plan.purpose,
            timeout_s=sweep.timeout_s,
            stop_above_cost=sweep.stop_above_cost(plan),
        )
        journal.add(result)
        notify(None, result)


def _refresh_predictions(sweep: Sweep, predict: Callable[[Sweep, TrialResult], Predicted]) -> None:
    if sweep.predictions is not None:
        return
    traced = next((r for r in sweep.results if r.is_baseline and r.status == "ok"), None)
    if traced is not None:
        sweep.predictions = predict(sweep, traced)
