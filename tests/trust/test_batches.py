"""What a fuzzer's batch leaves and tells, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from benchmarks.fuzz.batches import Cost, in_batches

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_Failed = Callable[[tuple[int, str]], None]


def _work(numbers: Iterable[int], failed: _Failed) -> None:
    """Input 3 fails, 5 holds 60 MB for a while, 11 kills its process, 13 never ends."""
    for number in numbers:
        Path(tempfile.mkdtemp(), "left").write_text("x")
        if number == 3:
            failed((number, "as it must"))
        if number == 5:
            held = bytearray(60 << 20)
            held[::4096] = b"1" * len(held[::4096])
            time.sleep(0.4)
        if number == 11:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 13:
            signal.pause()


def test_a_batch_takes_its_files_with_it_and_tells_what_it_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cost = Cost()
    found = list(in_batches(_work, range(16), 6, 4.0, cost))
    assert [(number, text[:4]) for number, text in found] == [
        (3, "as i"),
        (11, "the "),
        (13, "hang"),
    ]
    assert cost.slowest == 5
    assert cost.slowest_s > 0
    assert cost.peak_bytes > 60 << 20
    assert list(tmp_path.iterdir()) == []


def test_a_fuzzer_that_is_asked_to_end_leaves_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.fuzz.readers",
        "--minutes",
        "9",
        "--format",
        "rule",
    ]
    with subprocess.Popen(
        command, cwd=_ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, start_new_session=True
    ) as fuzzer:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("fuzz-*/*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list(tmp_path.glob("fuzz-*/*"))
        fuzzer.terminate()
        assert fuzzer.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(fuzzer.pid, 0)
