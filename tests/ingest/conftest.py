"""Tests of traces run twice: with the scanner in C, and with the database's parser alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", params=["scanner", "database"])
def both_paths(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which of the two reads regular chunks; of module scope, as properties want it."""
    before = os.environ.get("ADVISOR_NATIVE")
    os.environ["ADVISOR_NATIVE"] = "1" if request.param == "scanner" else "0"
    yield request.param
    if before is None:
        del os.environ["ADVISOR_NATIVE"]
    else:
        os.environ["ADVISOR_NATIVE"] = before
