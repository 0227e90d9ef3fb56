"""GIVEN a terminal THEN a bar with rate and time left, and nothing of it anywhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.traces import event, kineto


def _command(tmp_path: Path) -> list[str]:
    trace = tmp_path / "rank0.json"
    trace.write_text(kineto([event(n) for n in range(20_000)]))
    out = tmp_path / "run.duckdb"
    return [sys.executable, "-m", "advisor", "ingest", str(trace), "-o", str(out), "--force"]


@pytest.mark.slow
def test_a_terminal_sees_rate_and_time_left(tmp_path: Path) -> None:
    here, there = pty.openpty()
    shown = bytearray()

    def collect() -> None:
        try:
            while data := os.read(here, 65536):
                shown.extend(data)
        except OSError:  # the other end was closed: how a terminal ends on Linux
            return

    reader = threading.Thread(target=collect)
    reader.start()
    done = subprocess.run(
        _command(tmp_path),
        stdout=subprocess.PIPE,
        stderr=there,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        timeout=120,
        check=False,
    )
    os.close(there)
    reader.join()
    os.close(here)
    text = shown.decode(errors="replace")
    assert done.returncode == 0, text
    assert "rank0.json" in text
    assert re.search(r"[\d.]+/[\d.]+ MB", text)
    assert re.search(r"[\d.]+ [kMG]B/s", text)
    assert re.search(r"\d:\d\d:\d\d", text)
    assert "20,000 events" in text


@pytest.mark.slow
def test_elsewhere_there_is_no_bar(tmp_path: Path) -> None:
    done = subprocess.run(
        _command(tmp_path), capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == ""
    assert done.stderr.splitlines() == [f"Wrote {tmp_path / 'run.duckdb'}: 1 rank, 20,000 events"]
