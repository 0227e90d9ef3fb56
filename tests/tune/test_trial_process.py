"""Real trials in real processes: every way to fail is a result with its log, Ctrl-C is none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from advisor.config.sweep import Configuration
from advisor.config.workload import Workload
from advisor.profile import files
from advisor.profile.progress import Board
from advisor.tune.job import Limits
from advisor.tune.reference import ReferenceJob
from advisor.tune.trial import TrialResult, run_trial
from tests.support.tiny_sweep import JOB, SPACE

pytestmark = pytest.mark.slow


def trial(
    folder: Path, configuration: Configuration, *, timeout_s: float = 60.0, **changes: object
) -> TrialResult:
    job = {
        "name": "tiny", "compute": "emulated", "strategy": "ddp", "world_size": 2,
        "micro_batch": 1, "sequence_length": 16, "warmup_steps": 1, "timed_steps": 15,
        "emulated": {"layers": 2, "forward_ms": 1, "backward_ms": 1, "gradient_mb": 0.01},
        **changes,
    }  # fmt: skip
    return run_trial(
        ReferenceJob(Workload.model_validate(job)), configuration, folder,
        number=0, is_baseline=False, purpose="search", limits=Limits(timeout_s),
    )  # fmt: skip


def log_of(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("logs/**/stderr.log")))


@pytest.mark.long
def test_a_crash_is_a_result_and_its_log_says_why(tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    # GIVEN an interface that does not exist
    result = trial(tmp_path / "t", {"env.GLOO_SOCKET_IFNAME": "nosuch0"})
    assert result.status == "crash"
    assert "nosuch0" in log_of(tmp_path / "t")
    assert "nosuch0" in result.message
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    # AND torch's launcher leaves none of its handlers behind
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


@pytest.mark.long
def test_a_hang_ends_within_the_limit_and_leaves_its_stacks(tmp_path: Path) -> None:
    # GIVEN steps of ten minutes and a limit of ten seconds
    slow = {"layers": 1, "forward_ms": 600_000, "backward_ms": 1, "gradient_mb": 0.01}
    result = trial(tmp_path / "t", {}, timeout_s=10.0, emulated=slow)
    assert result.status == "hang"
    assert "no progress" in result.message
    assert "most recent call first" in log_of(tmp_path / "t"), "the stacks of what hung"


@pytest.mark.long
def test_memory_that_runs_out_is_told_from_a_crash(tmp_path: Path) -> None:
    # GIVEN gradients of 64 TiB
    huge = {"layers": 1, "forward_ms": 1, "backward_ms": 1, "gradient_mb": 64 << 20}
    result = trial(tmp_path / "t", {}, emulated=huge)
    assert result.status == "oom", result.message


@pytest.mark.long
def test_ctrl_c_loses_the_running_trial_only_and_resume_goes_on(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "space.yaml").write_text(SPACE)
    command = [
        sys.executable, "-m", "advisor", "tune", "--sweep", "job.yaml", "--space", "space.yaml",
        "-o", "sweep",
    ]  # fmt: skip
    journal = tmp_path / "sweep" / "trials.jsonl"
    # GIVEN a sweep whose second trial runs WHEN the terminal's Ctrl-C reaches the process group
    _interrupted_in(command, tmp_path, 1)
    # THEN the first trial is on the disk
    kept = journal.read_text().splitlines()
    assert [json.loads(line)["number"] for line in kept[1:]] == [0]
    # AND the same command goes on from there, the first trial untouched
    _interrupted_in([*command, "--resume"], tmp_path, 2)
    lines = journal.read_text().splitlines()
    assert lines[:2] == kept
    assert [(r["number"], r["status"]) for r in map(json.loads, lines[1:])] == [
        (0, "ok"), (1, "ok"),
    ]  # fmt: skip
    # A budget that is spent ends it, and says so.
    done = subprocess.run(
        [*command, "--resume", "--budget", "1s"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "RESULT   Nothing was tried" in done.stdout
    assert journal.read_text().splitlines() == lines


def _interrupted_in(command: list[str], folder: Path, trial: int) -> None:
    """Start a sweep, press Ctrl-C while ``trial`` runs, and see it end in words."""
    process = subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # Where these tests run in the background of a script, their children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not list((folder / "sweep" / "trials" / f"{trial:04d}").glob("logs/*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_killed_sweep_leaves_no_rank_behind(tmp_path: Path) -> None:
    # GIVEN a sweep whose first trial takes ten minutes a step
    (tmp_path / "job.yaml").write_text(JOB.replace("forward_ms: 1", "forward_ms: 600000"))
    (tmp_path / "space.yaml").write_text(SPACE)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "advisor", "tune", "--sweep", "job.yaml", "--space", "space.yaml",
            "--timeout", "600", "-o", "sweep",
        ],
        cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    path = files.board(tmp_path / "sweep" / "trials" / "0000", 0)
    deadline = time.monotonic() + 300
    ranks: list[int] = []
    while len(ranks) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
        if path.exists():
            with contextlib.closing(Board(path, 2)) as board:
                ranks = [position.pid for position in board.read(0) if position.pid]
    # WHEN nobody can clean up THEN the ranks end all the same
    process.kill()
    process.wait()
    while any(is_running(rank) for rank in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"
