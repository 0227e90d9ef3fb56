"""Work of a device whose duration is not recorded: its step rests on nothing, the others stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.findings import VerdictKind
from benchmarks.fuzz.labelled import LATE_RANK, RANKS, STEPS, Work, job
from tests.support.marks import long

pytestmark = pytest.mark.slow

Change = Callable[[Work, dict[str, Any]], None]


def _traces(folder: Path, change: Change) -> Path:
    """The labelled job as Kineto traces, a file a rank, with its events changed."""
    work = job()
    for rank in range(RANKS):
        own = [one for one in work if one.rank == rank]
        events = [
            _span("user_annotation", f"ProfilerStep#{step}", (begun := min(
                one.launched for one in own if one.step == step)) - 5_000,
                max(one.end for one in own if one.step == step) - begun, {})
            for step in range(STEPS)
        ]  # fmt: skip
        for link, one in enumerate(own, 1):
            args: dict[str, Any] = {"device": rank, "stream": 20 if one.call else 7}
            name = f"{one.call.replace('nccl', 'ncclDevKernel_')}_RING_LL" if one.call else "gemm"
            if one.call:
                args |= {"Collective name": one.call.removeprefix("nccl"), "Group size": RANKS,
                         "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
                         "Process Group Name": "0"}  # fmt: skip
            events.append(
                _span(
                    "cuda_runtime", "cudaLaunchKernel", one.launched, 3_000, {"correlation": link}
                )
            )
            args["correlation"] = link
            events.append(_span("kernel", name, one.start, one.end - one.start, args))
            change(one, events[-1])
        head = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": RANKS}}
        (folder / f"rank{rank}.json").write_text(json.dumps({**head, "traceEvents": events}))
    return folder


def _span(category: str, name: str, start: int, ns: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 9, "ts": start / 1000,
            "dur": ns / 1000, "args": args}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("duration", [-5, "garbage", *long(10**30), None])
def test_its_step_does_not_count(tmp_path: Path, duration: object) -> None:
    """GIVEN one kernel of 1 ms of unknown length in step 3 THEN the rest names who is late."""

    def change(one: Work, event: dict[str, Any]) -> None:
        if (one.rank, one.step, one.call) == (1, 3, "") and event["args"]["correlation"] % 8 == 2:
            event["dur"] = duration

    with advisor.load(_traces(tmp_path, change)) as run:
        steps = run.steps()
        verdict = run.report.verdict
        (untimed,) = run.sql("SELECT count(*) AS n FROM event WHERE dur_ns IS NULL")["n"]
    assert untimed == 1
    assert sorted(set(steps[~steps["used"]]["step"])) == [3]
    assert verdict.kind is VerdictKind.SURE
    assert verdict.values["rule"] == "straggler-rank"


def test_nothing_is_sure_where_every_step_lacks_work(tmp_path: Path) -> None:
    """GIVEN the late rank's kernels of unknown length THEN nobody is accused."""

    def change(one: Work, event: dict[str, Any]) -> None:
        if one.rank == LATE_RANK and not one.call:
            event["dur"] = 10**30

    with advisor.load(_traces(tmp_path, change)) as run:
        report = run.report
    assert report.verdict.kind is VerdictKind.INCONCLUSIVE
    assert not {f.rule for f in report.findings} & {"straggler-rank", "slow-gpu"}


def test_what_cannot_have_taken_long_leaves_its_step(tmp_path: Path) -> None:
    """GIVEN one of unknown length right before the next on its stream THEN all steps count."""
    short = next(one for one in job() if one.rank == 1 and one.step == 3 and not one.call)

    def change(one: Work, event: dict[str, Any]) -> None:
        if one == short:
            event |= {"ts": (one.end - 10_000) / 1000, "dur": -1}

    with advisor.load(_traces(tmp_path, change)) as run:
        assert run.steps()["used"].all()


@pytest.mark.long
def test_a_size_that_contradicts_itself_is_no_disagreement_of_ranks(tmp_path: Path) -> None:
    """GIVEN a reduction of each rank whose input became empty THEN the late rank is named still."""

    def change(one: Work, event: dict[str, Any]) -> None:
        is_reduction = one.call == "ncclAllReduce"
        event["args"] |= {"Seq": 2 * one.step + is_reduction} if one.call else {}
        if is_reduction and one.step == 3 + one.rank % 2:
            event["args"]["In msg nelems"] = 0

    with advisor.load(_traces(tmp_path, change)) as run:
        report = run.report
    assert "desync" not in {finding.rule for finding in report.findings}
    assert report.findings[0].ranks == [LATE_RANK]
