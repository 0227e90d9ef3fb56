"""What cannot be swept is refused before any trial, and a job that does not run is no success."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from advisor.cli.tune import command
from advisor.config.paths import shipped
from advisor.config.sweep import Axis, load_space
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.tune import run as engine
from advisor.tune.budget import Budget
from advisor.tune.prepare import prepare
from advisor.tune.recommend import recommend
from advisor.tune.trial import TrialResult

STUDY = str(shipped("workloads") / "gpt2-large-2xh100.yaml")


def refused(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> AdvisorError:
    def run_trial(*_: Any, **__: Any) -> TrialResult:
        raise AssertionError("a trial was run")

    monkeypatch.setattr(engine, "run_trial", run_trial)
    with pytest.raises(AdvisorError) as caught:
        CliRunner().invoke(command, ["--sweep", *arguments], catch_exceptions=False)
    return caught.value


def test_a_list_of_strategies_is_refused_with_what_to_say_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "s"
    error = refused(monkeypatch, STUDY, "-o", str(folder))
    assert error.message.startswith("strategy single,ddp,fsdp2,fsdp2-zero2: a sweep is of one job")
    assert error.hint == "name one with --strategy, for example --strategy ddp"
    assert not folder.exists()


def test_a_device_that_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = tmp_path / "s"
    error = refused(monkeypatch, STUDY, "--strategy", "ddp", "-o", str(folder))
    assert error.message == "device cuda and 2 ranks on this machine: it has 0 GPUs for torch"
    assert error.hint.startswith("device: cpu in the workload's file")
    assert not folder.exists()


def test_an_empty_command_is_not_the_reference_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "run_trial", None)
    found = CliRunner().invoke(command, ["--sweep", "--"])
    assert found.exit_code == 2
    assert "no command stands after --" in found.output


def test_a_budget_that_compares_nothing_is_refused_before_the_job_is_looked_at(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "s"
    line = ["--sweep", "--budget", "14", "-o", str(folder), "--", "a-command-that-is-never-run"]
    result = CliRunner().invoke(command, line)
    assert isinstance(result.exception, AdvisorError)
    assert result.exception.message.startswith("--budget 14:")
    assert not folder.exists()


@pytest.mark.slow
def test_a_workload_that_does_not_run_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_trial(_job: Any, configuration: Any, _folder: Path, **values: Any) -> TrialResult:
        return TrialResult(
            number=values["number"], configuration=configuration, purpose=values["purpose"],
            is_baseline=values["is_baseline"], status="crash", message="rank 1 failed: boom",
        )  # fmt: skip

    monkeypatch.setattr(engine, "run_trial", run_trial)
    done = CliRunner().invoke(
        command, ["--sweep", "-o", str(tmp_path / "s"), "-q"], standalone_mode=False
    )
    assert "WHY      rank 1 failed: boom" in done.stdout
    assert done.return_value == 2


def test_a_value_that_the_job_refuses_is_left_out_with_its_reason(tmp_path: Path) -> None:
    axes = [Axis(setting="micro_batch", values=[2, 3])]
    sweep = prepare(Workload(name="w"), axes, tmp_path, {}, Budget(timeout_s=1))
    why = "micro_batch=3: global_batch 8 and micro_batch 3 on 2 data-parallel ranks: not a multiple"
    assert [line for line in recommend(sweep, []).not_tried if line.startswith(why)]
    alone = [Axis(setting="micro_batch", values=[3])]
    with pytest.raises(AdvisorError, match=why):
        prepare(Workload(name="w"), alone, tmp_path, {}, Budget(timeout_s=1))


def test_a_variable_without_its_prefix_is_refused_with_it(tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("axes:\n  - {setting: NCCL_ALGO, values: [Ring]}\n")
    with pytest.raises(AdvisorError, match="a variable is written 'env") as caught:
        load_space(space)
    assert "'env.NCCL_ALGO'" in str(caught.value)
    assert f"{space}:2" in str(caught.value)
