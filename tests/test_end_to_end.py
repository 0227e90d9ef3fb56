"""The whole road on real runs: two trainings that differ must give different, correct findings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the [profile] extra")
pytest.importorskip("nvtx", reason="needs the [profile] extra")

ROOT = Path(__file__).resolve().parent.parent


def advisor(*args: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "advisor", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        check=False,
    )


def record_and_diagnose(folder: Path, *flags: str) -> dict[str, Any]:
    profiled = advisor(
        *("profile", ROOT / "workloads/gpt2.yaml", "-o", folder / "run", "--steps", "10"),
        *("--set", "timed_steps=0", *flags),
    )
    assert profiled.returncode == 0, profiled.stderr
    findings = folder / "findings.json"
    done = advisor(
        "diagnose", folder / "run", "--store", folder / "run.duckdb", "--format", "json",
        "-o", findings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(findings.read_text()))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, Any]]:
    """What is found in a run with nothing wrong, by attempt; each is recorded once."""
    folder = tmp_path_factory.mktemp("healthy")
    return cache(
        lambda attempt: record_and_diagnose(folder / str(attempt), "--bucket-cap-mb", "25")
    )


@pytest.mark.slow
def test_a_rank_that_sleeps_is_named_and_the_same_run_without_it_is_not(
    tmp_path: Path, healthy: Callable[[int], dict[str, Any]]
) -> None:
    # Other tests may hold a rank back for real, but not the same way in every recording.
    for attempt in range(4):
        slow = record_and_diagnose(
            tmp_path / f"slow{attempt}",
            *("--inject", "sleep:rank=1,ms=150", "--bucket-cap-mb", "25"),
        )
        culprits = [f for f in slow["findings"] if f["rule"] == "straggler-rank"]
        assert [f["ranks"] for f in culprits] in ([], [[1]])
        # About the 150 ms that rank 1 slept.
        if culprits and 75 <= culprits[0]["savings_ns"] / 1e6 <= 225:
            break
    assert [f["ranks"] for f in culprits] == [[1]]
    assert slow["verdict"]["cause"] == "straggler-rank"
    assert 75 <= culprits[0]["savings_ns"] / 1e6 <= 225
    for attempt in range(4):
        named = [f for f in healthy(attempt)["findings"] if f["rule"] == "straggler-rank"]
        if not named:
            return
    pytest.fail(f"a rank was blamed in four healthy recordings: {named}")


@pytest.mark.slow
def test_tiny_buckets_are_named_and_large_ones_are_not(
    tmp_path: Path, healthy: Callable[[int], dict[str, Any]]
) -> None:
    # On a busy machine ranks wait for one another instead, which takes in what the calls cost.
    for attempt in range(4):
        small = record_and_diagnose(tmp_path / f"small{attempt}", "--bucket-cap-mb", "0.1")
        rules = {f["rule"] for f in small["findings"]}
        if rules & {"small-buckets", "latency-bound-collectives"}:
            break
    assert rules & {"small-buckets", "latency-bound-collectives"}
    assert "small-buckets" not in {f["rule"] for f in healthy(0)["findings"]}
