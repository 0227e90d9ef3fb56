"""Shared fixtures: where our own recordings and other people's traces are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Machines are noisy and imports slow: examples are bounded in number, never in time. The same
# examples every time: a check must not fail by chance; benchmarks/fuzz looks for new ones.
settings.register_profile("advisor", deadline=None, derandomize=True)
settings.load_profile("advisor")

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """Small real recordings that this project made itself."""
    return ROOT / "fixtures"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Other people's recordings beside the checkout; tests that need them skip without."""
    if not SHARED_DATA.is_dir():
        pytest.skip("../shared/data (recordings of other projects) is not beside this checkout")
    return SHARED_DATA
