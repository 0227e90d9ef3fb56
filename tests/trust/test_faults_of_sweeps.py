"""A sweep and its resume, whatever happens to them: finished trials are kept, and nothing
half-written is taken for whole.

The sweep is the real command with played trials (:mod:`tests.trust.played_sweep`); what a trial's
own processes do is in test_jobs_end.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.api import load
from advisor.tune.budget import FIRST_BASELINES
from tests.support.marks import long, thinned
from tests.trust.faults import (
    ROOT,
    Ended,
    half_written,
    mounted,
    needs_root,
    run,
    send,
    wait_for,
)

pytestmark = pytest.mark.slow

JOURNAL = "sweep/trials.jsonl"
RESULTS = ("recommendation.json", "env.sh", "workload.yaml", "run.sh", "report.html")
_TRIALS = 13


def line(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.trust.played_sweep", str(folder), *words]


_UNDER_A_LIMIT = """
import runpy
from advisor.cli._limited_memory import spare_memory, work_in_child
work_in_child()
spare_memory()
runpy.run_module("tests.trust.played_sweep", run_name="__main__")
"""


def trials(folder: Path) -> list[dict[str, object]]:
    """The finished trials that the journal holds; a line that is cut is none."""
    journal = folder / JOURNAL
    text = journal.read_text() if journal.exists() else ""
    return [json.loads(one) for one in text.split("\n")[1:-1]]


def is_whole(folder: Path, count: int = _TRIALS) -> None:
    """Every trial once, in order, and every file of the result to its end."""
    assert [one["number"] for one in trials(folder)] == list(range(count))
    assert half_written(folder) == []
    place = folder / "sweep"
    assert json.loads((place / "recommendation.json").read_text())["recommended"]
    assert (place / "report.html").read_text().rstrip().endswith("</html>")
    assert all((place / name).stat().st_size for name in RESULTS)
    with load(place / "sweep.duckdb") as found:
        assert len(found.ranks()) == 2


def trials_after(before: list[dict[str, object]]) -> int:
    """How many trials the sweep has at its end.

    What is tried is compared with the present settings in its own sitting. Whoever goes on between
    the first baselines and the first try has none there, and runs them once more.
    """
    purposes = [one["purpose"] for one in before]
    return _TRIALS + (purposes == ["baseline"] * FIRST_BASELINES)


def goes_on(folder: Path, before: list[dict[str, object]]) -> None:
    """Resumed without the fault it ends, and what was finished before is not run again."""
    # A round of the confirmation that was not finished is run again whole.
    kept = [one for one in before if not str(one["purpose"]).startswith("confirm")]
    for path in folder.rglob("*partial*"):
        os.utime(path, (0, 0))
    words = ["--resume"] if (folder / JOURNAL).exists() else []
    ended = run(line(folder, *words))
    assert ended.status == 0, ended.said
    assert trials(folder)[: len(kept)] == kept
    is_whole(folder, trials_after(before))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that ran to its end."""
    folder = tmp_path_factory.mktemp("sweep")
    ended = run(line(folder))
    assert ended.status == 0, ended.said
    is_whole(folder)
    return folder


def cut(finished: Path, folder: Path, kept: int) -> list[dict[str, object]]:
    """A copy of the finished sweep as one that ended after so many trials."""
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    for name in (*RESULTS, "sweep.duckdb"):
        (folder / "sweep" / name).unlink()
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    (folder / JOURNAL).write_text("".join(lines[: 1 + kept]))
    for trial in (folder / "sweep" / "trials").iterdir():
        if int(trial.name) >= kept:
            shutil.rmtree(trial)
    return trials(folder)


@pytest.mark.parametrize("resumes", [*long(False), True], ids=["sweep", "resume"])
def test_killed_at_any_moment(resumes: bool, finished: Path, tmp_path: Path) -> None:
    before = cut(finished, tmp_path, 5) if resumes else []
    words = ["--resume"] if resumes else []
    delay_s = random.uniform(0.5, 3.0)
    ended = run(line(tmp_path, *words), during=send(signal.SIGKILL, delay_s))
    assert ended.status in (-signal.SIGKILL, 0)
    left = trials(tmp_path)
    assert left[: len(before)] == before
    goes_on(tmp_path, left)


@pytest.mark.parametrize("kept", long(1, FIRST_BASELINES, 6))
def test_ended_after_any_trial(kept: int, finished: Path, tmp_path: Path) -> None:
    """GIVEN a sweep that ended between two trials, up to the middle of a first confirmation round
    THEN what goes on runs what was left, and a baseline more where its own sitting needs one."""
    goes_on(tmp_path, cut(finished, tmp_path, kept))


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "after", "words"),
    thinned(
        [
            (errno.ENOSPC, 30_000, "no space left"),
            (errno.EIO, 900, "input/output error"),
            (errno.EDQUOT, 1_000_000, "quota"),
        ],
        3,
    ),
    ids=["full disk", "EIO", "quota"],
)
def test_writes_that_fail(
    number: int, after: int, words: str, failing: Path, finished: Path, tmp_path: Path
) -> None:
    """In the journal, in a trial's files, in the store and the page at the end."""
    before = cut(finished, tmp_path, 0 if after < 1_000 else 5)
    extra = {"LD_PRELOAD": str(failing), "FAIL_UNDER": str(tmp_path), "FAIL_ERRNO": str(number)}
    ended = run(line(tmp_path, "--resume"), extra={**extra, "FAIL_AFTER": str(after)})
    assert ended.status == 2, ended.said
    ended.one_clear_error()
    assert words in ended.said.lower(), ended.said
    left = trials(tmp_path)
    assert left[: len(before)] == before
    goes_on(tmp_path, left)


