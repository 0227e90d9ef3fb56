"""Recording anybody's training, on a real script and in a plain loop."""

from __future__ import annotations

import gc
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.marks import long

torch = pytest.importorskip("torch", reason="needs the [profile] extra")
pytest.importorskip("nvtx", reason="needs the [profile] extra")

import advisor  # noqa: E402
from advisor.errors import AdvisorError  # noqa: E402
from advisor.profile import files, names, recording  # noqa: E402
from advisor.profile.recording import waited_for_core_ns  # noqa: E402
from advisor.record import parse_ranks  # noqa: E402

# On a busy machine a gloo rank of torch 2.13 may abort after its script has ended.
_TORCH_ABORTS = "terminate called without an active exception"
SCRIPT = """
import sys, torch, torch.distributed as dist, torch.nn as nn
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(int(sys.argv[1])):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
# One write: two ranks share the pipe, and print writes the words and the line end apart.
sys.stdout.write(f"finished {sys.argv[1:]}\\n")
dist.destroy_process_group()
"""


def steps_in(trace: Path) -> list[str]:
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return sorted({e["name"] for e in events if e["name"].startswith("ProfilerStep#")})


def test_a_loop_skips_then_records_then_does_nothing(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    done: list[Path] = []
    with advisor.profiler(tmp_path, steps=2, skip=3, on_done=done.append) as recorder:
        for _ in range(10):
            model(torch.randn(2, 4)).sum().backward()
            recorder.step()
    assert done == [tmp_path / "rank0.json.gz"]
    assert steps_in(done[0]) == ["ProfilerStep#1", "ProfilerStep#2"]


@pytest.mark.skipif(waited_for_core_ns() is None, reason="the kernel keeps no such times")
@pytest.mark.parametrize(("gloo", "noted"), [("thread-self", True), ("self/task/0", False)])
def test_the_time_without_a_core_is_noted_for_each_recorded_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gloo: str, noted: bool
) -> None:
    """Of the training thread, and of gloo's threads as long as there are such."""
    monkeypatch.setattr(recording, "gloo_tasks", lambda: [Path("/proc") / gloo])
    with advisor.profiler(tmp_path, steps=3, skip=0) as recorder:
        for _ in range(6):
            torch.randn(8, 8).sum()
            recorder.step()
    document = json.loads(gzip.decompress((tmp_path / "rank0.json.gz").read_bytes()))
    waits = document["advisor"]["core_wait_ns"]
    assert len(waits) == len(steps_in(tmp_path / "rank0.json.gz")) == 3
    assert all(wait >= 0 for wait in waits)
    assert len(document["advisor"].get("gloo_wait_ns", [])) == (3 if noted else 0)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the kernel keeps no such times")
def test_what_a_child_runs_is_the_ranks_own_use_of_its_cores(tmp_path: Path) -> None:
    # GIVEN a rank that sleeps through its recorded steps while a child of it runs
    spin = "import time; begin = time.process_time()\nwhile time.process_time() - begin < 0.5: pass"
    with advisor.profiler(tmp_path, steps=2, skip=0) as recorder:
        for step in range(4):
            if step == 2:  # the first that is recorded
                subprocess.run([sys.executable, "-c", spin], check=True)
            recorder.step()
    held = json.loads(gzip.decompress((tmp_path / "rank0.json.gz").read_bytes()))["advisor"][
        "cores"
    ]
    # THEN its time is the rank's, and a part of what its cores were busy (ticks are 10 ms)
    assert held["cpus"] == sorted(os.sched_getaffinity(0))
    assert 0.45e9 <= held["own_ns"] <= held["busy_ns"] + 0.05e9
    assert held["own_ns"] <= held["window_ns"] * len(held["cpus"])


