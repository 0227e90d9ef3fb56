"""Every fault is seen at every operation, or it is said why there is nothing to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trust.matrix import MATRIX, OPERATIONS, table

ROOT = Path(__file__).parents[2]
MODULES = {path.stem: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*/test_*.py")}


@pytest.mark.parametrize("fault", MATRIX)
def test_every_cell_has_a_test_or_a_reason(fault: str) -> None:
    assert tuple(MATRIX[fault]) == OPERATIONS
    for cell in MATRIX[fault].values():
        if not cell.startswith("— "):
            module, _, test = cell.partition("::")
            assert f"def {test}(" in MODULES[module], cell


def test_the_page_shows_the_matrix() -> None:
    assert table() in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
