"""The verdict and its figures in the real trackers, each offline, read back by its own reader.

Where W&B is not installed, a stand-in that keeps rows and steps as it does takes its place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
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


@pytest.mark.slow
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


class WandbRun:
    """A run of W&B 0.31 as to rows: a log behind its step is dropped, a commit ends the row."""

    def __init__(self) -> None:
        self.step = 0
        self.rows: dict[int, dict[str, Any]] = {}
        self.summary: dict[str, Any] = {}
        self.axes: dict[str, str] = {}

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(
        self, values: dict[str, Any], step: int | None = None, commit: bool | None = None
    ) -> None:
        if step is not None and step < self.step:
            return
        self.step = self.step if step is None else step
        self.rows.setdefault(self.step, {}).update(values)
        self.summary.update(values)
        if commit or (commit is None and step is None):
            self.step += 1


def test_weights_and_biases_has_the_figures_at_the_jobs_step_though_its_own_is_ahead(
    run: api.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = WandbRun()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=tracked))
    for _ in range(30):  # a script that logs twice per step
        tracked.log({"loss": 1.0})
    publish(run, step=15)
    tracked.log({"loss": 0.5})
    assert tracked.axes == {"advisor/*": "advisor/step"}
    row = tracked.rows[30]
    assert (row["loss"], row["advisor/step"]) == (0.5, 15)  # the job's rows keep their steps
    assert row["advisor/step_ms"] == figures(run)["step_ms"]
    assert tracked.step == 31


@pytest.mark.slow
def test_weights_and_biases(run: api.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with wandb.init(project="p", dir=str(tmp_path)) as tracked:
        for _ in range(30):
            tracked.log({"loss": 1.0})
        assert publish(run, step=15) == ["wandb"]
        tracked.log({"loss": 0.5})
        kept = dict(tracked.summary)
        assert tracked.step == 31
    for name, value in figures(run).items():
        assert kept[f"advisor/{name}"] == pytest.approx(value)
    assert kept["advisor/step"] == 15
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
