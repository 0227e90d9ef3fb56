"""What runs in full alone: the parser in Python of what the quick set gives the scanner in C,
and most layouts; at length, that parser of the rest.

Every damage is tried in the quick set too, in Kineto's own layout and in one without blanks: the
one tells events by their indentation, the other by their brackets alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_QUICK_LAYOUTS = ("kineto", "compact")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave one damage in one more layout to the full run, and to the long one what the database,
    whose parser is slow itself, reads in another layout than Kineto's own."""
    values = item.callspec.params if hasattr(item, "callspec") else {}
    layout = values.get("layout")
    if layout is not None and getattr(layout, "__name__", layout) not in _QUICK_LAYOUTS:
        item.add_marker(pytest.mark.slow)
    elsewhere = layout is not None and getattr(layout, "__name__", layout) != "kineto"
    database = values.get("both_paths") == "database"
    if database and (elsewhere or len(list(item.iter_markers("slow"))) > 1):
        item.add_marker(pytest.mark.long)


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
