"""Steps of engines of inference: the ranges that each opens, names as real recordings have them."""

from __future__ import annotations

import pytest

from advisor.metrics.steps.annotated import _engine_steps, _loop_steps
from tests.metrics.test_optimizer_steps import steps_of

READS = {
    "vLLM": "execute_context_1(512)_generation_1(1)",
    "vLLM for ROCm": "execute_15360_context_15(sq15360sk15360)_generation_0",
    "SGLang": "step[EXTEND bs=15 toks=15360]",
    "TensorRT-LLM": "[Executor] _forward_step 7: 1 ctx reqs, 3 gen reqs",
}
GENERATES = {
    "vLLM": "execute_context_0(0)_generation_1(1)",
    "vLLM for ROCm": "execute_32_context_0(sq0sk0)_generation_32(sq32sk4096)",
    "SGLang": "step[DECODE bs=3]",
    "TensorRT-LLM": "[Executor] _forward_step 8: 0 ctx reqs, 4 gen reqs",
}


@pytest.mark.parametrize("engine", READS)
def test_steps_of_an_engine_are_those_of_one_kind(engine: str) -> None:
    names = [GENERATES[engine], READS[engine], "other", GENERATES[engine], GENERATES[engine]]
    ranges = [(name, 10 * k, 10 * k + 9) for k, name in enumerate(names)]
    assert _engine_steps(ranges) == {0: (0, 9), 2: (30, 39), 3: (40, 49)}
    prompts = [(READS[engine], 10 * k, 10 * k + 9) for k in range(1, 4)]
    assert list(_engine_steps([*ranges[:1], *prompts])) == [1, 2, 3]


def test_one_range_alone_tells_nothing_of_steps() -> None:
    assert _engine_steps([(READS["SGLang"], 0, 9)]) == {}


def test_a_range_within_another_is_no_step_of_its_own() -> None:
    pairs = [(GENERATES["vLLM for ROCm"], 0, 9), (GENERATES["SGLang"], 1, 8)]
    assert _engine_steps(pairs) == {}
    later = [(name, start + 10, end + 10) for name, start, end in pairs]
    assert _engine_steps([*pairs, *later]) == {0: (0, 9), 1: (10, 19)}


def test_an_engines_ranges_are_steps_of_the_device() -> None:
    """Eight launches of graphs, each of 9 ms of work that begins 1 ms later: steps of 10 ms."""
    events = []
    for k in range(8):
        at = {"ts": 10_000.0 * k, "pid": 1, "tid": 1, "ph": "X"}
        name = GENERATES["vLLM"]
        events += [
            {**at, "dur": 5_000.0, "cat": "user_annotation", "name": name},
            {**at, "dur": 20.0, "cat": "cuda_runtime", "name": "cudaGraphLaunch"}
            | {"args": {"correlation": k + 1}},
            {"ts": 10_000.0 * k + 1_000, "dur": 9_000.0, "pid": 0, "tid": 7, "ph": "X"}
            | {"cat": "kernel", "name": "void marlin_moe_wna16::Marlin<1125899906909960l>"}
            | {"args": {"correlation": k + 1, "device": 0, "stream": 7}},
        ]
    found = steps_of({0: {"traceEvents": events}})
    assert [row[2] for row in found[:-1]] == [10_000_000] * 7
    assert {row[4] for row in found} == {"annotation"}


NAMES = [
    "step {}",
    "step_{}",
    "Iteration {}",
    "iter#{}",
    "step{}",
    "Warm-up Step {}",
    "[2] step={}",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_that_numbers_its_ranges_tells_its_steps(name: str) -> None:
    ranges = [(name.format(k), 10 * k, 10 * k + 6) for k in (3, 4, 5)]
    assert _loop_steps(ranges) == {3: (30, 36), 4: (40, 46), 5: (50, 56)}


def test_what_counts_anew_or_beside_itself_is_within_a_step() -> None:
    outer = [("step 0", 0, 90), ("step 1", 100, 190)]
    anew = [(f"iter {k % 2}", 40 * k, 40 * k + 9) for k in range(4)]
    assert _loop_steps([*anew, *outer]) == {0: (0, 90), 1: (100, 190)}
    assert _loop_steps(anew) == {}
    assert _loop_steps([("step 0", 0, 50), ("step 1", 40, 90)]) == {}
    assert _loop_steps([("step 0", 0, 50), ("step forward", 60, 90)]) == {}
    assert _loop_steps([("timestep 0", 0, 50), ("timestep 1", 60, 90)]) == {}
    inner = [("train step 0", 0, 20), ("train step 1", 100, 120)]
    assert _loop_steps([*inner, *outer]) == {0: (0, 90), 1: (100, 190)}
