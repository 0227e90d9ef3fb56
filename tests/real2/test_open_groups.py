"""A generated Megatron job of torch 2.1: two stages of two ranks, and no group by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.api import Run
from tests.real2.test_generated import GEMM, Trace, _loaded

pytestmark = pytest.mark.slow

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)"
LAYERS = 10


class _Rank(Trace):
    """What one rank does in one step of 2 micro-batches; times in µs."""

    def comm(self, name: str, start: float, length: float, stream: int) -> None:
        self.kernel(name, start, length, start - 5)
        self.events[-1]["args"]["stream"] = stream

    def work(self, start: float, each: float, layers: int) -> float:
        """Layers that gather over the tensor-parallel pair, then compute."""
        for _ in range(layers):
            self.comm(GATHER, start, 400, 28)
            self.kernel(GEMM, start + 410, each - 420, start - 300)
            start += each
        return start

    def message(self, ends: list[tuple[str, int]], start: float, until: float) -> float:
        for kind, place in ends:
            op = {"send": "c10d::send", "recv": "c10d::recv_"}[kind]
            inputs = {"Concrete Inputs": ["", "", str(place), "0"]}
            self.host(op, start, 3, **{"Input Dims": [[], [], [], []]}, **inputs)
            shape = {"Input Dims": [[512, 32, 1024]], "Input type": ["c10::BFloat16"]}
            self.host(f"nccl:{kind}", start + 1, 1, "user_annotation", **shape)
            start += 4
        self.host("nccl:coalesced", start, until - start, "user_annotation")
        self.comm(SEND_RECV, start + 6, until - start - 6, 32)
        return until


def _job() -> list[Trace]:
    """1F1B, two micro-batches: forward 20 ms, backward 40 ms a stage, a message 0.2 ms."""
    traces: list[Trace] = []
    for rank in range(4):
        trace = _Rank(rank, 4, "NVIDIA A800-SXM4-80GB")
        begin = 1000.0 + 37 * rank
        trace.host("ProfilerStep#9", 500, 190_000, cat="user_annotation")
        ids = {"Input Dims": [[32, 1024]], "Input type": ["long int"]}
        # Two pairs gather at times of their own: half a layer apart.
        shift = 450.0 * (rank % 2)
        if rank < 2:
            trace.host("nccl:broadcast", begin, 20, "user_annotation", **ids)
            at = trace.work(begin + 20 + shift, 2000, LAYERS)
            at = trace.message([("send", 1)], at, at + 200)
            at = trace.work(at, 2000, LAYERS)
            at = trace.message([("send", 1), ("recv", 1)], at, 102_000)
            at = trace.work(at, 4000, LAYERS)
            at = trace.message([("recv", 1)], at, 164_000)
            trace.work(at, 2400, LAYERS)
        else:
            at = trace.message([("recv", 0)], begin, 22_000)
            at = trace.work(at + shift, 6000, LAYERS)
            at = trace.message([("send", 0), ("recv", 0)], at, 102_000)
            at = trace.work(at + shift, 6000, LAYERS)
            trace.message([("send", 0)], at, 164_000)
        traces.append(trace)
    return traces


def test_stages_are_told_by_batched_messages(tmp_path: Path) -> None:
    with _loaded(tmp_path, *_job()) as run:
        stages = run.sql("SELECT rank, stage, stages, micro_batches FROM pipeline_stage")
        assert stages.to_dict("records") == [
            {"rank": rank, "stage": rank // 2, "stages": 2, "micro_batches": 2}
            for rank in (0, 2, 1, 3)
        ]
        assert run.report.verdict.cause == "pipeline-bubble"


def _streams(run: Run) -> set[str]:
    return set(run.sql("SELECT DISTINCT process_group FROM collective WHERE op = 'all_gather'")
               ["process_group"])  # fmt: skip


def test_ranks_of_several_open_groups_are_of_one_run(tmp_path: Path) -> None:
    """Gathers of two pairs, compared as one group's, end before they begin: no other run."""
    with _loaded(tmp_path, *_job()) as run:
        assert run.report.verdict.reason != "never-met"
        assert _streams(run) == {f"not recorded (rank {rank})" for rank in range(4)}
        assert {note.code for one in run.report.runs for note in one.notes} >= {
            "groups-not-recorded"
        }
