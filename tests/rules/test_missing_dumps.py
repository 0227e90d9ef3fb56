"""Flight-recorder dumps of which some are missing: who is accused, and who is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.test_real import report_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("folder", "lost"),
    [("lock_gil_1st", [3]), ("gpu_error_2nd", [3]), ("gpu_error_2nd", [3, 5])],
)
def test_a_missing_dump_accuses_nobody(shared_data: Path, folder: str, lost: list[int]) -> None:
    """Ranks 9 and 14 stopped; whose dump is not there is named as unknown, apart from them."""
    top = report_of(*_dumps_without(shared_data / "flight_recorder" / folder, lost)).findings[0]
    assert (top.rule, top.ranks) == ("hang-suspect", [9, 14])
    assert "without a whole dump: " + ", ".join(map(str, lost)) in top.message


@pytest.mark.parametrize("folder", ["gpu_error_2nd", "lock_gil_1st"])
def test_ranks_that_wait_for_missing_dumps_are_no_origin(shared_data: Path, folder: str) -> None:
    """Without the dumps of 9 and 14 the others hold pending calls: they wait for those two."""
    top = report_of(*_dumps_without(shared_data / "flight_recorder" / folder, [9, 14])).findings[0]
    assert (top.rule, top.ranks) == ("hang-suspect", [9, 14])
    assert "no dump: 9, 14" in top.title
    assert "14 ranks wait" in top.message and "unknown many" not in top.message


def _dumps_without(folder: Path, lost: list[int]) -> list[Path]:
    return [path for path in sorted(folder.glob("_dump_*")) if int(path.name[6:]) not in lost]
