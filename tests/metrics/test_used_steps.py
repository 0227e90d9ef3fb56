"""Which steps count: known sets of steps, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import api
from advisor.metrics.compare.figures import figures
from advisor.metrics.steps.annotated import Step, Steps
from advisor.metrics.steps.used import mark_used, step_time
from advisor.whatif.extract import programs


def steps_of(*lengths: int | None, partial: tuple[int, ...] = ()) -> Steps:
    """Steps one after the other; None is one that the rank did not record."""
    return Steps(
        tuple(
            Step(n, 1_000_000 * n, 1_000_000 * n + length, None, None, n not in partial, "x")
            for n, length in enumerate(lengths)
            if length is not None
        )
    )


def left_out(steps: Steps) -> dict[int, str]:
    return {step.number: step.left_out for step in steps.steps if step.left_out}


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((100, 100, 100, 100), {}),
        ((151, 160, 100, 100, 100, 100), {0: "warm-up", 1: "warm-up"}),
        ((150, 100, 100, 100), {}),
        # Slow later on is part of the run; so is what is not far longer.
        ((100, 160, 100, 100), {}),
        ((100, 100, 501, 100), {2: "odd"}),
        ((600, 100, 501, 100, 100), {0: "warm-up", 2: "odd"}),
        ((900, 100), {}),
    ],
)
def test_one_rank(lengths: tuple[int, ...], expected: dict[int, str]) -> None:
    assert left_out(mark_used({0: steps_of(*lengths)}, ())[0]) == expected


def test_a_step_counts_where_it_is_complete_on_all_ranks() -> None:
    found = mark_used({0: steps_of(*[100] * 4), 1: steps_of(*[100] * 4, partial=(3,))}, ())
    assert left_out(found[0]) == left_out(found[1]) == {3: "partial"}
    found = mark_used({0: steps_of(*[100] * 4), 1: steps_of(100, None, 100, 100)}, ())
    assert left_out(found[0]) == {1: "partial"}
    assert left_out(found[1]) == {}


def test_a_cut_rank_goes_where_that_leaves_more_than_its_missing_steps() -> None:
    whole = {rank: steps_of(*[100] * 6) for rank in range(3)}
    short = mark_used({**whole, 3: steps_of(100, 100)}, {3})
    assert left_out(short[3]) == {0: "cut-rank", 1: "cut-rank"}
    assert [left_out(short[rank]) for rank in range(3)] == [{}] * 3
    long = mark_used({**whole, 3: steps_of(*[100] * 5)}, {3})
    assert left_out(long[3]) == {}
    assert [left_out(long[rank]) for rank in range(3)] == [{5: "partial"}] * 3


def test_a_rank_without_device_events_counts_in_no_step() -> None:
    """GIVEN a host's steps of 9 beside a device's of 100 THEN they are left out, and no others."""
    found = mark_used({0: steps_of(*[100] * 4), 1: steps_of(*[9] * 4)}, (), {1})
    assert [left_out(own) for own in found.values()] == [{}, dict.fromkeys(range(4), "no-device")]


def test_the_time_of_a_step_is_its_median_over_ranks() -> None:
    """GIVEN one rank of three slow in step 0 THEN it is no warm-up: most ranks were not slow."""
    found = mark_used(
        {0: steps_of(900, *[100] * 4), 1: steps_of(*[100] * 5), 2: steps_of(*[100] * 5)}, ()
    )
    assert [left_out(own) for own in found.values()] == [{}] * 3


def test_nothing_complete_on_all_ranks_leaves_nothing() -> None:
    found = mark_used({0: steps_of(100, partial=(0,)), 1: steps_of(None, 100)}, ())
    assert [left_out(own) for own in found.values()] == [{0: "partial"}, {1: "partial"}]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2-tiny-ddp-2-slow-rank", "lab-ddp-slow-link"])
def test_every_command_names_one_step_time(fixtures_dir: Path, name: str) -> None:
    with api.load(fixtures_dir / name) as run:
        con = run.store.con
        (only,) = con.execute("SELECT run FROM run").fetchone()
        step = step_time(con, only)
        (summary,) = run.report.runs
        compared = figures(con, only)
        (measured,) = con.execute("SELECT DISTINCT measured_step_ns FROM whatif").fetchone()
        steps = programs(run.store, only)
    assert compared is not None
    assert step == summary.step_ns_median == compared.step_ns == measured
    assert {program.run_step_ns for program in steps} == {step}
