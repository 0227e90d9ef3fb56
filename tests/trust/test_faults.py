"""What a command was told to write is there whole or not at all, whatever happens to it.

Each cell: a command that writes (store, Parquet, report, calibration) and a fault. Afterwards an
earlier result is as it was or replaced as a whole, no half-written file, process or port is left,
and one clear error says what happened (:mod:`tests.trust.matrix`).
"""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.marks import long
from tests.trust.faults import (
    COMMANDS,
    INGEST,
    REPORT,
    ROOT,
    Command,
    Ended,
    children_of,
    half_written,
    left_in,
    mounted,
    needs_root,
    run,
    send,
    wait_for,
)

pytestmark = pytest.mark.slow

EVERY = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
# A database is written for long, a page at once; the others, as one of these, at length.
BOTH_WAYS = pytest.mark.parametrize(
    "command",
    [value if name == "report" else long(value)[0] for name, value in COMMANDS.items()],
    ids=COMMANDS,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished result of each command, and how many seconds it took."""
    made = {}
    for name, command in COMMANDS.items():
        folder = tmp_path_factory.mktemp(name)
        assert run(command.line(folder)).status == 0
        made[command.output] = folder
    return made


def before(command: Command, results: dict[str, Path], folder: Path) -> list[str]:
    """Put a finished result where the command writes; the files that are there then."""
    there, place = results[command.output] / command.output, folder / command.output
    if there.is_dir():
        shutil.copytree(there, place)
    else:
        shutil.copy2(there, place)
    return left_in(folder)


def refused(ended: Ended, command: Command, folder: Path, files: list[str], *words: str) -> None:
    """The command failed in words, and what stood there stands there still."""
    assert ended.status == 2, ended.said
    ended.one_clear_error()
    assert any(word in ended.said for word in words), ended.said
    assert left_in(folder) == files
    assert command.whole(folder / command.output)


@EVERY
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left"),
        *long((errno.EDQUOT, "quota")),
        *long((errno.EIO, "input/output error")),
    ],
    ids=["full disk", "quota", "EIO"],
)
def test_writes_that_fail(
    command: Command,
    number: int,
    words: str,
    failing: Path,
    results: dict[str, Path],
    tmp_path: Path,
) -> None:
    files = before(command, results, tmp_path)
    extra = {"LD_PRELOAD": str(failing), "FAIL_UNDER": str(tmp_path), "FAIL_ERRNO": str(number)}
    ended = run(
        command.again(tmp_path), extra={**extra, "FAIL_AFTER": str(command.fails_after_bytes)}
    )
    refused(ended, command, tmp_path, files, words)


@needs_root
@BOTH_WAYS
def test_a_disk_that_is_full(command: Command, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=32k") as folder:
        if command.fails_after_bytes < 4096:  # its file would find room
            with suppress(OSError):
                (folder / "other").write_bytes(bytes(1 << 20))
        files = left_in(folder)
        ended = run(command.line(folder))
        assert ended.status == 2, ended.said
        ended.one_clear_error()
        assert "no space left" in ended.said
        assert left_in(folder) == files


@pytest.mark.long
@needs_root
@BOTH_WAYS
def test_a_disk_that_is_read_only(
    command: Command, results: dict[str, Path], tmp_path: Path
) -> None:
    with mounted(tmp_path / "fixed", "size=64m") as folder:
        files = before(command, results, folder)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        ended = run(command.again(folder))
        refused(ended, command, folder, files, "read-only file system")


@BOTH_WAYS
def test_killed_at_any_moment(command: Command, results: dict[str, Path], tmp_path: Path) -> None:
    """GIVEN a result of before WHEN its writer is killed THEN one whole is there, and the next
    writer tidies up."""
    before(command, results, tmp_path)
    again = command.again(tmp_path)
    ended = run(again, during=send(signal.SIGKILL, random.uniform(0.2, 2.0)))
    assert ended.status in (-signal.SIGKILL, 0)
    assert command.whole(tmp_path / command.output)
    for path in tmp_path.rglob("*partial*"):
        os.utime(path, (0, 0))
    assert run(again).status == 0
    assert half_written(tmp_path) == []
    assert command.whole(tmp_path / command.output)


@BOTH_WAYS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end(
    command: Command, number: signal.Signals, results: dict[str, Path], tmp_path: Path
) -> None:
    files = before(command, results, tmp_path)
    ended = run(command.again(tmp_path), during=send(number, 1.0))
    assert ended.status in (128 + number, 0, -number), ended.said
    if ended.status == 128 + number:
        ended.one_clear_error()
    assert half_written(tmp_path) == []
    assert command.output.endswith("set") or left_in(tmp_path) == files
    assert command.whole(tmp_path / command.output)


@BOTH_WAYS
@pytest.mark.parametrize("most", [5, *long(12)])  # with 5 not even a module can be opened
def test_no_descriptors(
    command: Command, most: int, results: dict[str, Path], tmp_path: Path
) -> None:
    files = before(command, results, tmp_path)
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # noqa: E731
    ended = run(command.again(tmp_path), setup=few)
    if ended.status:
        refused(ended, command, tmp_path, files, "too many open files")


@BOTH_WAYS
@pytest.mark.parametrize("mebibytes", [150, *long(300, 700)])
def test_no_memory(
    command: Command, mebibytes: int, results: dict[str, Path], tmp_path: Path
) -> None:
    """GIVEN too little memory THEN it is said, also where a library ended what worked by a signal.

    What such an end leaves is what a kill leaves: the next writer removes it.
    """
    before(command, results, tmp_path)
    ended = run(command.again(tmp_path), setup=_memory(mebibytes))
    assert ended.status in (0, 2), ended.said
    assert command.whole(tmp_path / command.output)
    if ended.status:
        ended.one_clear_error()
        assert "not enough memory" in ended.said
    if half_written(tmp_path):
        assert run(command.again(tmp_path)).status == 0
        assert half_written(tmp_path) == []


def _memory(mebibytes: int) -> Callable[[], None]:
    most = mebibytes << 20
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_meets_what_works_under_a_limit_too(
    number: signal.Signals, tmp_path: Path
) -> None:
    """GIVEN a limit of memory, under which a child does the work THEN it ends with its parent."""

    def once_it_runs(process: subprocess.Popen[str]) -> None:
        wait_for(lambda: bool(children_of(process.pid)), process)
        wait_for(lambda: bool(half_written(tmp_path)), process)
        process.send_signal(number)

    ended = run(INGEST.line(tmp_path), setup=_memory(1 << 20), during=once_it_runs)
    assert ended.status == (-number if number == signal.SIGKILL else 128 + number), ended.said
    assert not (tmp_path / INGEST.output).exists()
    if number != signal.SIGKILL:
        ended.one_clear_error()
        assert half_written(tmp_path) == []


@pytest.mark.long
@BOTH_WAYS
def test_two_at_once(command: Command, tmp_path: Path) -> None:
    """GIVEN two that write the same THEN one whole result is there, and none of the other."""
    other: list[subprocess.Popen[bytes]] = []

    def beside(_: subprocess.Popen[str]) -> None:
        other.append(
            subprocess.Popen(
                command.line(tmp_path),
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stderr=subprocess.DEVNULL,
            )
        )

    ended = run(command.line(tmp_path), during=beside)
    statuses = sorted([ended.status, other[0].wait(240)])
    assert statuses in ([0, 0], [0, 2])
    assert half_written(tmp_path) == []
    assert command.whole(tmp_path / command.output)


@pytest.mark.long
def test_nobody_reads_what_is_printed(tmp_path: Path) -> None:
    """SIGPIPE: the reader of standard output is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    line = [*REPORT.line(tmp_path)[:5], "--color", "never"]
    done = subprocess.run(
        line, stdout=writer, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr


@pytest.mark.parametrize("how", ["cut", *long("replaced", "removed"), "grown"])
def test_a_file_that_changes_while_it_is_read(how: str, tmp_path: Path) -> None:
    """GIVEN a trace that somebody writes anew THEN it is read as it was, or said to be damaged."""
    import gzip

    trace = tmp_path / "rank0.json"
    whole = gzip.decompress((ROOT / "fixtures/gpt2-tiny-ddp-2/rank0.json.gz").read_bytes())
    trace.write_bytes(whole * 1)

    def change(process: subprocess.Popen[str]) -> None:
        time.sleep(0.35)
        if how == "cut":
            os.truncate(trace, len(whole) // 3)
        elif how == "grown":
            with trace.open("ab") as file:
                file.write(whole[:100_000])
        else:
            trace.unlink()
            if how == "replaced":
                trace.write_text("dear diary\n")

    ended = run([*INGEST.line(tmp_path)[:4], str(trace), "-o", str(tmp_path / "x.duckdb")],
                during=change)  # fmt: skip
    assert ended.status in (0, 2), ended.said
    assert "Traceback" not in ended.said
    assert "internal error" not in ended.said
    assert half_written(tmp_path) == []
