"""The verdict and its figures in the real trackers, each offline, read back by its own reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor import api
from advisor.integrations.loggers import figures, publish

FIXTURE = Path(__file__).parents[2] / "fixtures" / "lab-ddp-slow-rank"


@pytest.fixture(scope="module")
def run() -> Iterator[api.Run]:
    with api.load(FIXTURE) as loaded:
        yield loaded


@pytest.mark.slow
def test_the_figures_are_those_of_the_store(run: api.Run) -> None:
    found = figures(run)
    steps = run.steps()
    used = steps[steps["used"]]
    assert found["step_ms"] == pytest.approx((used["end_ns"] - used["start_ns"]).median() / 1e6)
    shares = [found[f"{part}_share"] for part in ("compute", "exposed_comm", "idle")]
    assert all(0 <= share <= 1 for share in shares)
    assert found["exposed_wait_share"] <= found["exposed_comm_share"]
    saved = run.report.verdict.savings_ns
    assert saved is not None
    assert found["recoverable_ms"] == saved / 1e6


def test_a_tracker_that_has_no_run_open_is_left_alone(run: api.Run) -> None:
    assert publish(run) == []


@pytest.mark.slow
def test_tensorboard(run: api.Run, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        assert publish(run, step=7, tensorboard=writer) == ["tensorboard"]
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    for name, value in figures(run).items():
        (point,) = read.Scalars(f"advisor/{name}")
        assert point.step == 7
        assert point.value == pytest.approx(value, rel=1e-6)
    (text,) = read.Tensors("advisor/verdict/text_summary")
    said = text.tensor_proto.string_val[0].decode()
    assert said.split() == run.render("chat").split()


@pytest.mark.slow
def test_weights_and_biases(run: api.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with wandb.init(project="p", dir=str(tmp_path)) as tracked:
        assert publish(run) == ["wandb"]
        kept = dict(tracked.summary)
    for name, value in figures(run).items():
        assert kept[f"advisor/{name}"] == pytest.approx(value)
    assert kept["advisor/verdict"] == run.render("chat")


@pytest.mark.slow
def test_mlflow(run: api.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason="needs mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its default needs a database
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("runs")
    with mlflow.start_run() as tracked:
        assert publish(run, step=7) == ["mlflow"]
    kept = mlflow.get_run(tracked.info.run_id).data
    for name, value in figures(run).items():
        assert kept.metrics[f"advisor/{name}"] == pytest.approx(value)
    assert kept.tags["advisor.cause"] == run.report.verdict.cause
    (said,) = tmp_path.rglob("verdict.txt")
    assert said.read_text(encoding="utf-8") == run.render("chat")
