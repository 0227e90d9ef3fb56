"""Shared fixtures: where our own recordings and other people's traces are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
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

# What the Makefile asks of -m: tests without some marks, or only those with one of them.
_WITHOUT = re.compile(r"not \w+(?: and not \w+)*")
_ONLY = re.compile(r"\((\w+(?: or \w+)*)\) and not \w+")
_MARKED_ELSEWHERE = r"\bboth_paths\b|\blayout\b"  # in tests/ingest/conftest.py


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a module alone of which ``-m`` takes no test, as far as its text tells that.

    Each worker imports all modules, some of them with torch, and makes all their tests, before it
    asks which are wanted: a tenth of the quick check.
    """
    wanted = config.option.markexpr
    only, without = _ONLY.fullmatch(wanted), _WITHOUT.fullmatch(wanted)
    if collection_path.suffix != ".py" or not (only or without):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if only:
        return None if _may_mark(text, only[1].split(" or ")) else True
    named = "|".join(re.findall(r"not (\w+)", wanted))
    return True if re.search(rf"^pytestmark = .*\bmark\.(?:{named})\b", text, re.M) else None


def _may_mark(text: str, names: Sequence[str]) -> bool:
    return bool(re.search(rf"\b(?:{'|'.join(names)})\b|{_MARKED_ELSEWHERE}", text))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """The quick check sees nearly all modules: it finds one that test-all would not."""
    for name in ("slow", "chromium"):
        for path in {item.path for item in items if item.get_closest_marker(name)}:
            if not _may_mark(path.read_text(encoding="utf-8"), [name]):
                raise pytest.UsageError(f"{path}: tests are {name}, and its text does not say so")


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
        read_once.keep(patch, ROOT / os.environ.get("ADVISOR_TEST_KEPT", folder / "read-once"))
        yield
