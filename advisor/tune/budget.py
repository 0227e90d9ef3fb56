"""How many trials a sweep is made of: baselines, one try of each combination, the confirmation."""

from dataclasses import dataclass

from advisor.errors import AdvisorError

CONFIRMATION_ROUNDS = 4
# The best of the search that are confirmed side by side (A B C A B C ...): their order in the
# search is within its noise.
CANDIDATES = 2
FIRST_BASELINES = 3


@dataclass(frozen=True)
class Budget:
    """What a sweep may take: ``trials`` in all, or ``seconds``, or as its search needs.

    ``timeout_s`` is how long a trial may make no progress. One that ``compares`` is as much longer
    as one try with its confirmation takes.
    """

    trials: int | None = None
    seconds: float | None = None
    timeout_s: float = 120.0
    compares: bool = False


def trials_of(combinations: int, others: int) -> int:
    """Most trials of a sweep that tries so many of the ``others``: its baselines, each one tried
    with a baseline after it, and the confirmation.
    """
    confirmed = min(CANDIDATES, others)
    return FIRST_BASELINES + 2 * combinations + (1 + confirmed) * CONFIRMATION_ROUNDS


def trials_to_confirm(candidates: int) -> int:
    """Trials of a confirmation of so many candidates; 0 of none."""
    return (1 + candidates) * CONFIRMATION_ROUNDS if candidates else 0


COMPARISON_TRIALS = FIRST_BASELINES + 2 + trials_to_confirm(1)
"""Trials of a search of one combination that wins, and of its confirmation."""
# Fewest trials of a sweep by time that can recommend anything: one setting, confirmed at once.
LEAST_TRIALS = 1 + trials_to_confirm(1)


def combinations_in(trials: int, others: int) -> int:
    """How many combinations a sweep of so many trials can try. Raises AdvisorError for none."""
    least = trials_of(1, others)
    if trials < least:
        raise AdvisorError(
            f"--budget {trials}: {trials} trials compare nothing",
            hint=f"{least} at least: {FIRST_BASELINES} of the present settings, one of another "
            f"beside one more, and {least - FIRST_BASELINES - 2} to confirm what won",
        )
    return min(others, (trials - trials_of(0, others)) // 2)
