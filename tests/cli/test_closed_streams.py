"""Closed standard streams: silence and the status that the command has with open ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.marks import long

pytestmark = pytest.mark.slow  # a process each

_SPAN = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}


def _run(redirected: str, *command: str) -> subprocess.CompletedProcess[str]:
    line = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "advisor", *command]
    return subprocess.run(line, check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("redirected", [">&-", *long("<&-", "<&- >&-", ">&- 2>&-"), "<&- >&- 2>&-"])
def test_diagnose_on_closed_streams_ends_as_on_open_ones(redirected: str, tmp_path: Path) -> None:
    trace = tmp_path / "rank0.json"
    trace.write_text(json.dumps({"traceEvents": [_SPAN], "distributedInfo": {"rank": 0}}))
    store = tmp_path / "run.duckdb"
    done = _run(redirected, "diagnose", str(trace), "--store", str(store))
    assert done.returncode == 0
    assert "internal error" not in done.stderr
    assert ("Wrote" in done.stderr) == ("2>" not in redirected)
    assert ("VERDICT" in done.stdout) == (">&-" not in redirected)
    assert b"VERDICT" not in store.read_bytes()


@pytest.mark.parametrize("redirected", [">&-", ">&- 2>&-"])
def test_an_error_keeps_its_status(redirected: str) -> None:
    done = _run(redirected, "diagnose", "no-such-file")
    assert done.returncode == 2
    assert ("no-such-file" in done.stderr) == ("2>" not in redirected)
