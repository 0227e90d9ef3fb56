"""A job that is watched without a profiler, and one that is asked for a recording while it runs."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("torch")

from advisor.errors import AdvisorError
from advisor.profile import files
from advisor.profile.hook import lateness, on_demand, order
from advisor.profile.hook.lateness import Window, compare

SCRIPT = Path(__file__).parents[1] / "scripts" / "evaluates.py"
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
MS = 1_000_000


def window(rank_late_ns: list[int], host: str = "a") -> Window:
    """Ten steps of 100 ms, two calls in each; the rank comes so late to the calls of each step."""
    ends = [n * 100 * MS for n in range(11)]
    calls = {
        f"g all_reduce {2 * step + n}": step * 100 * MS + (20 + 30 * n) * MS + rank_late_ns[step]
        for step in range(10)
        for n in range(2)
    }
    return Window(1, 10, host, ends, calls)


def test_the_rank_that_is_late_in_most_steps_is_named_with_its_median() -> None:
    # GIVEN four ranks, of which the third is 12 ms late in eight of ten steps
    late = [12 * MS] * 8 + [0] * 2
    found = compare([window([0] * 10), window([0] * 10), window(late), window([0] * 10)])
    assert found.named == 2
    assert found.late_ns == {0: 0.0, 1: 0.0, 2: 12.0 * MS, 3: 0.0}
    assert found.times_last[2] == 8
    assert (found.steps, found.step_ns) == (10, 100.0 * MS)


def test_lateness_that_moves_between_ranks_names_nobody() -> None:
    shifted = [[12 * MS if step % 3 == rank else 0 for step in range(10)] for rank in range(3)]
    found = compare([window(late) for late in shifted])
    assert found.named is None


@pytest.mark.parametrize(("times", "named"), [(7, None), (9, None), (10, 1)])
def test_a_rank_of_two_is_last_by_chance_in_most_of_ten_steps(times, named) -> None:
    # 2 x P(9 or more of 10) = 0.021 and 2 x P(10 of 10) = 0.002
    late = [[12 * MS] * times + [0] * (10 - times), [0] * times + [12 * MS] * (10 - times)]
    found = compare([window(late[1]), window(late[0])])
    assert (found.times_last[1], found.named) == (times, named)


def test_a_few_steps_with_collectives_accuse_nobody() -> None:
    # GIVEN ranks that meet in three of ten steps (local SGD), the second last in all of them
    windows = [window([0] * 10), window([50 * MS] * 10)]
    for one in windows:
        for step in range(3, 10):
            del one.calls[f"g all_reduce {2 * step}"], one.calls[f"g all_reduce {2 * step + 1}"]
    found = compare(windows)
    assert (found.times_last[1], found.steps, found.named) == (3, 3, None)
    assert "3 with collectives are too few to say who is late" in found.line()


def test_calls_that_one_rank_alone_has_seen_say_nothing() -> None:
    alone = Window(1, 10, "a", window([0] * 10).ends_ns, {"other all_reduce 1": 5 * MS})
    found = compare([window([0] * 10), alone])
    assert found.steps == 0
    assert found.named is None


def test_a_folder_without_a_job_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AdvisorError, match="no job waits here"):
        on_demand.ask(tmp_path, 3)
    say(tmp_path, 100)
    monkeypatch.setattr(on_demand, "_SILENT_S", 0.3)
    with pytest.raises(AdvisorError, match="made no step"):
        on_demand.ask(tmp_path, 3)


@pytest.mark.parametrize(
    "text", ['{"seen": 1', "[]", '{"seen": 1}', '{"seen": 1, "step_ns": NaN, "world_size": 2}']
)
def test_a_pace_that_is_none_is_said_to_be(tmp_path: Path, text: str) -> None:
    place = on_demand.pace_file(tmp_path)
    place.parent.mkdir(parents=True)
    place.write_text(text)
    with pytest.raises(AdvisorError, match="how far"):
        on_demand.ask(tmp_path, 3)


def say(folder: Path, seen: int) -> None:
    """As rank 0 does."""
    pace = on_demand.Pace(seen, step_ns=20.0 * MS, world_size=2)
    files.write_json(on_demand.pace_file(folder), asdict(pace))


@pytest.mark.parametrize("jump_s", [0.0, 3600.0, -3600.0])
def test_a_recording_begins_where_no_rank_has_been_yet(
    jump_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a clock that is not the job's THEN what the job says next tells how far it is."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    say(tmp_path, 100)
    # Said when the pace has been read once, however late that is on a busy machine.
    monkeypatch.setattr(time, "sleep", lambda _: say(tmp_path, 110))
    request, pace = on_demand.ask(tmp_path, 3)
    assert (request.steps, pace.seen) == (3, 110)
    # Several times what a rank takes to look again.
    assert (request.begin - pace.seen) * pace.step_ns / 1e9 > 4 * on_demand.LOOK_EVERY_S


@pytest.fixture
def nobodys_signal() -> Iterator[None]:
    """SIGUSR2 as a process finds it when it starts."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(("rank", "asks"), [(0, True), (1, False)])
