"""The files and the judge: fields as real traces have them, truth beside them, places judged."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.findings import Finding, Severity, Verdict
from benchmarks.gpulab import bases, cases, compare, edits, make, run
from benchmarks.gpulab.cases import Case
from benchmarks.gpulab.faults import FAULTS, Made, Place
from benchmarks.gpulab.job import Job
from benchmarks.gpulab.judge import judge_fix, judge_place
from benchmarks.gpulab.kineto import Clock
from benchmarks.gpulab.score import compare as compare_report
from benchmarks.gpulab.score import summarise

JOB = Job(per_host=2, layers=2, steps=5, torch="2.12", nccl="2.29.7")
# Of pytorch/kineto's output_json.cpp, as the 2xA100 trace of HolisticTraceAnalysis has them.
KERNEL_ARGS = {
    "External id", "queued", "device", "context", "stream", "correlation", "registers per thread",
    "shared memory", "blocks per SM", "warps per SM", "grid", "block",
    "est. achieved occupancy %",
}  # fmt: skip
NCCL_ARGS = {
    "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "In split size",
    "Out split size", "Process Group Name", "Process Group Description", "Process Group Ranks",
}  # fmt: skip


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpulab")
    run.write(JOB, *run.simulate(JOB), folder)
    return folder


def _events(path: Path) -> list[dict]:
    with gzip.open(path, "rt") as file:
        return json.load(file)["traceEvents"]


def test_kernels_have_the_fields_of_real_ones(traces: Path) -> None:
    for path in traces.iterdir():
        kernels = [event for event in _events(path) if event.get("cat") == "kernel"]
        comm = [event for event in kernels if "nccl" in event["name"]]
        assert (
            len(comm) == JOB.steps * 6
        )  # of each layer's four tensors the two small ones share a bucket
        assert all(set(event["args"]) == KERNEL_ARGS | NCCL_ARGS | {"Seq"} for event in comm)
        assert all(set(event["args"]) == KERNEL_ARGS for event in kernels if event not in comm)


def test_every_kernel_has_its_launch_and_flow(traces: Path) -> None:
    events = _events(next(traces.iterdir()))
    launched = {event["args"]["correlation"]: event["ts"] for event in events
                if event.get("cat") == "cuda_runtime"}  # fmt: skip
    ends = {event["id"] for event in events if event["ph"] == "f"}
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy"):
            assert event["args"]["correlation"] in ends
            # The device's clock may be 1.5 us off the host's.
            assert event["ts"] > launched[event["args"]["correlation"]] - 2


def test_a_stream_runs_one_thing_at_a_time(traces: Path) -> None:
    for path in traces.iterdir():
        streams: dict[int, list[tuple[float, float]]] = {}
        for event in _events(path):
            if event.get("cat") in ("kernel", "gpu_memcpy"):
                span = (event["ts"], event["ts"] + event["dur"])
                streams.setdefault(event["tid"], []).append(span)
        for spans in streams.values():
            spans.sort()
            assert all(a[1] <= b[0] + 0.002 for a, b in pairwise(spans))


def test_two_like_traces_differ_in_nothing(traces: Path) -> None:
    first, second = (compare.read(path) for path in sorted(traces.iterdir()))
    assert compare.differences(first, second) == []


def test_the_real_trace_beside_the_project_differs_in_what_is_known(traces: Path) -> None:
    real = Path(__file__).parents[3] / "shared/data/ddp_2xA100_metadata/rank0.json.gz"
    if not real.exists():
        pytest.skip("other people's recordings are not here (../shared/data)")
    lines = compare.differences(compare.read(real), compare.read(next(traces.iterdir())))
    missing = {line for line in lines if "only real" in line and "X/" in line}
    assert missing == {"kind of event only real: X/gpu_memset"}
    assert not any(line.startswith("order") for line in lines)


@pytest.mark.parametrize("kind", edits.KINDS)
def test_edits_change_what_they_say(kind: str, traces: Path, tmp_path: Path) -> None:
    run.write(JOB, *run.simulate(JOB), tmp_path)
    edits.apply(kind, tmp_path, JOB, (0,), "draw")
    files = sorted(tmp_path.iterdir())
    if kind == "missing-ranks":
        assert len(files) == 1
    elif kind == "one-step-files":
        assert len(files) == 6
        for path in files:
            names = [e["name"] for e in _events(path) if e["name"].startswith("ProfilerStep")]
            assert len(set(names)) == 1
    elif kind == "cut-file":
        with pytest.raises(json.JSONDecodeError):
            [_events(path) for path in files]
    else:
        without = [path for path in files
                   if not any(e.get("cat") == "kernel" for e in _events(path))]  # fmt: skip
        assert len(without) == 1


@pytest.mark.parametrize("torch", ["2.3", "2.9"])
def test_jobs_of_every_seed_run_in_this_decade(torch: str) -> None:
    """Their number once moved the clock on by years, to where no file can be."""
    job = bases.base("ddp", random.Random(0), 11 * 100_000 + 99_999)
    clock = Clock(replace(job, torch=torch), 0)
    assert 1.7e9 < (clock.base + clock.start) / 1e9 < 1.8e9


def test_every_rule_that_names_one_of_two_faults_has_its_gain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes = {1: 50.0, 2: 48.0, 3: 41.0}
    monkeypatch.setattr(make, "_step", lambda job: (takes[job.steps], None))
    both = Made(JOB, without=(("a", replace(JOB, steps=2)), ("b c", replace(JOB, steps=3))))
    assert make._gains(both, takes[1]) == {"a": 2, "b": 9, "c": 9}


@pytest.mark.slow
def test_a_seed_has_what_the_issue_asks_for() -> None:
    plans = cases.plans(2)
    assert len({plan.id for plan in plans}) == len(plans)
    assert sum(plan.is_control for plan in plans) >= 60
    assert sum(not plan.is_control for plan in plans) >= 120
    assert len(FAULTS) >= 35
    assert plans == cases.plans(2)


@pytest.mark.slow
def test_the_truth_is_what_the_fault_costs(tmp_path: Path) -> None:
    plan = next(plan for plan in cases.plans(1) if plan.kind == "loader-all")
    case = make.make_case(plan, tmp_path)
    assert case.gain_ns == pytest.approx(case.step_ns - case.healthy_step_ns, abs=2)
    assert case.share > 0.02
    assert make.read_case(tmp_path / plan.id) == case


def _case(place: Place, hosts: int = 4, per_host: int = 2) -> Case:
    return Case("x", "k", "ddp", hosts * per_host, hosts, per_host, False, "", ["slow-ring-link"],
                ["NIC"], place, 10_000_000, 50_000_000, 40_000_000)  # fmt: skip


def _finding(**fields: object) -> Finding:
    return Finding(id="a", run="r", rule="slow-ring-link", severity=Severity.WARNING, title="t",
                   message="m", fix=["Check the NIC"], **fields)  # fmt: skip


def _report(finding: Finding) -> Any:
    return SimpleNamespace(
        findings=[finding], verdict=Verdict(kind="sure", title="It is slow.", cause=finding.rule)
    )


@pytest.mark.parametrize(
    ("place", "fields", "verdict"),
    [
        (Place(hosts=(1,)), {"links": ["gpu-17-01 -> gpu-17-02"]}, "right"),
        (Place(hosts=(1,)), {"links": ["gpu-17-02 -> gpu-17-03"]}, "wrong"),
        (Place(hosts=(1,), direction="send"), {"links": ["gpu-17-00 -> gpu-17-01"]}, "wrong"),
        (Place(hosts=(1,)), {"hosts": ["gpu-17-01"]}, "right"),
        (Place(hosts=(1,)), {"ranks": [2, 3]}, "right"),
        (Place(hosts=(0, 1)), {"hosts": ["gpu-17-00", "gpu-17-01", "gpu-17-02"]}, "candidates"),
        (Place(ranks=(5,)), {"ranks": [5]}, "right"),
        (Place(ranks=(5,)), {"ranks": [4, 5]}, "candidates"),
        (Place(edge=(2, 3)), {"links": ["3 -> 2"]}, "right"),
        (Place(edge=(2, 3)), {"links": ["3 -> 4"]}, "wrong"),
        (Place(ranks=(2, 3), stage=1), {"where": "stage 1"}, "right"),
        (Place(), {}, None),
    ],
)
def test_places(place: Place, fields: dict, verdict: str | None) -> None:
    finding = _finding(**fields)
    assert judge_place(_case(place), finding) == verdict
    assert judge_fix(_case(place), finding)


def test_nothing_said_is_a_miss() -> None:
    score = compare_report(_case(Place(ranks=(1,))), None, "boom")
    assert (score.band, score.top, score.rank_of_truth) == ("strong", "healthy", None)
    assert score.fix_right is False
    assert score.error == "boom"


@pytest.mark.parametrize(
    ("place", "ranks", "first"),
    [
        (Place(ranks=(2,)), [2], 1),
        (Place(ranks=(2,)), [2, 3], None),
        (Place(ranks=(2, 3), stage=1), [2, 3], 1),
    ],
)
def test_a_stage_is_a_slow_rank_where_it_is_that_rank_alone(
    place: Place, ranks: list[int], first: int | None
) -> None:
    case = _case(place)
    case.rules.append("imbalanced-pipeline-stages")
    said = _finding(ranks=ranks).model_copy(update={"rule": "imbalanced-pipeline-stages"})
    score = compare_report(case, _report(said))
    assert score.rank_of_truth == first


@pytest.mark.parametrize(("gain_ns", "place"), [(12_000_000, 1), (9_500_000, 1), (8_000_000, None)])
def test_what_costs_as_much_may_come_first(gain_ns: int, place: int | None) -> None:
    case = _case(Place())
    case.gains["full-shard-across-nodes"] = gain_ns
    finding = _finding(savings_ns=10_000_000).model_copy(
        update={"rule": "full-shard-across-nodes", "fix": ["Replicate: HYBRID_SHARD"]}
    )
    report = _report(finding)
    score = compare_report(case, report)
    assert score.rank_of_truth == place
    assert score.fix_right is (place is not None)


def test_the_longest_sentence_of_a_why_is_counted_in_words() -> None:
    """What begins with a number is a sentence, too."""
    said = compare_report(_case(Place()), _report(_finding()))
    why = "It idles 1 ms. 88 us is exposed there in each of the steps."
    summary = summarise([replace(said, why=why), said], "1")["summary"]
    assert (summary["longest_verdict"], summary["longest_why_words"]) == (len("It is slow."), 10)
