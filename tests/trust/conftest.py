"""What tests of faults share."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes writes fail, for LD_PRELOAD."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    place = tmp_path_factory.mktemp("lib") / "fails.so"
    source = Path(__file__).with_name("fails.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", place, source, "-ldl"], check=True)
    return place
