"""`advisor record -- COMMAND` and the handler for torch.profiler, on a real script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from advisor import api
from advisor.cli.record import command
from advisor.config.paths import shipped
from advisor.engine.catalogue import load_rule
from advisor.profile import files

SCRIPT = Path(__file__).parents[1] / "scripts" / "ddp.py"
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]


@pytest.mark.slow
def test_a_launchers_ranks_are_recorded_and_the_job_runs_to_its_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saved, traces = tmp_path / "saved", tmp_path / "traces"
    job = [*LAUNCH, str(SCRIPT), "--width", "64", "--steps", "12", "--save-every", "5",
           "--out", str(saved)]  # fmt: skip
    asked = ["--skip", "2", "--steps", "3", "-o", str(traces)]
    result = CliRunner().invoke(command, [*asked, "--", *job], standalone_mode=False)
    assert result.exception is None
    # torch 2.13 aborts one such job in five at its end, when all of its work is done: six of 25 did
    # so without the recorder.
    aborted = "terminate called without an active exception" in capfd.readouterr().err
    assert result.return_value == int(aborted)
    assert [path.name for path in files.traces(traces)] == ["rank0.json.gz", "rank1.json.gz"]
    assert (saved / "last.pt").is_file()  # the job's own checkpoints are its own
    with api.load(traces) as run:
        assert run.steps().groupby("rank").size().to_dict() == {0: 3, 1: 3}


def test_a_call_in_each_recorded_step_is_enough_to_name_a_late_rank() -> None:
    rule = load_rule(shipped("rules") / "jitter.yaml")
    (steps,) = (p.default for p in command.params if p.name == "steps")
    assert steps >= rule.params["min_calls"].default


def test_a_second_recording_takes_the_next_folder(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    assert files.next_free(folder) == folder
    for name in ("traces", "traces-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0.json.gz").write_bytes(b"x")
    assert files.next_free(folder) == tmp_path / "traces-3"


def test_an_earlier_recording_is_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    old, own = tmp_path / "rank0.json.gz", tmp_path / "notes.txt"
    for path in (old, own):
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    CliRunner().invoke(command, ["--force", "-o", str(tmp_path), "--", "true"])
    assert (old.exists(), own.exists()) == (False, True)
    assert not tmp_path.with_name(f"{tmp_path.name}-2").exists()


def test_a_command_that_records_nothing_says_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["-o", str(tmp_path / "t"), "--", "true"])
    assert "did not load the recorder" in str(result.exception)
    assert "write the job's command after --" in CliRunner().invoke(command, []).output


def test_a_command_that_fails_at_its_start_is_not_told_to_make_more_steps(tmp_path: Path) -> None:
    from advisor.cli.record import _nothing
    from advisor.profile.hook import order

    order.loaded(tmp_path).parent.mkdir()
    order.loaded(tmp_path).touch()
    asked = order.Order(str(tmp_path), warmup=10, traced=12)
    failed = _nothing(asked, [], 1)
    assert "status 1 before its steps were recorded" in failed.message
    assert failed.hint == "its own output, above, says why"
    assert "more steps" in _nothing(asked, [], 0).hint


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 15])
def test_a_command_that_a_signal_ends_early_is_not_its_launchers_fault(
    tmp_path: Path, number: int
) -> None:
    """THEN the status is the command's, and no launcher is said to have kept the recorder away."""
    # Where the tests themselves run in the background a job does not heed Ctrl-C.
    heed = f"signal.signal({number}, signal.SIG_DFL)"
    line = f"import os, signal; {heed}; os.kill(os.getpid(), {number})"
    asked = ["-o", str(tmp_path / "t"), "--", sys.executable, "-c", line]
    ended = CliRunner().invoke(command, asked, standalone_mode=False)
    assert (ended.exception, ended.return_value) == (None, 128 + number)


def test_a_launcher_that_is_asked_to_end_has_no_reason_in_its_output(tmp_path: Path) -> None:
    """torchrun ends with status 1 on a SIGTERM that `advisor record` handed on."""
    line = (
        "import os, signal, sys, time; signal.signal(15, lambda *_: sys.exit(1)); "
        "os.kill(os.getppid(), 15); time.sleep(30)"
    )
    asked = ["-o", str(tmp_path / "t"), "--", sys.executable, "-c", line]
    ended = CliRunner().invoke(command, asked, standalone_mode=False)
    assert (ended.exception, ended.return_value) == (None, 1)
    assert "was ended before it wrote a trace" in ended.stderr


@pytest.mark.slow
def test_the_handler_keeps_each_cycle_and_says_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    import advisor

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = schedule(wait=0, warmup=1, active=2, repeat=2)
    handler = advisor.trace_handler(tmp_path)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=handler) as p:
        for _ in range(6):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
            p.step()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["cycle-1", "cycle-2"]
    assert capsys.readouterr().out.count("VERDICT") == 2


class WriterWithoutDisk:
    """A tracker that cannot write."""

    def add_scalar(self, *_: object) -> None:
        """As TensorBoard's writer on a full disk."""
        raise OSError("no space")


@pytest.mark.slow
def test_a_tracker_that_fails_does_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    import advisor

    handler = advisor.trace_handler(tmp_path, tensorboard=WriterWithoutDisk())
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=handler) as p:
        for _ in range(3):
            torch.ones(2, 8).sum()
            p.step()
    said = capsys.readouterr()
    assert "VERDICT" in said.out
    assert "no space" in said.err
