"""Tests of traces run with the scanner in C, and, in full, with the database's parser alone too."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


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
