"""Commands that write, what can happen to them, and what must hold afterwards.

``python -m pytest tests/trust/test_faults.py -v`` prints the matrix, a line a cell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from advisor.store import Store

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "fixtures" / "gpt2-tiny-ddp-2"
_MARK = "ADVISOR_FAULT_TEST"


@dataclass(frozen=True)
class Command:
    """A command that writes ``output``; ``whole`` says whether what stands there is a whole one."""

    words: tuple[str, ...]
    output: str
    whole: Callable[[Path], bool]
    over: tuple[str, ...] = ("--force",)
    """What replaces an earlier result."""
    fails_after_bytes: int = 20_000
    """In the middle of what it writes."""

    def again(self, folder: Path) -> list[str]:
        """As :meth:`line`, over an earlier result."""
        return [*self.line(folder), *self.over]

    def line(self, folder: Path) -> list[str]:
        """The command's words, with OUT as ``output`` below the folder."""
        places = {"OUT": str(folder / self.output), "TABLE": str(_table())}
        given = [
            next((word.replace(name, at) for name, at in places.items() if name in word), word)
            for word in self.words
        ]
        return [sys.executable, "-m", "advisor", *given]


def _is_store(place: Path) -> bool:
    """Every event of both ranks can be read, with all that it holds."""
    with Store.open(place) as store:
        ((ranks, read),) = store.con.execute(
            "SELECT count(*), sum(events_read) FROM rank"
        ).fetchall()
        ((events, _),) = store.con.execute(
            "SELECT count(*), sum(hash(event)) FROM event"
        ).fetchall()
        return ranks == 2 and read > 20_000 and events == read


def _is_page(place: Path) -> bool:
    text = place.read_text(encoding="utf-8")
    return text.lower().startswith("<!doctype html>") and "</html>" in text[-200:]


def _is_yaml(place: Path) -> bool:
    from advisor.model.nccl.calibration import load_calibration

    return bool(load_calibration(place).machine)


def write_table(place: Path) -> Path:
    """A table of nccl-tests of 8 ranks, 1 KB to 1 GB."""
    rows = []
    for power in range(10, 31):
        size = 1 << power
        us = 20 + size / 200e3
        half = f"{us:.2f} {size / us / 1e3:.2f} {size / us / 1e3 * 1.75:.2f} 0"
        rows.append(f"{size} {size // 4} float sum -1 {half} {half}")
    devices = "".join(
        f"#  Rank  {rank} Group  0 Pid 100 on node1 device  {rank} [0x07] NVIDIA H100 80GB HBM3\n"
        for rank in range(8)
    )
    place.write_text(
        "# nThread 1 nGpus 8 minBytes 1024 maxBytes 1073741824 step: 2(factor)\n# Using devices\n"
        + devices
        + "#\n#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw "
        "#wrong\n#  (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)\n"
        + "\n".join(rows)
        + "\n# Avg bus bandwidth    : 100\n"
    )
    return place


@cache
def _table() -> Path:
    """The table that is calibrated with, for as long as the tests run."""
    return write_table(Path(_folder().name) / "table.log")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


INGEST = Command(("ingest", str(TRACES), "-o", "OUT"), "run.duckdb", _is_store)
PARQUET = Command(("ingest", str(TRACES), "-o", "OUT/"), "set", _is_store)
REPORT = Command(
    ("diagnose", str(TRACES), "--format", "html", "-o", "OUT"), "report.html", _is_page
)
CALIBRATE = Command(
    ("calibrate", "TABLE", "--hardware", "dgx-h100", "--nccl", "2.21.5", "-o", "OUT"),
    "machine.yaml",
    _is_yaml,
    over=(),
    fails_after_bytes=100,
)
COMMANDS = {"store": INGEST, "parquet": PARQUET, "report": REPORT, "calibrate": CALIBRATE}


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    status: int
    said: str

    def one_clear_error(self) -> None:
        """One line and its hints: no traceback, no defect of ours."""
        assert "Traceback" not in self.said, self.said
        assert "internal error" not in self.said, self.said
        heads = [line for line in self.said.splitlines() if line.startswith("advisor: ")]
        assert len(heads) == 1, self.said


def run(
    command: Sequence[str],
    *,
    extra: Mapping[str, str] | None = None,
    setup: Callable[[], None] | None = None,
    during: Callable[[subprocess.Popen[str]], None] | None = None,
) -> Ended:
    """Run a command to its end; ``during`` does something to it. No process of it is left."""
    token = os.urandom(8).hex()
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT), _MARK: token}

    def prepare() -> None:
        # A shell ignores it for what it runs in the background, and that is inherited.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if setup is not None:
            setup()

    process = subprocess.Popen(
        list(command),
        env={**env, **(extra or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,  # noqa: PLW1509 - this process has no threads here
    )
    if during is not None:
        during(process)
    _, said = process.communicate(timeout=240)
    assert left_of(token) == []
    return Ended(process.returncode, said)


def left_of(token: str) -> list[int]:
    """Processes of a run once what was killed has been collected."""
    deadline = time.monotonic() + 60
    while (left := processes_of(token)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def processes_of(token: str) -> list[int]:
    """Processes that inherited the mark of a run."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={token}".encode() in place.read_bytes():
                found.append(int(place.parent.name))
    return found


def children_of(process: int) -> list[int]:
    """Processes that this one started."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(place.parent.name))
    return found


def left_in(folder: Path) -> list[str]:
    """Every file below a folder, half-written ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def half_written(folder: Path) -> list[str]:
    """Files below a folder that a writer had not finished."""
    return [name for name in left_in(folder) if ".partial" in name or "/tmp_" in name]


def send(number: signal.Signals, after_s: float) -> Callable[[subprocess.Popen[str]], None]:
    """What sends a signal some time after the start, unless the command has ended by then."""

    def during(process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        if process.poll() is None:
            process.send_signal(number)

    return during


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own at ``folder``."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("may not mount a file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until it is so, or the command has ended."""
    while not what() and process.poll() is None:
        time.sleep(0.01)
