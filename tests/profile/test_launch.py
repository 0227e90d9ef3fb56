"""Real launches: a recording with all its ranges, ranks that die or hang, two nodes."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import files
from advisor.profile.failures import LaunchError
from advisor.profile.inject import Fault
from advisor.profile.launch import launch
from advisor.profile.rendezvous import How

pytestmark = pytest.mark.slow

TINY = {
    "model": {"family": "gpt2", "layers": 2, "hidden": 64, "vocabulary": 64},
    "micro_batch": 1,
    "sequence_length": 16,
    "gradient_accumulation": 2,
    "warmup_steps": 2,
    "timed_steps": 2,
    "steps": 2,
    "bucket_cap_mb": 0.2,
}
PATIENCE_S = 120.0


def workload(**settings: Any) -> Workload:
    return Workload.model_validate({**TINY, **settings})


def read(folder: Path, rank: int) -> dict[str, Any]:
    with gzip.open(files.trace(folder, rank), "rt") as handle:
        document: dict[str, Any] = json.load(handle)
    return document


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    launch(workload(), folder, How(timeout_s=PATIENCE_S))
    return folder


@pytest.mark.parametrize("rank", [0, 1])
def test_a_trace_has_every_range(recorded: Path, rank: int) -> None:
    trace = read(recorded, rank)
    events = [e for e in trace["traceEvents"] if e.get("cat") == "user_annotation"]
    count = Counter(event["name"] for event in events)
    steps, micro_batches, passes = 2, 2, 2
    assert count["ProfilerStep#1"] == count["ProfilerStep#2"] == 1
    assert count["## forward ##"] == count["## backward ##"] == steps * micro_batches
    assert count["## optimizer ##"] == steps
    for layer in (0, 1):
        assert count[f"## layer {layer} ##"] == steps * micro_batches * passes
    buckets = trace["advisor"]["buckets"]
    assert len(buckets) > 1
    for bucket in buckets:
        assert count[f"## bucket {bucket['bucket']} ##"] == steps
    # Gradients are synchronised on the last micro-batch only, one all-reduce for each bucket.
    assert count["gloo:all_reduce"] == steps * len(buckets)
    elements = sum(
        event["args"]["Input Dims"][0][0] for event in events if event["name"] == "gloo:all_reduce"
    )
    assert 4 * elements == steps * sum(bucket["bytes"] for bucket in buckets)


def test_the_metadata_says_what_the_trace_cannot(recorded: Path) -> None:
    trace = read(recorded, 1)
    said = trace["advisor"]
    assert (said["strategy"], said["compute"], said["rank"], said["world_size"]) == (
        "ddp", "real", 1, 2,
    )  # fmt: skip
    assert said["workload"]["gradient_accumulation"] == 2
    assert said["peak_memory_bytes"] > 50e6
    gloo = {str(e["tid"]) for e in trace["traceEvents"] if e["name"] == "gloo:all_reduce"}
    assert gloo <= set(said["gloo_threads"])
    (group,) = trace["distributedInfo"]["pg_config"]
    assert set(said["gloo_threads"].values()) == {group["pg_name"]}


def test_the_backward_of_a_layer_follows_that_of_the_next(recorded: Path) -> None:
    events = read(recorded, 0)["traceEvents"]
    spans = {name: [e for e in events if e.get("name") == name] for name in
             ("## backward ##", "## layer 0 ##", "## layer 1 ##")}  # fmt: skip
    for backward in spans["## backward ##"]:
        start, end = backward["ts"], backward["ts"] + backward["dur"]
        (first,) = [e for e in spans["## layer 0 ##"] if start <= e["ts"] < end]
        (second,) = [e for e in spans["## layer 1 ##"] if start <= e["ts"] < end]
        assert second["ts"] + second["dur"] <= first["ts"] + 0.001  # µs, rounded to ns
        assert first["ts"] + first["dur"] <= end


def test_profile_json_is_written_by_the_ranks(recorded: Path) -> None:
    found = json.loads((recorded / "profile.json").read_text())
    assert (found["status"], found["strategy"], found["world_size"]) == ("ok", "ddp", 2)
    assert len(found["step_ns"]["samples"]) == len(found["profiled_step_ns"]["samples"]) == 2
    assert found["tokens_per_step"] == 1 * 16 * 2 * 2
    assert len(found["losses"]) == 2 + 2 + 1 + 2
    assert [rank["trace"] for rank in found["ranks"]] == ["rank0.json.gz", "rank1.json.gz"]


def test_a_rank_that_dies_is_named_and_the_other_keeps_its_trace(tmp_path: Path) -> None:
    fault = Fault.parse("die:rank=1,step=6")  # the second recorded step
    with pytest.raises(AdvisorError) as failed:
        launch(workload(), tmp_path, How(faults=(fault,), timeout_s=PATIENCE_S))
    assert "rank 1 exited with status 17" in failed.value.message
    assert "rank 0" not in failed.value.message
    names = [event["name"] for event in read(tmp_path, 0)["traceEvents"]]
    assert "ProfilerStep#1" in names


@pytest.mark.long
def test_a_rank_that_hangs_is_named_with_its_place(tmp_path: Path) -> None:
    fault = Fault.parse("hang:rank=0,step=6")
    with pytest.raises(AdvisorError) as failed:
        launch(workload(), tmp_path, How(faults=(fault,), timeout_s=20.0))
    assert "rank 0 made no progress for 20 s, in step 6" in failed.value.message
    stacks = [path.read_text() for path in tmp_path.glob("logs/**/0/stderr.log")]
    assert any("inject.py" in text for text in stacks)


@pytest.mark.long
def test_memory_running_out_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as failed:
        launch(workload(micro_batch=10**10), tmp_path, How(timeout_s=PATIENCE_S))
    assert failed.value.out_of_memory


@pytest.mark.long
def test_another_package_of_that_name_in_the_working_folder_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "advisor").mkdir()
    (tmp_path / "advisor" / "__init__.py").write_text("raise SystemExit('the wrong advisor')")
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')")
    monkeypatch.chdir(tmp_path)
    launch(workload(strategy="single", world_size=1), Path("run"), How(timeout_s=PATIENCE_S))
    assert files.trace(Path("run"), 0).exists()


@pytest.mark.long
def test_two_nodes_meet_whichever_starts_first(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    folder = tmp_path / "run"

    def start(rank: int) -> subprocess.Popen[str]:
        code = (
            "from pathlib import Path; from advisor.config.workload import Workload;"
            "from advisor.cli._profile_run import How, run_one;"
            "from advisor.profile.rendezvous import Nodes;"
            f"run_one(Workload.model_validate({workload().model_dump(mode='json')!r}),"
            f"Path({str(folder)!r}), How(nodes=Nodes(2, {rank}, {endpoint!r}), timeout_s=100.0))"
        )
        return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)

    second = start(1)
    assert second.stderr is not None
    said = iter(second.stderr.readline, "")
    assert any("node 1 waits for the first node" in line for line in said)
    assert not folder.exists(), "nothing may look like a recording before the first has come"
    first = start(0)
    _, said_by_first = first.communicate(timeout=200)
    _, said_by_second = second.communicate(timeout=200)
    assert (first.returncode, second.returncode) == (0, 0), said_by_first + said_by_second
    for rank in (0, 1):
        assert read(folder, rank)["distributedInfo"]["rank"] == rank
    assert json.loads((folder / files.PROFILE_FILE).read_text())["status"] == "ok"
