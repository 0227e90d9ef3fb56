"""Where those recordings are, and one diagnosis of each for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from advisor.api import Run, load


@pytest.fixture(scope="session")
def real2(shared_data: Path) -> Iterator[Callable[[str], Run]]:
    """Loads a recording by its name in ../shared/data/real2, once a session."""
    folder = shared_data / "real2"
    if not folder.is_dir():
        pytest.skip("../shared/data/real2 (recordings of other projects) is not beside this one")
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(load(folder / name)))
