"""What runs in full alone: the database's parser beside the scanner in C, and most layouts.

Every damage is tried in the quick set too, in Kineto's own layout and in one without blanks: the
one tells events by their indentation, the other by their brackets alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_QUICK_LAYOUTS = ("kineto", "compact")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave one damage in one more layout to the full run, by the database to the long one."""
    layout = getattr(item, "callspec", None) and item.callspec.params.get("layout")
    name = getattr(layout, "__name__", layout)
    if name is not None and name not in _QUICK_LAYOUTS:
        database = item.callspec.params.get("both_paths") == "database"
        item.add_marker(pytest.mark.long if database else pytest.mark.slow)


@pytest.fixture(
    scope="module", params=["scanner", pytest.param("database", marks=pytest.mark.slow)]
)
def both_paths(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which of the two reads regular chunks; of module scope, as properties want it."""
    before = os.environ.get("ADVISOR_NATIVE")
    os.environ["ADVISOR_NATIVE"] = "1" if request.param == "scanner" else "0"
    yield request.param
    if before is None:
        del os.environ["ADVISOR_NATIVE"]
    else:
        os.environ["ADVISOR_NATIVE"] = before
