"""Savings of a rule that cannot be are left out or bounded; the rule's author is told."""

from __future__ import annotations

import math

import pytest

from advisor.engine.savings_bounds import bounded

STEP_NS = 100_000_000


@pytest.mark.parametrize(
    ("value", "step_ns", "kept", "says"),
    [
        (math.nan, STEP_NS, None, "savings_ns is no number"),
        (math.inf, None, None, "savings_ns is endless"),
        (math.inf, STEP_NS, STEP_NS, "savings_ns (endless) is more than the step"),
        (-math.inf, STEP_NS, 0, "savings_ns is below zero (endless)"),
        (2 * STEP_NS, STEP_NS, STEP_NS, "more than the step"),
    ],
)
def test_numbers_that_cannot_be_are_said(
    value: float, step_ns: int | None, kept: int | None, says: str
) -> None:
    savings, mistakes = bounded({"savings_ns": value}, step_ns)
    assert savings["savings_ns"] == kept
    assert any(says in mistake for mistake in mistakes)


def test_what_can_be_is_kept_without_a_word() -> None:
    row = {"savings_ns": 5e6, "savings_low_ns": 4e6, "savings_high_ns": 7e6}
    assert bounded(row, STEP_NS) == ({name: int(row[name]) for name in row}, [])


def test_compute_that_nothing_hides_stays_and_that_is_no_mistake_of_the_rule() -> None:
    row = {"savings_ns": 5e7, "savings_low_ns": 4e7, "savings_high_ns": 9.9e7}
    kept, mistakes = bounded(row, STEP_NS, 2.2e7)
    assert kept == {**row, "savings_high_ns": 78_000_000}
    assert not mistakes


def test_threads_that_lack_cores_widen_both_ends_within_the_step() -> None:
    row = {"savings_ns": 40, "savings_low_ns": 30, "savings_high_ns": 45}
    wide = {"savings_ns": 40, "savings_low_ns": 15, "savings_high_ns": 90}
    assert bounded(row, 100, running_share=0.5) == (wide, [])
    # What the profiler makes longer may be in what is saved, and nothing more is won without it.
    assert bounded(row, 100, own_share=0.5) == ({**row, "savings_low_ns": 15}, [])
    # Compute that waits for cores for half its time is not sure to take all of it.
    assert bounded(row, 100, 20, 0.5) == ({**wide, "savings_high_ns": 90}, [])
