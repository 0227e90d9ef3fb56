"""What a sweep leaves untried is said, with the reason, in the same counts everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.cli import _tune_output
from advisor.tune.page import _tried
from advisor.tune.recommend import recommend
from advisor.tune.sweep import Plan, Sweep
from tests.tune.test_sweep import finish, make, play

LOSING = {1.0: 110.0, 5.0: 120.0, 25.0: 100.0}
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
    assert result.verdict.startswith(
        "leave it: no measurable gain in the 1 of 2 other combinations tried (resolution"
    )


def test_a_sweep_that_tried_nothing_does_not_say_that_it_tried_everything(tmp_path: Path) -> None:
    sweep = make(tmp_path, seconds=5)
    # THEN the first trial tells that the budget holds no comparison
    assert play(sweep, NO_GAIN) == ["baseline"]
    result = recommend(sweep, [])
    assert result.not_tried == [
        "2 of the 2 other combinations of the grid: what was left of the time (4 of 5 s) does not "
        "hold another with what would confirm it"
    ]
    assert result.verdict == (
        "nothing was tried: trials take 1 s here, and a comparison with its confirmation takes 13 "
        "of them; pass a --budget of 13s or more"
    )
    assert play(make(tmp_path, seconds=13), NO_GAIN).count("search") == 1


def test_time_kept_for_a_confirmation_that_nothing_needs_is_searched_in_and_then_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN time for one try that wins beside another that may: 3 + 2 * 2 + 8, not 12
    assert play(make(tmp_path, seconds=15), LOSING).count("search") == 2
    # GIVEN a second less WHEN the one try does not win
    sweep = make(tmp_path, seconds=14)
    assert play(sweep, LOSING).count("search") == 1
    # THEN nine of fourteen seconds are left, no one waits for them, and every place says so
    said = (
        "1 of the 2 other combinations of the grid: what was left of the time (9 of 14 s) does not "
        "hold another with what would confirm it"
    )
    assert sweep.left_s == 0.0
    result = recommend(sweep, [])
    assert result.not_tried == [said]
    _tune_output.print_result(sweep, result)
    assert f"UNTRIED  {said}\n" in capsys.readouterr().out


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
        "1 of the 2 other combinations of the grid: the budget of trials allows for 1 beside the "
        "confirmation, of which 4 trials were not needed; --budget 19 tries all"
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
    assert result.verdict.startswith("leave it: no measurable gain (resolution")


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
    assert _tried(sweep, result).startswith("Tried 1 of 2 other combinations, ")
