"""GIVEN a terminal THEN a bar with rate and time left, and nothing of it anywhere else."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import advisor
from advisor.cli._progress import progress_bar
from advisor.vocabulary.phases import announce, listening
from tests.support.traces import event, kineto


def _trace(tmp_path: Path) -> Path:
    trace = tmp_path / "rank0.json"
    trace.write_text(kineto([event(n) for n in range(20_000)]))
    return trace


def _command(tmp_path: Path) -> list[str]:
    trace, out = _trace(tmp_path), tmp_path / "run.duckdb"
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


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_the_phase_and_its_parts_take_the_place_of_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar([_trace(tmp_path)]) as advance:
        assert advance is not None
        announce("rules", 3, 65)
    text = terminal.getvalue()
    assert "rules 3/65" in text
    assert "bytes" not in text.partition("rules 3/65")[2]


@pytest.mark.long
@pytest.mark.slow
def test_every_rule_and_rank_is_announced(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int | None]] = []
    with listening(lambda *said: heard.append(said)):
        advisor.load(_trace(tmp_path)).diagnose(select=["small-buckets", "jitter"])
    assert [said[1:] for said in heard if said[0] == "rules"] == [(1, 2), (2, 2)]
    phases = list(dict.fromkeys(said[0] for said in heard))
    assert phases.index("timelines of ranks") < phases.index("links") < phases.index("rules")
    announce("nobody listens any more")
    assert heard[-1][0] == "verdict"
