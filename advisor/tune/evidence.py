"""What the trials of a sweep so far say: ratios, resolution, candidates, what was confirmed.

A configuration is recommended only when fresh interleaved pairs confirm it above the resolution.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from advisor.config.sweep import Configuration
from advisor.tune.budget import CANDIDATES, CONFIRMATION_ROUNDS
from advisor.tune.points import key_of
from advisor.tune.search import Tried
from advisor.tune.statistics import Gain, paired_gain, ratio_to_neighbours, resolution, successive
from advisor.tune.trial import TrialResult


@dataclass
class Evidence:
    """The ``results`` of a sweep's trials in their order; ``sitting`` is the one of now."""

    results: list[TrialResult] = field(default_factory=list)
    sitting: int = 0

    def tried(self) -> list[Tried]:
        """Every search trial with its ratio to the baselines around it; without a search, what was
        confirmed at once."""
        of = {result.number: ratio for result, ratio in self.with_ratios()}
        made = self.alternatives()
        if made and made[0].purpose != "search":
            timed = [ratio for one in made if (ratio := of[one.number]) is not None]
            return [Tried(made[0].configuration, statistics.median(timed) if timed else None)]
        return [Tried(one.configuration, of[one.number]) for one in made]

    def alternatives(self) -> list[TrialResult]:
        """The trials of the search; of the confirmation where there was no search."""
        searched = [result for result in self.results if result.purpose == "search"]
        return searched or [result for result in self.results if result.purpose == "confirm-b"]

    @property
    def all_failed(self) -> bool:
        """Whether alternatives were tried and none of them gave a step time."""
        made = self.alternatives()
        return bool(made) and not any(result.is_timed for result in made)

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

    @property
    def baselines(self) -> list[TrialResult]:
        """The trials of the present settings that ran to their end."""
        return [r for r in self.results if r.is_baseline and r.status == "ok"]

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
        return _resolution(self.baselines, repetitions)

    @property
    def resolution(self) -> float | None:
        """Smallest gain that the confirmation's rounds tell from noise."""
        return self.resolution_of(CONFIRMATION_ROUNDS)

    @property
    def baseline_range_ms(self) -> tuple[float, float]:
        """Fastest and slowest run of the present settings."""
        steps = [r.median_ns / 1e6 for r in self.baselines]
        return min(steps), max(steps)

    def candidates(self) -> list[Tried]:
        """Configurations worth a confirmation, best first: faster by what that could tell.

        Of the search alone, so that the confirmation's own trials change nothing here.
        """
        baselines = [r for r in self.baselines if r.purpose == "baseline"]
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
        if None in before:
            return None
        good = self.baselines
        noise = successive([r.cost for r in good], [r.sitting for r in good])
        costs = [r.cost for _, r in wins]
        return paired_gain([v for v in before if v is not None], costs, noise)

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

    def is_real(self, gain: Gain) -> bool:
        """Whether a confirmed gain is above the resolution, with its whole interval above zero."""
        return gain.low > 0 and gain.share > (self.resolution_of(gain.pairs) or 0.0)

    def winner(self) -> tuple[Configuration, Gain] | None:
        """The confirmed configuration that gains most for sure, and its gain; None: leave it.

        By the low end: a gain that its pairs agree on comes before one that is larger by chance.
        """
        real = [(c.configuration, gain) for c, gain in self.confirmations() if self.is_real(gain)]
        return max(real, key=lambda entry: entry[1].low, default=None)


def _resolution(baselines: Sequence[TrialResult], repetitions: int) -> float | None:
    costs, sittings = [r.cost for r in baselines], [r.sitting for r in baselines]
    return resolution(costs, repetitions=repetitions, sittings=sittings)
