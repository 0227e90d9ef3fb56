"""Theory beside what was measured: textbook values by hand, corrections, and what it refuses."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from advisor.config.hardware import peak_flops
from advisor.config.workload import Workload
from advisor.metrics.models.theory import Theory, theory
from advisor.store.store import Store

SHARED, OUTSIDE, HIDDEN, SEQUENCE, BATCH, LAYERS = 1_000_000, 200_000, 64, 32, 2, 4
ONE_WHOLE = {"pipeline": 1, "tensor": 1, "data": 1, "expert": 1, "shard": 1}
SHAPE = {
    "name": "test", "layers": LAYERS, "hidden": HIDDEN, "heads": 4, "ffn_hidden": 4 * HIDDEN,
    "vocab": 1000, "sequence": 128, "tied_embeddings": True,
}  # fmt: skip
ACTIVATIONS = BATCH * SEQUENCE * HIDDEN * 4


def store_of(
    strategy: str,
    calls: list[tuple[str, int]],
    *,
    device_name: str = "CPU",
    degrees: dict[str, int] | None = None,
    without: str = "",
    **settings: Any,
) -> Store:
    """Two ranks, one step; ``calls`` are (operation, message bytes) that each of them makes."""
    store = Store.create()
    workload = Workload.model_validate(
        {"micro_batch": BATCH, "sequence_length": SEQUENCE, "strategy": strategy, **settings}
    ).model_dump(mode="json")
    recorded: dict[str, Any] = {
        "held_parameters": {"shared": SHARED, "experts": 0, "outside_layers": OUTSIDE},
        "layers_held": LAYERS,
        "degrees": {**ONE_WHOLE, **(degrees or {"data": 2})},
        "transformer": SHAPE,
    }
    recorded.pop(without, None)
    store.con.execute(
        "INSERT INTO run (run, created_at, advisor_version, strategy, workload) "
        "VALUES ('run', '', 'test', ?, ?)",
        [strategy, json.dumps(workload)],
    )
    for rank in range(2):
        store.con.execute(
            "INSERT INTO rank (run, rank, device_name, metadata) VALUES ('run', ?, ?, ?)",
            [rank, device_name, json.dumps({"advisor": recorded})],
        )
        store.con.execute(
            "INSERT INTO step (run, rank, step, start_ns, end_ns, complete, used, source) "
            "VALUES ('run', ?, 0, 0, 1000, true, true, 'test')",
            [rank],
        )
        for number, (op, size) in enumerate(calls):
            store.con.execute(
                "INSERT INTO collective (run, rank, call_id, op, group_size, bytes, start_ns, "
                "end_ns, step) VALUES ('run', ?, ?, ?, 2, ?, 1, 2, 0)",
                [rank, number, op, size],
            )
    return store


def verdicts(found: Theory | None) -> dict[str, str]:
    assert found is not None
    return {item.op: item.verdict for item in found.ops}


def test_ddp_sends_its_gradients_once() -> None:
    # Two ranks: 2(n-1)/n = 1, whatever the buckets.
    store = store_of("ddp", [("all_reduce", 3_000_000), ("all_reduce", 1_000_000)])
    found = theory(store.con, "run")
    assert found is not None
    (item,) = found.ops
    assert (item.theory_bytes, item.measured_bytes) == (4 * SHARED, 4 * SHARED)
    assert verdicts(found) == {"all_reduce": "equal"}
    assert item.explanation == ""


def test_traffic_that_nothing_explains_is_said_to_differ() -> None:
    found = theory(store_of("ddp", [("all_reduce", 8 * SHARED)]).con, "run")
    assert verdicts(found) == {"all_reduce": "differs"}
    assert found is not None
    assert found.ops[0].explanation == "+4 MB are not explained"


def test_fsdp_gathers_twice_except_for_the_root() -> None:
    gathered = 4 * (2 * SHARED - OUTSIDE)
    store = store_of("fsdp2", [("all_gather", gathered), ("reduce_scatter", 4 * SHARED)])
    found = theory(store.con, "run")
    assert verdicts(found) == {"all_gather": "explained", "reduce_scatter": "equal"}
    assert found is not None
    gather = next(item for item in found.ops if item.op == "all_gather")
    # (n-1)/n of 2P and of the root's share of it.
    assert gather.theory_bytes == 4 * SHARED
    assert gather.explanation.startswith("-0.4 MB: embedding and head stay gathered")


def test_zero1_in_torch_is_ddp_and_a_broadcast() -> None:
    found = theory(
        store_of("zero1", [("all_reduce", 4 * SHARED), ("broadcast", 4 * SHARED)]).con, "run"
    )
    assert verdicts(found) == {"all_reduce": "equal", "broadcast": "explained"}


def test_tensor_parallel_layers_all_reduce_four_times() -> None:
    calls = [("all_reduce", ACTIVATIONS)] * (4 * LAYERS)
    store = store_of("tp", calls, degrees={"tensor": 2})
    assert verdicts(theory(store.con, "run")) == {"all_reduce": "equal"}


def test_a_pipeline_sends_activations_and_adds_up_the_tied_weight() -> None:
    tied = SHAPE["vocab"] * HIDDEN * 4  # type: ignore[operator]
    calls = [("send", ACTIVATIONS)] * 3 + [("recv", ACTIVATIONS)] * 3 + [("all_reduce", tied)]
    store = store_of("pp", calls, degrees={"pipeline": 2}, gradient_accumulation=3)
    assert verdicts(theory(store.con, "run")) == {"send": "equal", "all_reduce": "explained"}


def test_accumulation_gathers_for_every_micro_batch_but_reduces_once() -> None:
    calls = [("all_gather", 3 * 4 * SHARED), ("reduce_scatter", 4 * SHARED)]
    store = store_of("fsdp2-zero2", calls, gradient_accumulation=3)
    assert set(verdicts(theory(store.con, "run")).values()) == {"equal"}


def test_the_estimate_of_memory_shrinks_with_the_stage() -> None:
    sizes = []
    for strategy in ("ddp", "zero1", "fsdp2-zero2", "fsdp2"):
        found = theory(store_of(strategy, []).con, "run")
        assert found is not None
        assert found.memory_bytes is not None
        sizes.append(found.memory_bytes)
    # fp32 Adam on two ranks: half of 8, then of 4, then of 4 bytes per parameter go.
    assert [a - b for a, b in itertools.pairwise(sizes)] == pytest.approx(
        [4 * SHARED, 2 * SHARED, 2 * SHARED]
    )


def test_mfu_needs_a_known_peak() -> None:
    on_cpu = theory(store_of("ddp", []).con, "run")
    assert on_cpu is not None
    assert on_cpu.mfu(1e9) is None
    name = "NVIDIA H100 80GB HBM3"
    on_gpu = theory(store_of("ddp", [], device_name=name, precision="bf16").con, "run")
    known = peak_flops(name, "bf16")
    assert on_gpu is not None
    assert known is not None
    assert on_gpu.flops_per_step is not None
    # Two ranks in one second: the job's FLOPs over twice the device's peak.
    assert on_gpu.mfu(1e9) == pytest.approx(on_gpu.flops_per_step / (2 * known[0]))


@pytest.mark.parametrize("without", ["held_parameters", "degrees", "layers_held"])
def test_a_recording_that_does_not_say_enough_has_no_theory(without: str) -> None:
    assert theory(store_of("ddp", [], without=without).con, "run") is None


def test_an_unknown_run_has_no_theory() -> None:
    assert theory(Store.create().con, "run") is None