@pytest.mark.usefixtures("nobodys_signal")
def test_a_signal_to_all_ranks_asks_once_and_ends_none(
    rank: int, asks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand, "LOOK_EVERY_S", 0.0)
    watch = on_demand.OnDemand(order.Order(str(tmp_path), traced=7, on_demand=True), rank, 2)
    watch.step(10)
    os.kill(os.getpid(), signal.SIGUSR2)
    watch.step(20)
    assert on_demand.request_file(tmp_path).exists() == asks
    if asks:
        request = json.loads(on_demand.request_file(tmp_path).read_text())
        assert request["steps"] == 7
        assert request["begin"] > 20
        assert watch._wanted == on_demand.Request(**request)


@pytest.mark.usefixtures("nobodys_signal")
def test_a_signal_that_is_the_jobs_own_stays_so(tmp_path: Path) -> None:
    """GIVEN a handler that C code installed, of which Python knows nothing THEN it is called."""
    heard: list[int] = []
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(heard.append)
    ctypes.CDLL(None).signal(int(signal.SIGUSR2), handler)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    on_demand.OnDemand(order.Order(str(tmp_path), traced=7, on_demand=True), 0, 2)
    os.kill(os.getpid(), signal.SIGUSR2)
    assert heard == [signal.SIGUSR2]


@pytest.mark.slow
def test_a_running_job_says_who_is_late_and_is_recorded_when_asked(tmp_path: Path) -> None:
    # GIVEN a job of which rank 1 sleeps 30 ms in every step, watched without a profiler
    asked = order.Order(str(tmp_path), every=20, on_demand=True)
    command = [*LAUNCH, str(SCRIPT), "--steps", "100000", "--fault", "log-on-one"]
    environment = order.environment(asked, dict(os.environ))
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        # Where other processes hold a rank up for a while, a later line names the one that sleeps.
        wait_for(lambda: any(late.named == 1 for late in said(tmp_path / lateness.FILE_NAME)))
        # WHEN it is asked for three steps
        request, _ = on_demand.ask(tmp_path, 3)
        traces = [tmp_path / request.name / f"rank{rank}.json.gz" for rank in range(2)]
        wait_for(lambda: all(trace.exists() for trace in traces))
    finally:
        process.terminate()
        process.wait(120)
    # THEN both ranks' recordings are of the same steps
    from advisor import api

    with api.load(tmp_path / request.name) as run:
        steps = run.steps()
        assert steps.groupby("rank").size().to_dict() == {0: 3, 1: 3}
        matched = run.sql("SELECT avg((matched_ranks = 2)::INT) AS both FROM collective")
        assert matched.both[0] > 0.9


def said(lines: Path) -> Iterator[lateness.Lateness]:
    """What the whole lines of a job say by now."""
    text = lines.read_text() if lines.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            found = json.loads(line)
            for per_rank in ("late_ns", "times_last"):
                found[per_rank] = {int(rank): value for rank, value in found[per_rank].items()}
            yield lateness.Lateness(**found)


def wait_for(there, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.2)
