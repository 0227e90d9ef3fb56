"""What cannot be swept is refused before any trial, and a job that does not run is no success."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from advisor.cli.tune import command
from advisor.config.paths import shipped
from advisor.errors import AdvisorError
from advisor.tune import run as engine
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
    assert "RESULT   the workload itself does not run: rank 1 failed: boom" in done.stdout
    assert done.return_value == 2
