"""Recordings of two runs in one folder are not taken for one."""

from __future__ import annotations

import shutil
from pathlib import Path

from advisor import api

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_ranks_of_two_runs_are_no_run(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "gpt2-tiny-ddp-2" / "rank0.json.gz", tmp_path)
    shutil.copy(FIXTURES / "gpt2-tiny-ddp-2-slow-rank" / "rank1.json.gz", tmp_path)
    with api.load(tmp_path) as run:
        assert run.report.verdict.reason == "never-met"


def test_ranks_of_one_run_met(tmp_path: Path) -> None:
    for rank in range(2):
        shutil.copy(FIXTURES / "gpt2-tiny-ddp-2-slow-rank" / f"rank{rank}.json.gz", tmp_path)
    with api.load(tmp_path) as run:
        assert run.report.verdict.reason != "never-met"
