"""The sweep: baseline and trials in turn, then the winner against the baseline once more.

What to do next is a function of the results so far, so that ``--resume`` simply goes on. A
configuration is recommended only when fresh interleaved pairs confirm it above the resolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.config.sweep import Axis, Configuration
from advisor.config.workload import Workload
from advisor.tune.budget import (
    CANDIDATES,
    CONFIRMATION_ROUNDS,
    FIRST_BASELINES,
    trials_to_confirm,
)
from advisor.tune.points import Points, key_of
from advisor.tune.search import Predicted, Search, Tried
from advisor.tune.statistics import Gain, paired_gain, ratio_to_neighbours, resolution
from advisor.tune.trial import TrialResult

# A trial is stopped early only when it is slower than the best by this share at least.
LEAST_LEAD = 0.05


@dataclass(frozen=True)
class Plan:
    """What to run next and why: ``purpose`` is baseline, search, confirm-a or confirm-b."""

    purpose: str
    configuration: Configuration


@dataclass
class Sweep:
    """One sweep over ``axes`` of ``workload``; results live in ``folder``.

    ``fixed`` are axes without a second value that this workload can run, ``refused`` says of each
    value that it refuses why. Without ``axes`` the
    present settings run once, for their trace. ``sitting`` is the one that goes on now.
    ``timed_steps`` is what the user's workload says of them (None: nothing); trials may run more.
    """

    workload: Workload
    axes: Sequence[Axis]
    folder: Path
    points: Points
    limit: int
    seconds: float | None = None
    timeout_s: float = 120.0
    fixed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    predictions: Predicted | None = None
    results: list[TrialResult] = field(default_factory=list)
    sitting: int = 0
    timed_steps: int | None = None

    @property
    def start(self) -> Configuration:
        """The present settings."""
        return self.points.start

    @property
    def search(self) -> Search:
        """The search over this sweep's axes."""
        predictions = self.predictions or Predicted()
        return Search(self.axes, self.start, self.limit, predictions, points=self.points)

    def tried(self) -> list[Tried]:
        """Every search trial with its ratio to the baselines around it."""
        return [
            Tried(result.configuration, ratio)
            for result, ratio in self.with_ratios()
            if result.purpose == "search"
        ]

    @property
    def all_failed(self) -> bool:
        """Whether alternatives were tried and none of them gave a step time."""
        searched = [result for result in self.results if result.purpose == "search"]
        return bool(searched) and not any(result.is_timed for result in searched)

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
        """Cost of the nearest run of the present settings in the trial's own sitting."""
        sitting = self.results[index].sitting if index < len(self.results) else self.sitting
        position = index + direction
        while 0 <= position < len(self.results):
            result = self.results[position]
            if result.is_baseline and result.status == "ok" and result.sitting == sitting:
                return result.cost
            position += direction
        return None

    def resolution_of(self, repetitions: int) -> float | None:
        """Smallest share that so many trials tell from noise, from baseline against baseline."""
        good = [r for r in self.results if r.is_baseline and r.status == "ok"]
        return _resolution(good, repetitions)

    @property
    def resolution(self) -> float | None:
        """Smallest gain that the confirmation's rounds tell from noise."""
        return self.resolution_of(CONFIRMATION_ROUNDS)

    @property
    def baseline_range_ms(self) -> tuple[float, float]:
        """Fastest and slowest run of the present settings."""
        steps = [r.median_ns / 1e6 for r in self.results if r.is_baseline and r.status == "ok"]
        return min(steps), max(steps)

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
        """Whether what is left of the time holds no other try with what would confirm it."""
        return self.seconds is not None and self.spent_s + self._reserve_s() > self.seconds

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

    def candidates(self) -> list[Tried]:
        """Configurations worth a confirmation, best first: faster by what that could tell.

        Of the search alone, so that the confirmation's own trials change nothing here.
        """
        baselines = [r for r in self.results if _is_search_baseline(r)]
        floor = _resolution(baselines, CONFIRMATION_ROUNDS) or 0.0
        good = [t for t in self.tried() if t.ratio is not None and 1 - t.ratio > floor]
        good.sort(key=lambda item: item.ratio or 1.0)
        return good[:CANDIDATES]

    def _confirmations(self, configuration: Configuration) -> list[tuple[int, TrialResult]]:
        key = key_of(configuration)
        return [
            (index, result)
            for index, result in enumerate(self.results)
            if result.purpose == "confirm-b" and key_of(result.configuration) == key
        ]

    def confirmed(self, configuration: Configuration) -> Gain | None:
        """The gain in the confirmation rounds; None before all ran (or when one failed)."""
        wins = self._confirmations(configuration)
        if len(wins) < CONFIRMATION_ROUNDS or any(r.status != "ok" for _, r in wins):
            return None
        before = [self._baseline(index, -1) for index, _ in wins]
        if any(value is None for value in before):
            return None
        return paired_gain([v for v in before if v is not None], [r.cost for _, r in wins])

    def confirmations(self) -> list[tuple[Tried, Gain]]:
        """Candidates whose confirmation rounds all ran, with the gain in them, best first."""
        gains = [(c, self.confirmed(c.configuration)) for c in self.candidates()]
        return [(candidate, gain) for candidate, gain in gains if gain is not None]

    def failed_confirmations(self) -> list[tuple[Tried, TrialResult]]:
        """Candidates that did not run to their end when they were run again, with that trial."""
        return [
            (candidate, result)
            for candidate in self.candidates()
            for _, result in self._confirmations(candidate.configuration)
            if result.status != "ok"
        ]

    def next(self) -> Plan | None:
        """The next trial, or None at the end."""
        last = self.results[-1] if self.results else None
        baselines = [result for result in self.results if result.is_baseline]
        if baselines and all(r.status != "ok" for r in baselines[:2]) and len(baselines) >= 2:
            return None
        if len(self.results) < (FIRST_BASELINES if self.axes else 1):
            hopeless = bool(self.axes) and bool(self.results) and self.is_out_of_time
            return None if hopeless else Plan("baseline", self.start)
        confirming = any(result.purpose.startswith("confirm") for result in self.results)
        if not confirming and not self.is_out_of_time:
            if last is not None and not last.is_baseline:
                return Plan("baseline", self.start)
            proposal = self.search.next(self.tried())
            if proposal is not None:
                begun = any(result.sitting == self.sitting for result in baselines)
                return Plan("search", proposal) if begun else Plan("baseline", self.start)
        elif last is not None and not last.is_baseline and last.purpose == "search":
            return Plan("baseline", self.start)
        return self._confirmation()

    def _confirmation(self) -> Plan | None:
        """Rounds of the present settings and every candidate that has not failed."""
        started = [
            (c.configuration, self._confirmations(c.configuration)) for c in self.candidates()
        ]
        alive = [entry for entry in started if all(r.status == "ok" for _, r in entry[1])]
        baselines = sum(result.purpose == "confirm-a" for result in self.results)
        for number in range(1, CONFIRMATION_ROUNDS + 1):
            waiting = [configuration for configuration, done in alive if len(done) < number]
            if waiting:
                return (
                    Plan("confirm-a", self.start)
                    if baselines < number
                    else Plan("confirm-b", waiting[0])
                )
        return None

    @property
    def open_round(self) -> int:
        """Trials of a confirmation round that was begun and not finished; 0 between two rounds."""
        plan = self.next()
        if plan is None or plan.purpose != "confirm-b":
            return 0
        begun = max(i for i, r in enumerate(self.results) if r.purpose == "confirm-a")
        return len(self.results) - begun

    def is_real(self, gain: Gain) -> bool:
        """Whether a confirmed gain is above the resolution, with its whole interval above zero."""
        return gain.low > 0 and gain.share > (self.resolution_of(gain.pairs) or 0.0)

    def _reserve_s(self) -> float:
        """Time of the first baselines still to run, one more try, its baseline and what confirms
        it and the candidates so far."""
        usual = [r.seconds for r in self.results if r.status == "ok"]
        candidates = min(CANDIDATES, len(self.points) - 1, len(self.candidates()) + 1)
        trials = max(0, FIRST_BASELINES - len(self.results)) + 2 + trials_to_confirm(candidates)
        return trials * (sum(usual) / len(usual)) if usual else 0.0

    def winner(self) -> tuple[Configuration, Gain] | None:
        """The confirmed configuration that gained most, and its gain; None: leave it."""
        real = [(c.configuration, gain) for c, gain in self.confirmations() if self.is_real(gain)]
        return max(real, key=lambda entry: entry[1].share, default=None)


def _resolution(baselines: Sequence[TrialResult], repetitions: int) -> float | None:
    costs, sittings = [r.cost for r in baselines], [r.sitting for r in baselines]
    return resolution(costs, repetitions=repetitions, sittings=sittings)


def _is_search_baseline(result: TrialResult) -> bool:
    return result.purpose == "baseline" and result.status == "ok"
