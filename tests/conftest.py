"""Shared fixtures: where our own recordings and other people's traces are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.support import read_once, stores_again

# Machines are noisy and imports slow: examples are bounded in number, never in time. The same
# examples every time: a check must not fail by chance; benchmarks/fuzz looks for new ones.
settings.register_profile("advisor", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("long", deadline=None, derandomize=True, max_examples=400)
settings.load_profile(os.environ.get("ADVISOR_TEST_EXAMPLES", "advisor"))
# Hypothesis also draws constants that it finds in the modules of this checkout that are imported
# when an example is made, which depends on the tests before it. It has no setting for that.
providers._get_local_constants = lambda: providers._local_constants

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


@pytest.fixture(scope="session", autouse=True)
def _launchers_log_among_the_tests_files(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """torchrun keeps a folder for its ranks' output and never removes it: 289 lay in /tmp."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PET_LOG_DIR", str(tmp_path_factory.mktemp("torchelastic")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _recordings_are_read_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if os.environ.get("ADVISOR_TEST_READ_EVERY_TIME") == "1":
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of this test run, and of all its workers
    with pytest.MonkeyPatch.context() as patch:
        stores_again.reuse(patch)
        read_once.keep(patch, folder / "read-once")
        yield
