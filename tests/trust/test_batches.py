"""What a fuzzer's batch leaves and tells, however it ends."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from benchmarks.fuzz.batches import Cost, in_batches

_Failed = Callable[[tuple[int, str]], None]


def _work(numbers: Iterable[int], failed: _Failed) -> None:
    """Input 3 fails, 5 takes 60 MB and some time, 11 kills its process, 13 never ends."""
    for number in numbers:
        Path(tempfile.mkdtemp(), "left").write_text("x")
        if number == 3:
            failed((number, "as it must"))
        if number == 5:
            assert sum(bytearray(60 << 20)) == 0
        if number == 11:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 13:
            signal.pause()


def test_a_batch_takes_its_files_with_it_and_tells_what_it_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cost = Cost()
    found = list(in_batches(_work, range(16), 6, 2.0, cost))
    assert [(number, text[:4]) for number, text in found] == [
        (3, "as i"),
        (11, "the "),
        (13, "hang"),
    ]
    assert cost.slowest == 5
    assert cost.slowest_s > 0
    assert cost.peak_bytes > 60 << 20
    assert list(tmp_path.iterdir()) == []
