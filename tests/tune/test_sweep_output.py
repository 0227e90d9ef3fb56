"""What a sweep prints for people: its trials' numbers, their failures, and commands to paste."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.cli import _tune_output
from advisor.report.commands import is_command
from advisor.tune.recommend import recommend, start_line
from advisor.tune.sweep import Plan
from tests.tune.test_sweep import finish, make, play


def test_a_failed_trial_is_numbered_as_its_folder_and_says_its_whole_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN the fourth trial, which failed with a cause at the end of a long line
    sweep = make(tmp_path)
    cause = f"rank 1 failed: RuntimeError: {'x' * 200} cannot allocate; the others were ended"
    result = replace(
        finish(Plan("search", {"bucket_cap_mb": 5.0}), 3, 1e6),
        status="oom", step_ns=[], folder="0003", message=f"{cause}\n  more of it",
    )  # fmt: skip
    logs = tmp_path / "trials" / "0003" / "logs"
    logs.mkdir(parents=True)
    # WHEN its line is printed THEN it has the folder's number, the whole cause and the logs
    _tune_output.Progress(sweep, quiet=False)(None, result)
    first, *more = capsys.readouterr().err.splitlines()
    assert first.split() == ["3", "search", "bucket_cap_mb=5.0", "oom"]
    assert [line.strip() for line in more] == [cause, f"logs: {logs}"]


def test_a_trial_that_was_refused_has_no_logs_to_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = make(tmp_path)
    result = replace(
        finish(Plan("search", {"bucket_cap_mb": 5.0}), 12, 1e6),
        status="refused", step_ns=[], folder="0012", message="strategy ddp: too few ranks",
    )  # fmt: skip
    _tune_output.Progress(sweep, quiet=False)(None, result)
    first, *more = capsys.readouterr().err.splitlines()
    assert first.split() == ["12", "search", "bucket_cap_mb=5.0", "refused"]
    assert [line.strip() for line in more] == ["strategy ddp: too few ranks"]


def test_the_command_that_a_sweep_ends_with_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a winner in a folder whose name a shell would cut and never end
    folder = tmp_path / "out em'x"
    sweep = make(folder)
    play(sweep, {1.0: 90, 5.0: 80, 25.0: 100})
    _tune_output.print_result(sweep, recommend(sweep, []))
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("NEXT")]
    # THEN a shell reads two words, and the page knows a command when it sees it
    assert shlex.split(line)[1:] == ["sh", str(folder / "run.sh")]
    assert is_command(start_line(folder))


def test_what_may_change_the_training_is_said_where_it_won(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No run's losses are known here, so that only the setting itself tells."""
    for changes in (False, True):
        sweep = make(tmp_path / str(changes))
        sweep.axes = [a.model_copy(update={"changes_training": changes}) for a in sweep.axes]
        play(sweep, {1.0: 90, 5.0: 80, 25.0: 100})
        result = recommend(sweep, [])
        _tune_output.print_result(sweep, result)
        assert len(result.care) == int(changes)
        assert ("\nCARE " in capsys.readouterr().out) is changes
