"""Jobs that will not end are ended, with all that they forked; a clock that jumps ends none."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import EndedBySignalError
from advisor.profile import own
from advisor.profile.failures import LaunchError
from advisor.profile.hook import order
from tests.trust.faults import ROOT, left_of, run

pytestmark = pytest.mark.slow

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()  # as torchrun's ranks, and whatever detaches itself
    if os.fork() == 0:
        open(sys.argv[1], "w").close()
        time.sleep(600)
time.sleep(600)
"""
_MARK = "ADVISOR_FAULT_TEST"


def test_a_trial_that_ignores_sigterm_and_forks_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "_GRACE_S", 0.3)
    token = os.urandom(8).hex()
    asked = order.Order(str(tmp_path), steps=1, ends=True)
    with pytest.raises(LaunchError, match="no progress"):
        own.run(
            (sys.executable, "-S", "-c", STUBBORN, str(tmp_path / "up")),
            asked,
            {**os.environ, _MARK: token},
            timeout_s=1.0,
        )
    assert left_of(token) == []
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700


@pytest.mark.parametrize("timeout_s", [60.0, 3.0], ids=["running", "hung"])
def test_a_second_signal_ends_the_job_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float
) -> None:
    """GIVEN a job that ignores SIGTERM WHEN signals come while it is being ended THEN it is."""
    monkeypatch.setattr(EndedBySignalError, "last", EndedBySignalError.last)
    token, up = os.urandom(8).hex(), tmp_path / "up"
    asked = order.Order(str(tmp_path), steps=1, ends=True)

    being_ended, ends = threading.Event(), own._end

    def noted(*what: Any) -> None:
        being_ended.set()
        ends(*what)

    monkeypatch.setattr(own, "_end", noted)

    def send() -> None:
        while not (being_ended.is_set() or (timeout_s > 3 and up.exists())):
            time.sleep(0.02)
        for _ in range(2):
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGTERM)

    def end(number: int, _frame: object) -> None:
        raise EndedBySignalError(number)

    before = signal.signal(signal.SIGTERM, end)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(EndedBySignalError):
            own.run(
                (sys.executable, "-S", "-c", STUBBORN, str(up)),
                asked,
                {**os.environ, _MARK: token},
                timeout_s=timeout_s,
            )
            sender.join()
    finally:
        with contextlib.suppress(EndedBySignalError):
            sender.join()
        signal.signal(signal.SIGTERM, before)
        left = left_of(token)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert left == []


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_is_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """GIVEN a job that prints all the while WHEN the clock of the day is set THEN it goes on."""
    began, real = time.monotonic(), time.time

    def jumping() -> float:
        return real() + (jump_s if time.monotonic() - began > 0.5 else 0)

    monkeypatch.setattr(time, "time", jumping)
    talks = "import time\nfor n in range(9):\n    print(n, flush=True)\n    time.sleep(0.1)\n"
    asked = order.Order(str(tmp_path), steps=1, ends=True)
    with pytest.raises(LaunchError) as caught:
        own.run((sys.executable, "-S", "-c", talks), asked, dict(os.environ), timeout_s=30)
    assert "no progress" not in str(caught.value)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_ends_record_ends_its_job(tmp_path: Path, number: signal.Signals) -> None:
    """GIVEN a job under `advisor record` THEN it gets the signal, and may save its work.

    Ctrl-C goes to all that run at the terminal; the others to `advisor record` alone.
    """
    job = (
        "import pathlib, signal, sys, time\n"
        "def save(n, f):\n    pathlib.Path('saved').write_text(str(n)); sys.exit(7)\n"
        f"signal.signal({int(number)}, save)\n"
        "pathlib.Path('up').touch()\ntime.sleep(100)\n"
    )

    def end(process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 60
        while not (tmp_path / "up").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)

    def alone() -> None:
        os.setsid()
        # Who runs the tests under nohup lets the signal be ignored.
        signal.signal(number, signal.SIG_DFL)

    line = [sys.executable, "-m", "advisor", "record", "-o", str(tmp_path / "traces"), "--"]
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        ended = run([*line, sys.executable, "-S", "-c", job], during=end, setup=alone)
    finally:
        os.chdir(here)
    assert (tmp_path / "saved").read_text() == str(int(number))
    assert ended.status == 7, ended.said
    assert "was ended before it wrote a trace" in ended.said
    ended.one_clear_error()
    assert ROOT.is_dir()
