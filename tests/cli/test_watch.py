"""``diagnose --watch``: what rests is diagnosed, what is being written is named, outputs follow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from advisor.cli import _watch
from advisor.cli._main import _root
from advisor.errors import AdvisorError

Nap = Callable[[int], None]
SLOW = "gpt2-tiny-ddp-2-slow-rank"


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Nap], None]:
    """Sets what happens in the pauses, which are numbered from 0 and take no time."""

    def use(nap: Nap) -> None:
        numbers = iter(range(50))
        monkeypatch.setattr(_watch.time, "sleep", lambda _: nap(next(numbers)))

    return use


def heard(paths: list[str], rounds: int, own: tuple[Path, ...] = ()) -> list[tuple[str, set[str]]]:
    """Head without its time, and the names left out, of every diagnosis."""
    found = []

    def diagnose(head: str, leave_out: frozenset[Path]) -> bool:
        found.append((head.partition(", ")[2], {path.name for path in leave_out}))
        return False

    assert not _watch.watch(paths, 5.0, diagnose, own=own, rounds=rounds)
    return found


def test_it_diagnoses_again_when_a_rank_arrives(
    tmp_path: Path, naps: Callable[[Nap], None]
) -> None:
    (tmp_path / "rank0.json").write_text("{}")

    def nap(number: int) -> None:
        if number == 2:
            (tmp_path / "rank1.json").write_text("{}")

    naps(nap)
    assert heard([str(tmp_path)], 2) == [("1 file", set()), ("2 files", set())]


def test_a_file_that_never_rests_is_named_and_left_out(
    tmp_path: Path, naps: Callable[[Nap], None]
) -> None:
    """GIVEN a log that grows at every look WHEN a second rank arrives THEN each state is told."""
    (tmp_path / "rank0.json").write_text("{}")
    log = tmp_path / "train.log"
    log.write_text("step 0\n")

    def nap(number: int) -> None:
        log.write_text(log.read_text() + "step\n")
        if number == 5:
            (tmp_path / "rank1.json").write_text("{}")

    naps(nap)
    said = "; left out, still being written: train.log"
    assert heard([str(tmp_path)], 2) == [
        (f"1 file{said}", {"train.log"}),
        (f"2 files{said}", {"train.log"}),
    ]


def test_ranks_that_end_one_after_the_other_are_read_together(
    tmp_path: Path, naps: Callable[[Nap], None]
) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_text("{")

    def nap(number: int) -> None:
        if number == 0:
            (tmp_path / "rank1.json").write_text("{}  ")

    naps(nap)
    assert heard([str(tmp_path)], 1) == [("2 files", set())]


def test_a_pattern_is_looked_up_every_time(
    tmp_path: Path, naps: Callable[[Nap], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def nap(number: int) -> None:
        if number == 1:
            (tmp_path / "rank0.json").write_text("{}")
            (tmp_path / "notes.txt").write_text("of no interest")

    naps(nap)
    pattern = str(tmp_path / "rank*.json")
    assert heard([pattern], 1) == [("1 file", set())]
    assert capsys.readouterr().err.count(f"Nothing in {pattern} yet") == 1


def test_that_everything_is_still_written_is_said_once(
    tmp_path: Path, naps: Callable[[Nap], None], capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "rank0.json"
    trace.write_text("{")

    def nap(number: int) -> None:
        if number < 4:
            trace.write_text(trace.read_text() + " ")

    naps(nap)
    assert heard([str(tmp_path)], 1) == [("1 file", set())]
    assert capsys.readouterr().err.count("Still being written: rank0.json: looking every 5 s") == 1


def test_its_own_files_are_none_of_the_watched(tmp_path: Path, naps: Callable[[Nap], None]) -> None:
    (tmp_path / "rank0.json").write_text("{}")
    report = tmp_path / "report.html"

    def nap(number: int) -> None:
        report.write_text(f"report {number}")
        if number == 4:
            (tmp_path / "rank1.json").write_text("{}")

    naps(nap)
    own = {"report.html"}
    assert heard([str(tmp_path)], 2, (report,)) == [("1 file", own), ("2 files", own)]


def test_a_trace_that_is_not_whole_does_not_end_the_watch(
    tmp_path: Path, naps: Callable[[Nap], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rank0.json").write_text("{")

    def diagnose(head: str, leave_out: frozenset[Path]) -> bool:
        raise AdvisorError("ends in the middle")

    naps(lambda number: None)
    assert not _watch.watch([str(tmp_path)], 5.0, diagnose, rounds=1)
    assert "not yet: ends in the middle" in capsys.readouterr().err


def run(*arguments: str | Path) -> Result:
    """``advisor diagnose --watch``, for two rounds at most."""
    line = ["diagnose", "--watch", "--watch-rounds", "2", *map(str, arguments)]
    return CliRunner().invoke(_root, line, standalone_mode=False)


@pytest.fixture
def folder(tmp_path: Path, fixtures_dir: Path, naps: Callable[[Nap], None]) -> Path:
    """Rank 0 of a recording beside a growing log; rank 1 comes after a while."""
    place = tmp_path / "traces"
    place.mkdir()
    shutil.copy(fixtures_dir / SLOW / "rank0.json.gz", place)
    log = place / "train.log"
    log.write_text("step\n")

    def nap(number: int) -> None:
        log.write_text(log.read_text() + "step\n")
        if number == 4:
            shutil.copy(fixtures_dir / SLOW / "rank1.json.gz", place)

    naps(nap)
    return place


@pytest.mark.long
@pytest.mark.slow
def test_every_round_writes_what_was_asked_for_anew(folder: Path, tmp_path: Path) -> None:
    out, store = tmp_path / "out", tmp_path / "run.duckdb"
    done = run(folder, "--format", "text,json", "-o", out / "findings.json", "--store", store)
    assert done.exception is None, done.exception
    assert done.stdout.count("left out, still being written: train.log") == 2
    found = json.loads((out / "findings.json").read_text())
    assert found["runs"][0]["ranks_read"] == 2, "the last round's"
    assert not any("train.log" in path for path in found["runs"][0]["inputs"])
    assert store.stat().st_size
    assert done.stderr.count(f"Wrote {store}") == 2


@pytest.mark.slow
def test_a_severe_finding_ends_the_watch_with_1(folder: Path) -> None:
    done = run(folder, "-q", "--fail-on", "critical", "--watch-rounds", "9")
    assert done.return_value == 1
    assert "straggler-rank" in done.stdout


def test_an_existing_output_is_refused_before_the_watch(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "findings.json"
    report.write_text('{"schema_version": 1, "advisor_version": "0", "command": ""}')
    done = run(folder, "--format", "json", "-o", report)
    assert "pass --force to replace it" in str(done.exception)


def test_a_rule_that_is_not_there_is_told_at_once(folder: Path) -> None:
    done = run(folder, "--select", "no-such-rule")
    assert "no-such-rule" in str(done.exception)
    assert "not yet" not in done.stderr


@pytest.mark.parametrize("seconds", ["-1", "0", "0.05", "nan", "inf"])
def test_an_interval_that_would_spin_or_cannot_be_slept_is_refused(
    tmp_path: Path, seconds: str
) -> None:
    words = ["diagnose", str(tmp_path), "--watch", "--watch-rounds", "0"]
    result = CliRunner().invoke(_root, [*words, f"--watch-interval={seconds}"])
    assert result.exit_code == 2
    assert "--watch-interval" in result.output
    assert CliRunner().invoke(_root, [*words, "--watch-interval=0.1"]).exit_code == 0
