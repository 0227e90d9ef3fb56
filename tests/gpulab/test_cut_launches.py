"""A cut file keeps kernels whose launches are lost: their steps are those of the others' calls."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor.api as advisor
from benchmarks.gpulab import edits, run
from benchmarks.gpulab.job import Job

JOB = Job(per_host=4, layers=4, steps=5, torch="2.12", nccl="2.29.7")


@pytest.mark.slow
def test_calls_without_a_launch_are_matched_and_belong_to_a_step(tmp_path: Path) -> None:
    run.write(JOB, *run.simulate(JOB), tmp_path)
    cut = sorted(tmp_path.iterdir())[2]
    edits._cut(cut)
    with advisor.load(tmp_path) as loaded:
        rows = loaded.store.con.execute(
            "SELECT rank, count(*), min(matched_ranks), count(DISTINCT step), "
            "sum((enqueue_ns IS NULL)::INTEGER) FROM collective GROUP BY rank ORDER BY rank"
        ).fetchall()
        steps = loaded.store.con.execute(
            "SELECT count(*) FROM (SELECT call_id FROM collective GROUP BY call_id "
            "HAVING count(DISTINCT step) > 1)"
        ).fetchone()
    of_cut = rows[2]
    # What is left of it is part of the others' calls, though some were launched in what is lost.
    assert 0 < of_cut[1] < rows[0][1]
    assert of_cut[4] > 0
    assert of_cut[2] == len(rows)
    assert of_cut[3] > 2
    assert steps == (0,)
