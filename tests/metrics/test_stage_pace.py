"""Why a stage of a pipeline computes longer: more layers, larger ones, or a slower device."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.metrics.models.stage_pace import add_stage_pace
from advisor.store import Store

US = 1_000
Kernel = tuple[str, str | None, int, int]
"""Name, the launching operator's shapes, how long it takes (us), how often it runs."""
MM, OTHER_MM = "[[2048,3072],[3072,3072]]", "[[2432,3072],[3072,3072]]"
LAYERS: list[Kernel] = [("gemm", MM, 100, 8), ("norm", "[[2048,3072]]", 20, 8)]
HEAD: Kernel = ("softmax", "[[2048,50257]]", 900, 1)


def paces(stages: list[list[Kernel]]) -> list[tuple[float | None, bool | None]]:
    """Of a rank per stage that runs these kernels one after the other."""
    with Store.create() as store:
        records: list[dict[str, Any]] = []
        for rank, kernels in enumerate(stages):
            at, number = 0, 0
            for name, dims, took_us, count in kernels:
                for _ in range(count):
                    number += 2
                    store.con.execute(
                        "INSERT INTO event BY NAME SELECT 'run' AS run, $1::INTEGER AS rank, "
                        "$2::BIGINT AS event_id, $3 AS name, 'compute' AS class, 0 AS device, "
                        "$2::BIGINT AS external_id UNION ALL BY NAME SELECT 'run' AS run, "
                        "$1::INTEGER AS rank, $2::BIGINT + 1 AS event_id, 'aten::mm' AS name, "
                        "'cpu_op' AS class, $2::BIGINT AS external_id",
                        [rank, number, name],
                    )
                    if dims is not None:
                        store.con.execute(
                            "INSERT INTO comm_event BY NAME SELECT 'run' AS run, "
                            "$1::INTEGER AS rank, $2::BIGINT AS event_id, $3 AS input_dims",
                            [rank, number + 1, dims],
                        )
                    end = at + took_us * US
                    store.con.execute(
                        "INSERT INTO activity VALUES ('run', ?, 'compute', ?, ?, 7, ?, NULL, 1)",
                        [rank, at, end, number],
                    )
                    at = end
            records.append({"rank": rank, "stage": rank, "compute_ns": at})
        add_stage_pace(store.con, "run", records)
    return [(record["pace"], record["same_shapes"]) for record in records]


def slower(kernels: list[Kernel], factor: float) -> list[Kernel]:
    return [(name, dims, round(us * factor), count) for name, dims, us, count in kernels]


def nameless(kernels: list[Kernel]) -> list[Kernel]:
    return [(name, None, us, count) for name, _, us, count in kernels]


def test_the_same_kernels_on_a_slower_device() -> None:
    found = paces([LAYERS, slower(LAYERS, 1.6), LAYERS])
    assert found == [(None, None), (pytest.approx(1.6), True), (None, None)]


def test_without_shapes_by_name() -> None:
    layers = nameless(LAYERS)
    assert paces([layers, slower(layers, 1.6)])[1] == (pytest.approx(1.6), False)


def test_more_layers_are_as_fast() -> None:
    more = [(name, dims, us, 2 * count) for name, dims, us, count in LAYERS]
    assert paces([LAYERS, more, LAYERS])[1] == (pytest.approx(1.0), True)


def test_larger_layers_cannot_be_compared() -> None:
    larger: list[Kernel] = [("gemm", OTHER_MM, 119, 8), ("norm", "[[2432,3072]]", 24, 8)]
    assert paces([LAYERS, larger])[1] == (None, None)


def test_a_head_that_no_other_stage_has_is_no_slow_device() -> None:
    pace, _ = paces([LAYERS, LAYERS, [*LAYERS, HEAD]])[2]
    assert pace == pytest.approx(1.0)
    alone, _ = paces([LAYERS, LAYERS, [*LAYERS, ("softmax", "[[2048,50257]]", 2000, 1)]])[2]
    assert alone is None  # most of its compute


def test_a_name_that_stands_for_another_mix_of_shapes() -> None:
    usual: list[Kernel] = [("gemm", None, 100, 9), ("gemm", None, 400, 3)]
    mixed: list[Kernel] = [("gemm", None, 100, 6), ("gemm", None, 400, 6)]
    assert paces([usual, usual, mixed])[2] == (None, None)