@pytest.mark.slow
def test_what_the_profiler_adds_to_steps_is_told_from_those_before(tmp_path: Path) -> None:
    small = torch.randn(2)
    with advisor.profiler(tmp_path, steps=5, skip=6) as recorder:
        for _ in range(14):
            for _ in range(4000):
                small.add(1)
            recorder.step()
    trace = tmp_path / "rank0.json.gz"
    document = json.loads(gzip.decompress(trace.read_bytes()))
    before = document["advisor"]["steps_before_ns"]
    assert len(before) == 6 and min(before) > 0
    # Other programs may have held up those steps by more than the profiler adds to the later ones.
    before = document["advisor"]["steps_before_ns"] = [one // 4 for one in before]
    trace.write_bytes(gzip.compress(json.dumps(document).encode()))
    with advisor.load(tmp_path) as run:
        (note,) = (n for n in run.report.runs[0].caveats if n.code == "profiler-costs")
    assert (
        note.values["step_ns"]
        > note.values["before_ns"]
        == pytest.approx(sorted(before)[2] / 2 + sorted(before)[3] / 2, rel=0.001)
    )


IN_BACKWARD = """
import torch
layers = [torch.nn.Linear(8, 8) for _ in range(4)]
own = {}
def step(p):
    own[p].step()
    own[p].zero_grad()
for layer in layers:
    for p in layer.parameters():
        own[p] = torch.optim.AdamW([p])
        p.register_post_accumulate_grad_hook(step)
model = torch.nn.Sequential(*layers)
for _ in range(14):
    model(torch.randn(4, 8)).sum().backward()
print("finished")
"""


@pytest.mark.slow
@pytest.mark.parametrize("road", ["command", *long("module")])
def test_an_optimizer_may_step_in_the_backward_pass(tmp_path: Path, road: str) -> None:
    """The profiler was started and stopped inside of it, which ended the job with SIGSEGV."""
    (tmp_path / "train.py").write_text(IN_BACKWARD)
    asked = ["--steps", "3", "--skip", "4", "-o", str(tmp_path / "traces")]
    ways = {
        "command": ["-m", "advisor", "record", *asked, "--", sys.executable, "train.py"],
        "module": ["-m", "advisor.record", *asked, "train.py"],
    }
    ended = subprocess.run(
        [sys.executable, *ways[road]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "finished" in ended.stdout
    assert len(steps_in(tmp_path / "traces" / "rank0.json.gz")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("stacks", [True, False])
def test_with_stacks_a_pause_has_the_name_of_what_runs_there(tmp_path: Path, stacks: bool) -> None:
    with advisor.profiler(tmp_path, steps=3, skip=0, record_stacks=stacks) as recorder:
        for _ in range(6):
            torch.randn(64, 64).sum()
            time.sleep(0.05)
            torch.randn(64, 64).sum()
            recorder.step()
    with advisor.load(tmp_path) as run:
        names_of_pauses = run.sql(
            "SELECT DISTINCT coalesce(name, '') AS name FROM host_gap WHERE idle_ns > 40000000"
        )
    assert list(names_of_pauses["name"]) == (["<built-in function sleep>"] if stacks else [""])


def test_what_collectives_pickle_is_marked_while_it_is_recorded(tmp_path: Path) -> None:
    c10d = torch.distributed.distributed_c10d
    own = c10d._object_to_tensor, c10d._tensor_to_object
    with advisor.profiler(tmp_path, steps=2, skip=1) as recorder:
        for _ in range(6):
            packed, size = c10d._object_to_tensor({"reward": 1.0}, torch.device("cpu"), None)
            assert c10d._tensor_to_object(packed, size, None) == {"reward": 1.0}
            recorder.step()
    events = json.loads(gzip.decompress((tmp_path / "rank0.json.gz").read_bytes()))["traceEvents"]
    marks = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    assert [marks.count(name) for name in names.PICKLING] == [2, 2]
    assert (c10d._object_to_tensor, c10d._tensor_to_object) == own


@pytest.mark.slow
def test_full_collections_of_garbage_are_marked_while_it_is_recorded(tmp_path: Path) -> None:
    before = list(gc.callbacks)
    with advisor.profiler(tmp_path, steps=3, skip=1) as recorder:
        for _ in range(8):
            torch.randn(64, 64).sum()
            held = [[number] for number in range(300_000)]
            gc.collect()
            gc.collect(0)
            torch.randn(64, 64).sum()
            recorder.step()
    assert held
    assert gc.callbacks == before
    with advisor.load(tmp_path) as run:
        pauses = run.sql(
            "SELECT DISTINCT kind, name FROM host_gap WHERE idle_ns > 5000000 AND name IS NOT NULL"
        )
    assert [list(pauses["kind"]), list(pauses["name"])] == [["garbage-collection"], ["gc.collect"]]


def test_too_few_steps_says_so(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match="ended after 1 steps, before recording began"),
        advisor.profiler(tmp_path) as recorder,
    ):
        recorder.step()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("steps", "ranks", "said"),
    [
        (0, None, "starts its ranks itself"),
        (1, [0], "lower skip"),
        (1, [7], "none of the ranks asked for is one of this job"),
    ],
)
def test_nothing_recorded_says_why(
    tmp_path: Path, steps: int, ranks: list[int] | None, said: str
) -> None:
    with (
        pytest.warns(UserWarning, match=said),
        advisor.profiler(tmp_path, ranks=ranks) as recorder,
    ):
        for _ in range(steps):
            recorder.step()


def test_a_recording_cut_short_says_so(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match="recorded 1 of 30 steps: the program ended after 6 steps"),
        advisor.profiler(tmp_path, steps=30, skip=3) as recorder,
    ):
        for _ in range(6):
            torch.ones(3).sum()
            recorder.step()
    assert (tmp_path / "rank0.json.gz").exists()


def test_an_exception_keeps_what_was_recorded(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="boom"),
        advisor.profiler(tmp_path, steps=50, skip=0) as recorder,
    ):
        for number in range(9):
            torch.ones(3).sum()
            recorder.step()
            if number == 5:
                raise RuntimeError("boom")
    assert (tmp_path / "rank0.json.gz").exists()


