"""Micro-batch sweeps: memory that really runs out is a row, any other end keeps the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch")

from advisor.cli import _profile_sweep
from advisor.cli.profile import command
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile.failures import LaunchError

WORKLOAD = """\
model: {family: gpt2, layers: 2, hidden: 64, vocabulary: 64}
strategy: single
world_size: 1
sequence_length: 16
warmup_steps: 1
timed_steps: 2
steps: 1
"""


def run(folder: Path, *options: str, workload: str = WORKLOAD) -> Result:
    file = folder / "workload.yaml"
    file.write_text(workload)
    return CliRunner().invoke(command, [str(file), "-o", str(folder / "out"), *options])


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "out" / "micro-batches.json").read_text())
    return found


@pytest.mark.long
def test_memory_that_runs_out_is_a_row_and_ends_the_sweep(tmp_path: Path) -> None:
    # 200,000 sequences of 16 tokens are 820 MB of activations in every layer; the limit is 500.
    done = run(tmp_path, "--sweep-micro-batch", "2,200000,1000000", "--memory-limit", "500")
    assert done.exit_code == 0, done.output
    first, second = rows(tmp_path)
    assert (first["micro_batch"], first["status"]) == (2, "ok")
    assert first["tokens_per_second"] > 0
    assert first["peak_memory_bytes"] > 50e6
    assert (second["micro_batch"], second["status"]) == (200_000, "out of memory")
    assert "rank 0 failed" in second["message"]
    table = done.stdout[done.stdout.index("micro-batch  ") :].splitlines()
    assert table[1].split()[0] == "2"
    assert table[2].split() == ["200000", "1", "out", "of", "memory"]


@pytest.mark.parametrize(
    "error",
    [LaunchError("rank 0 exited with status 17; the others were ended"), KeyboardInterrupt()],
)
def test_another_error_is_raised_after_the_rows_are_kept(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_works(workload: Workload, *_: Any) -> dict[str, Any]:
        if workload.micro_batch == 1:
            return {"step_ns": {"median": 5}, "tokens_per_second": 7.0, "peak_memory_bytes": 9}
        raise error

    monkeypatch.setattr(_profile_sweep, "run_one", one_works)
    done = run(tmp_path, "--sweep-micro-batch", "1,2,4")
    assert done.exit_code != 0
    kept = rows(tmp_path)
    assert [row["status"] for row in kept] == ["ok", "failed"]
    assert kept[0]["tokens_per_second"] == 7
    assert kept[1]["message"] == (str(error) or "KeyboardInterrupt")
    assert "failed" in done.stdout


def test_the_global_batch_is_kept_while_the_micro_batch_leaves_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def note(workload: Workload, *_: Any) -> dict[str, Any]:
        seen.append((workload.micro_batch, workload.gradient_accumulation))
        return {"step_ns": {"median": 5}, "tokens_per_second": 7.0, "peak_memory_bytes": 9}

    monkeypatch.setattr(_profile_sweep, "run_one", note)
    run(tmp_path, "--sweep-micro-batch", "1,8,32,64", workload=WORKLOAD + "global_batch: 32\n")
    assert seen == [(1, 32), (8, 4), (32, 1), (64, 1)]


def test_a_size_that_cannot_work_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "--sweep-micro-batch", "1,5", workload=WORKLOAD + "global_batch: 32\n")
    assert isinstance(done.exception, AdvisorError)
    assert "global_batch 32 and micro_batch 5" in str(done.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "0,1", "1,x"])
def test_sizes_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(AdvisorError, match="cannot read"):
        _profile_sweep.sizes(text)


def test_a_sweep_runs_on_one_machine(tmp_path: Path) -> None:
    done = run(tmp_path, "--sweep-micro-batch", "1", "--nnodes", "2", "--rdzv-endpoint", "a:1")
    assert "--sweep-micro-batch and --nnodes" in str(done.exception)
