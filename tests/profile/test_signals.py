"""A signal that torch's launcher hides behind an error of its own is still that signal."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest

from advisor.config.workload import Workload
from advisor.profile.failures import LaunchStoppedError
from advisor.profile.launch import launch
from advisor.profile.rendezvous import How
from advisor.profile.signals import signal_behind

api = pytest.importorskip("torch.distributed.elastic.metrics.api", reason="needs torch")


def hidden_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch raises when SIGTERM comes while ``prof`` takes the time."""
    from torch.distributed.elastic.multiprocessing import SignalException

    def time() -> NoReturn:
        raise SignalException("SIGTERM", signal.SIGTERM)

    monkeypatch.setattr(api.time, "time", time)
    try:
        api.prof(lambda: None)()
    finally:
        monkeypatch.undo()


def test_a_launch_ended_in_that_moment_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elastic_launch(*_: Any) -> Any:
        return lambda *_: hidden_signal(pytest.MonkeyPatch())

    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", elastic_launch)
    job = Workload(strategy="single", world_size=1)
    with pytest.raises(LaunchStoppedError, match="stopped by SIGTERM") as caught:
        launch(job, tmp_path, How(timeout_s=5))
    # AND the cause names the signal, for the exit status
    assert getattr(caught.value.__cause__, "sigval", None) == signal.SIGTERM


def test_an_error_without_a_signal_stays_what_it_is() -> None:
    error = UnboundLocalError("a defect")
    with pytest.raises(UnboundLocalError, match="a defect") as caught:
        signal_behind(error)
    assert caught.value is error