def test_hooks_that_follow_still_run_and_none_is_left_behind(tmp_path: Path) -> None:
    from torch.optim import optimizer as module

    before = len(module._global_optimizer_post_hooks)
    weights = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    finished = []
    with advisor.profiler(tmp_path, steps=1, skip=1) as recorder:
        recorder.count_optimizer_steps()
        other = module.register_optimizer_step_post_hook(
            lambda *_: finished.append(recorder.finished)
        )
        for _ in range(6):
            weights.grad = torch.ones(2)
            optimizer.step()
    other.remove()
    assert len(module._global_optimizer_post_hooks) == before
    assert finished == [False] * 3 + [True] * 3
    assert steps_in(tmp_path / "rank0.json.gz") == ["ProfilerStep#1"]


@pytest.mark.slow
def test_an_unchanged_script_under_torchrun(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("-m", "advisor.record", "--skip", "2", "--steps", "3", "--diagnose"),
        *("train.py", "9", "--flag-of-the-script"),
    ]
    for attempt in range(8):  # of 25 such jobs it aborted six
        place = tmp_path / str(attempt)
        place.mkdir()
        (place / "train.py").write_text(SCRIPT)
        done = subprocess.run(
            command,
            cwd=place,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        )
        if _TORCH_ABORTS not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert "finished ['9', '--flag-of-the-script']" in done.stdout
    assert "VERDICT" in done.stdout
    for rank in (0, 1):
        assert len(steps_in(place / "advisor-traces" / f"rank{rank}.json.gz")) == 3


EIGHT_RANKS = [f"rank{rank}.json.gz" for rank in range(8)]


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with yesterday's recording of eight ranks, and files of somebody else."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in [*EIGHT_RANKS, "rankings.json.gz", "nccl.log"]:
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (time.time() - 86400,) * 2)
    return folder


def test_an_earlier_recording_is_not_mixed_in(earlier: Path) -> None:
    assert advisor.profiler(earlier).folder == earlier.with_name("traces-2")
    assert len(list(earlier.iterdir())) == 10
    advisor.profiler(earlier, force=True)
    assert sorted(path.name for path in earlier.iterdir()) == ["nccl.log", "rankings.json.gz"]


def test_what_a_rank_of_the_same_launch_wrote_is_kept(tmp_path: Path) -> None:
    (tmp_path / "rank1.json.gz").write_bytes(b"")
    advisor.profiler(tmp_path)
    assert (tmp_path / "rank1.json.gz").exists()


def test_ranks_started_again_go_on(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a launcher's second start THEN the first one's traces go, not another launch's."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert advisor.profiler(earlier).folder == earlier.with_name("traces-2")
    launched = time.time() - 2 * 86400
    monkeypatch.setattr(
        files, "_started_s", lambda pid: launched if pid == os.getppid() else time.time()
    )
    assert advisor.profiler(earlier).folder == earlier
    assert not (earlier / "rank7.json.gz").exists()


def test_a_recording_of_advisor_profile_is_left_alone(earlier: Path) -> None:
    (earlier / "logs").mkdir()
    (earlier / "logs" / "job.json").write_text("{}")
    with pytest.raises(AdvisorError, match="advisor profile"):
        advisor.profiler(earlier, force=True)
    assert (earlier / "rank7.json.gz").exists()
    assert advisor.profiler(earlier).folder == earlier.with_name("traces-2")


@pytest.mark.long
@pytest.mark.slow
def test_a_recording_of_another_command_is_never_removed(earlier: Path) -> None:
    (earlier / "logs").mkdir()
    (earlier / "logs" / "job.json").write_text("{}")
    (earlier.parent / "train.py").write_text("print('trained')")
    command = [sys.executable, "-m", "advisor.record", "-o", "traces"]

    def run(*options: str, rank: str = "0") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options, "train.py"], cwd=earlier.parent, capture_output=True, text=True,
            check=False, env={**os.environ, "LOCAL_RANK": rank},
        )  # fmt: skip

    refused, other = run("--force"), run("--force", rank="1")
    assert (refused.returncode, other.returncode) == (2, 2)
    assert "trained" not in refused.stdout
    assert "is a recording of `advisor profile`" in refused.stderr
    assert other.stderr == ""
    assert "trained" in run().stdout
    assert sorted(path.name for path in earlier.glob("rank?.json.gz")) == EIGHT_RANKS


def test_ranks_to_record() -> None:
    assert parse_ranks("all") is None
    assert parse_ranks("0,3,8-11") == [0, 3, 8, 9, 10, 11]
    for none in ("first", "1-0"):
        with pytest.raises(AdvisorError, match="no list of ranks"):
            parse_ranks(none)