@pytest.mark.long
@needs_root
def test_a_disk_that_is_read_only(finished: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "fixed", "size=64m") as folder:
        before = cut(finished, folder, 5)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        ended = run(line(folder, "--resume"))
        assert ended.status == 2, ended.said
        ended.one_clear_error()
        assert "read-only" in ended.said.lower()
        assert trials(folder) == before


def _limit(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most))


@pytest.mark.parametrize(
    ("kind", "most", "words"),
    long(
        (resource.RLIMIT_FSIZE, 4_000, "too large"),
        (resource.RLIMIT_NOFILE, 12, "too many open files"),
        (resource.RLIMIT_AS, 600 << 20, "memory"),
    ),
    ids=["quota of a file", "no descriptors", "no memory"],
)
def test_too_little_of_something(
    kind: int, most: int, words: str, finished: Path, tmp_path: Path
) -> None:
    before = cut(finished, tmp_path, 5)
    command = line(tmp_path, "--resume")
    if kind == resource.RLIMIT_AS:  # as the command does before it imports anything
        command[1:3] = ["-c", _UNDER_A_LIMIT]
    ended = run(command, setup=_limit(kind, most))
    if ended.status == 2:
        ended.one_clear_error()
        assert words in ended.said.lower(), ended.said
    else:  # it was enough
        assert ended.status == 0, ended.said
    left = trials(tmp_path)
    assert left[: len(before)] == before
    assert half_written(tmp_path / "sweep") == [] or kind == resource.RLIMIT_AS


@pytest.mark.parametrize("number", [*long(signal.SIGTERM), signal.SIGINT])
def test_asked_to_end(number: signal.Signals, finished: Path, tmp_path: Path) -> None:
    before = cut(finished, tmp_path, 0)

    def once_it_runs(process: subprocess.Popen[str]) -> None:
        wait_for(lambda: len(trials(tmp_path)) >= 2, process)
        process.send_signal(number)

    ended = run(line(tmp_path, "--resume"), during=once_it_runs)
    assert ended.status == 128 + number, ended.said
    left = trials(tmp_path)
    assert left[: len(before)] == before
    assert half_written(tmp_path) == []


@pytest.mark.long
def test_two_at_once(finished: Path, tmp_path: Path) -> None:
    """GIVEN two that go on with one sweep THEN one does, and the other says why not."""
    before = cut(finished, tmp_path, 5)
    others: list[subprocess.Popen[str]] = []

    def beside(_: subprocess.Popen[str]) -> None:
        others.append(
            subprocess.Popen(line(tmp_path, "--resume"), stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": str(ROOT)})
        )  # fmt: skip

    ended = run(line(tmp_path, "--resume"), during=beside)
    said = others[0].communicate(timeout=240)[1]
    both = {ended.status: ended, others[0].returncode: Ended(others[0].returncode, said)}
    assert sorted(both) in ([0, 2], [0])  # where the second began after the first it had no more
    if 2 in both:
        both[2].one_clear_error()
    assert trials(tmp_path)[: len(before)] == before
    is_whole(tmp_path)


@pytest.mark.parametrize("how", long("replaced", "removed"))
def test_the_journal_changes_meanwhile(how: str, finished: Path, tmp_path: Path) -> None:
    cut(finished, tmp_path, 0)

    def change(process: subprocess.Popen[str]) -> None:
        wait_for(lambda: len(trials(tmp_path)) >= 2, process)
        if how == "removed":
            (tmp_path / JOURNAL).unlink()
        else:
            (tmp_path / JOURNAL).write_text("dear diary\n")

    ended = run(line(tmp_path, "--resume"), during=change)
    assert ended.status in (0, 2), ended.said
    assert "Traceback" not in ended.said
    assert "internal error" not in ended.said
    assert half_written(tmp_path) == []


@pytest.mark.parametrize("redirected", long(">&- 2>&-", ">&-"))
def test_closed_streams(redirected: str, finished: Path, tmp_path: Path) -> None:
    """Standard output is closed; where it breaks, as with `head`, is in test_faults."""
    cut(finished, tmp_path, _TRIALS)
    ended = run(["sh", "-c", f'exec "$@" {redirected}', "sh", *line(tmp_path, "--resume")])
    assert ended.status == 0, ended.said
    is_whole(tmp_path)


@pytest.mark.long
def test_nobody_reads_what_is_printed(finished: Path, tmp_path: Path) -> None:
    cut(finished, tmp_path, _TRIALS)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        line(tmp_path, "--resume"), stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 141, done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
