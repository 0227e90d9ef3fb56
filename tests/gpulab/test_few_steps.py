"""Of few steps the size of what a host is late by, beside its spread, tells what signs cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor.api as advisor
from benchmarks.gpulab import run
from benchmarks.gpulab.job import Job
from tests.support.marks import long

JOB = Job(hosts=4, per_host=2, layers=4, steps=5, torch="2.9", nccl="2.27.7")
SLOWER = ((2, 1.08), (3, 1.08))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("slower", "late"), [(SLOWER, [2, 3]), *long(((), None))])
def test_a_host_a_little_slower_in_each_of_four_steps(
    tmp_path: Path, slower: tuple[tuple[int, float], ...], late: list[int] | None
) -> None:
    """GIVEN four hosts, so that no outcome of four signs is significant."""
    job = JOB.__class__(**{**vars(JOB), "compute_factor": slower})
    run.write(job, *run.simulate(job), tmp_path)
    with advisor.load(tmp_path) as loaded:
        found = [item for item in loaded.report.findings if item.rule == "straggler-rank"]
    if late is None:
        assert not found
    else:
        assert [(item.ranks, item.severity.value) for item in found] == [(late, "warning")]
