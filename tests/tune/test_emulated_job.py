"""A sweep of an emulated job says so, and varies nothing that waits do not follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor.cli import _tune_output
from advisor.cli.tune import command
from advisor.config.sweep import Axis
from advisor.config.workload import Emulated, Workload
from advisor.errors import AdvisorError
from advisor.report.sections.sweep import KEPT, WON_EMULATED
from advisor.tune.budget import Budget
from advisor.tune.page import _cause, _tried
from advisor.tune.prepare import MINIMUM_TIMED_STEPS, of_real_work, prepare, traced_only
from advisor.tune.recommend import recommend, trial_rows
from advisor.tune.sweep import Sweep
from tests.tune.test_sweep import AXES, play

JOB = Workload(name="w", bucket_cap_mb=25, compute="emulated", emulated=Emulated())


def _swept(folder: Path, fastest_ms: float) -> Sweep:
    sweep = prepare(JOB, AXES, folder, {}, Budget(timeout_s=1))
    play(sweep, {1.0: 90, 5.0: fastest_ms, 25.0: 100})
    return sweep


def test_a_winner_of_emulated_trials_is_not_called_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = _swept(tmp_path, 80)
    result = recommend(sweep, [])
    assert result.recommended
    assert result.confidence == "emulated"
    assert "the emulated step is 2" in result.verdict
    assert any(text.startswith("compute: emulated: layers wait") for text in result.assumes)
    assert {row["origin"] for row in trial_rows(sweep)} == {"emulated"}
    assert _tried(sweep, result).startswith("With emulated compute, ")
    assert _cause(sweep, result) == WON_EMULATED
    _tune_output.print_result(sweep, result)
    assert " ms per step (compute is emulated)\n" in capsys.readouterr().out


def test_emulated_settings_that_are_kept_are_not_called_measured_either(tmp_path: Path) -> None:
    sweep = _swept(tmp_path, 100)
    sweep.results = [r for r in sweep.results if r.configuration["bucket_cap_mb"] != 1.0]
    result = recommend(sweep, [])
    assert not result.recommended
    assert result.confidence == "emulated"
    assert _cause(sweep, result) == KEPT


def test_what_emulated_times_do_not_follow_is_not_swept() -> None:
    axes = [Axis(setting="micro_batch", values=[1, 8]), *AXES]
    kept, why = of_real_work(JOB, axes)
    assert [axis.setting for axis in kept] == ["bucket_cap_mb"]
    assert why == ["micro_batch: not swept, compute is emulated and its times do not follow it"]
    assert of_real_work(Workload(name="w"), axes) == (axes, [])


def test_a_space_of_nothing_else_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text("axes:\n  - {setting: micro_batch, values: [1, 8]}\n")
    (tmp_path / "job.yaml").write_text("compute: emulated\nemulated: {layers: 2}\n")
    line = ["--sweep", str(tmp_path / "job.yaml"), "--space", str(tmp_path / "space.yaml")]
    with pytest.raises(AdvisorError, match="nothing to vary: micro_batch: not swept, compute is"):
        CliRunner().invoke(command, line, catch_exceptions=False)


def test_the_present_settings_alone_are_timed_over_as_many_steps_as_any_trial(
    tmp_path: Path,
) -> None:
    job = Workload(name="w", timed_steps=5)
    assert (
        traced_only(job, tmp_path, Budget(timeout_s=1)).job.workload.timed_steps
        == MINIMUM_TIMED_STEPS
    )
