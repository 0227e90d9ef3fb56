"""Dumps of hangs with injected faults: all culprits are named, and nobody else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.api import Run, load

pytestmark = pytest.mark.slow


def _truth(folder: Path) -> list[int]:
    text = (folder / "fault_injection.log").read_text()
    return sorted(int(rank) for rank in re.findall(r"^Rank (\d+),", text, re.MULTILINE))


def test_stages_of_a_pipeline_count_their_own_messages(real2: Callable[[str], Run]) -> None:
    """fault_injection.log: ranks 10 and 15; groups 43, 46, 49 and 52 are send/recv of 4 stages."""
    report = real2("fr_lock_gil_2nd").report
    assert report.verdict.cause == "hang-suspect"
    (found,) = report.findings
    assert found.ranks == [10, 15]
    assert found.evidence.facts["waiting"] == 14
    assert found.evidence.facts["missing_calls"] == 11


@pytest.mark.parametrize("folder", ["gpu_error_2nd", "lock_gil_1st"])
def test_every_culprit_of_the_log_is_named(shared_data: Path, folder: str) -> None:
    path = shared_data / "flight_recorder" / folder
    with load(path) as run:
        (found,) = run.report.findings
    assert found.ranks == _truth(path) == [9, 14]
    stopped = [9, 14] if folder == "gpu_error_2nd" else None
    assert found.evidence.facts["stopped"] == stopped
