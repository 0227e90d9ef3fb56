"""What a sweep leaves untried is said, with the reason, in the same counts everywhere."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.cli import _tune_output
from advisor.config.sweep import Axis
from advisor.tune.page import _tried
from advisor.tune.points import Points
from advisor.tune.recommend import recommend
from advisor.tune.search import Predicted
from advisor.tune.sweep import Plan, Sweep
from tests.tune.test_sweep import finish, make, play

LOSING = {1.0: 110.0, 5.0: 120.0, 25.0: 100.0}
MORE = [30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0]
NO_GAIN = {1.0: 100.0, 5.0: 100.0, 25.0: 100.0}


def test_a_sweep_that_its_time_ended_names_what_it_did_not_reach(tmp_path: Path) -> None:
    # GIVEN time for one of the two other combinations
    sweep = make(tmp_path, seconds=14)
    play(sweep, NO_GAIN)
    result = recommend(sweep, [])
    # THEN the list, the verdict and the counts say so
    assert result.not_tried == [
        "1 of the 2 other combinations of the grid: the time of the budget ended"
    ]
    assert result.outcome == "no-gain"
    assert (result.tried_points, result.grid_points) == (2, 3)


def test_a_sweep_that_tried_nothing_does_not_say_that_it_tried_everything(tmp_path: Path) -> None:
    sweep = make(tmp_path, seconds=5)
    # THEN the first trial tells that the budget holds no comparison
    assert play(sweep, NO_GAIN) == ["baseline"]
    result = recommend(sweep, [])
    assert result.not_tried == [
        "2 of the 2 other combinations of the grid: what was left of the time (4 of 5 s) does not "
        "hold one with what would confirm it"
    ]
    assert result.outcome == "too-short"
    # AND what ran before the trials counts in the budget that would do
    sweep.before_s = 2.0
    assert "11s" in recommend(sweep, []).verdict
    assert play(make(tmp_path, seconds=13), NO_GAIN).count("search") == 1


@pytest.mark.parametrize("seconds", [9, 12])
@pytest.mark.parametrize(("best", "recommended"), [(80.0, True), (100.0, False)])
def test_time_for_no_search_confirms_what_is_worth_a_try_most(
    tmp_path: Path, seconds: float, best: float, recommended: bool
) -> None:
    # GIVEN a diagnosis that advises larger buckets, and time for a confirmation alone
    sweep = make(tmp_path, seconds=seconds)
    sweep.axes = [axis.model_copy(update={"expected_share": 0.3}) for axis in sweep.axes]
    sweep.predictions = Predicted()
    made = plans(sweep, {1.0: best, 5.0: best, 25.0: 100.0})
    assert [plan.purpose for plan in made] == ["baseline", *["confirm-a", "confirm-b"] * 4]
    result = recommend(sweep, [])
    assert (result.recommended, result.tried_points) == (recommended, 2)
    assert result.outcome == ("won" if recommended else "no-gain")
    assert [one.search_gain_share for one in result.confirmations] == [None]
    # WHEN it is ended in the middle THEN what goes on is the same pair
    tried = sweep.tried()[0].configuration
    del sweep.results[4:]
    assert [one.configuration for one in sweep.candidates()] == [tried]


def test_what_is_confirmed_at_once_and_does_not_run_is_called_that(tmp_path: Path) -> None:
    sweep = make(tmp_path, seconds=10)
    while (plan := sweep.next()) is not None:
        result = finish(plan, len(sweep.results), 100e6)
        if plan.purpose == "confirm-b":
            result = replace(result, status="oom", step_ns=[])
        sweep.results.append(result)
    assert [r.purpose for r in sweep.results] == ["baseline", "confirm-a", "confirm-b"]
    assert recommend(sweep, []).outcome == "none-ran"


@pytest.mark.slow
def test_time_that_nothing_waits_for_is_searched_in_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN time for one try that wins beside another that may: 3 + 2 * 2 + 8, not 12
    assert play(make(tmp_path, seconds=15), LOSING).count("search") == 2
    # GIVEN less WHEN the first try does not win THEN a second is tried, alone, while it fits
    assert play(make(tmp_path, seconds=14), LOSING).count("search") == 2
    sweep = make(tmp_path, seconds=14)
    sweep.points = wider(sweep)
    assert play(sweep, LOSING | dict.fromkeys(MORE, 130.0)).count("search") == 5
    assert sweep.spent_s == 13.0
    assert sweep.left_s == 0.0
    said = "4 of the 9 other combinations of the grid: the time of the budget ended"
    result = recommend(sweep, [])
    assert result.not_tried == [said]
    _tune_output.print_result(sweep, result)
    assert f"UNTRIED  {said}\n" in capsys.readouterr().out


def wider(sweep: Sweep) -> Points:
    """Nine other caps beside the present one: too many for a short budget."""
    axis = Axis(setting="bucket_cap_mb", values=[1.0, 5.0, *MORE, 25.0])
    sweep.axes, sweep.limit = [axis], 9
    return Points.of([axis], sweep.start)


def test_what_wins_too_late_to_be_confirmed_is_said_and_a_larger_budget_confirms_it(
    tmp_path: Path,
) -> None:
    # GIVEN a first try that loses, and a second that wins when the time holds no confirmation
    late = {1.0: 110.0, 5.0: 80.0, 25.0: 100.0}
    sweep = make(tmp_path, seconds=14)
    order = [p.configuration["bucket_cap_mb"] for p in plans(sweep, late) if p.purpose == "search"]
    assert order == [1.0, 5.0]
    # THEN it is no recommendation, no confirmation was begun, and the verdict says what would do
    assert not any(r.purpose.startswith("confirm") for r in sweep.results)
    assert sweep.spent_s <= 14
    result = recommend(sweep, [])
    assert not result.recommended
    assert result.outcome == "too-late"
    assert re.search(r"bucket_cap_mb=5\.0 was 20 %", result.also[0])
    assert "--budget of 15s" in result.why
    assert result.confidence == "rule-of-thumb"
    # WHEN the sweep goes on with that budget THEN it is confirmed at once
    sweep.seconds = 15.0
    assert [p.purpose for p in plans(sweep, late)] == ["confirm-a", "confirm-b"] * 4
    assert recommend(sweep, []).recommended


def test_a_confirmation_that_the_time_was_kept_for_runs_though_trials_got_slower(
    tmp_path: Path,
) -> None:
    # GIVEN a try that was begun when its confirmation fitted, and took longer than the others
    sweep = make(tmp_path, seconds=15)
    plan_of = {"baseline": 100.0, "search": 80.0}
    while (plan := sweep.next()) is not None and plan.purpose in plan_of:
        result = finish(plan, len(sweep.results), plan_of[plan.purpose] * 1e6)
        took = 9.0 if plan.purpose == "search" else 1.0
        sweep.results.append(replace(result, seconds=took))
    assert plan is not None
    assert plan.purpose == "confirm-a"


def test_one_other_combination_is_counted_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = make(tmp_path)
    sweep.points = replace(sweep.points, jobs=sweep.points.jobs[:2])
    _tune_output.announce(sweep, [], None)
    assert "Sweeping bucket_cap_mb: 1 other combination, " in capsys.readouterr().err


def plans(sweep: Sweep, true_ms: dict[float, float]) -> list[Plan]:
    made = []
    while (plan := sweep.next()) is not None:
        step = true_ms[float(plan.configuration["bucket_cap_mb"] or 0)] * 1e6
        wobble = 1 + len(sweep.results) % 3 * 1e-4
        sweep.results.append(finish(plan, len(sweep.results), step * wobble))
        made.append(plan)
        assert len(made) < 60
    return made


def test_present_settings_that_do_not_run_are_why_the_rest_was_not_tried(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    assert recommend(sweep, []).not_tried == [
        "2 of the 2 other combinations of the grid: the present settings did not run"
    ]


def test_a_budget_of_trials_that_leaves_one_out_says_so(tmp_path: Path) -> None:
    sweep = make(tmp_path, trials=17)
    play(sweep, NO_GAIN)
    # Three baselines, a try with a baseline after it, and one candidate of at most two confirmed.
    assert len(sweep.results) == 5 + 8
    assert recommend(sweep, []).not_tried == [
        "1 of the 2 other combinations of the grid: the budget has trials for 1 and a "
        "confirmation; --budget 19 tries all"
    ]


def test_the_budget_that_is_named_tries_all(tmp_path: Path) -> None:
    sweep = make(tmp_path, trials=19)
    play(sweep, NO_GAIN)
    assert recommend(sweep, []).not_tried == []


def test_a_sweep_that_was_stopped_says_so(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    sweep.results.append(finish(Plan("baseline", sweep.start), 0, 100e6))
    assert recommend(sweep, []).not_tried == [
        "2 of the 2 other combinations of the grid: the sweep was stopped before them"
    ]


def test_the_whole_grid_tried_leaves_nothing_out(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    play(sweep, NO_GAIN)
    result = recommend(sweep, [])
    assert result.not_tried == []
    assert result.outcome == "no-gain"
    assert "combinations" not in result.verdict


def test_terminal_and_page_count_the_same_combinations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep: Sweep = make(tmp_path, seconds=14)
    play(sweep, NO_GAIN)
    result = recommend(sweep, [])
    _tune_output.announce(sweep, [], None)
    _tune_output.print_result(sweep, result)
    printed = capsys.readouterr()
    assert "Sweeping bucket_cap_mb: 2 other combinations, " in printed.err
    assert "TRIED    1 of 2 other combinations, in " in printed.out
    assert _tried(sweep, result).startswith("1 of 2 other combinations was tried, ")
