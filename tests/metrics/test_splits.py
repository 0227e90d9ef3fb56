"""Uneven all-to-all: who sends how much to whom, from NCCL's metadata and from gloo's requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine import diagnose
from advisor.metrics import derive
from advisor.store.store import Store
from advisor.vocabulary.operations import split_bytes
from tests.metrics.support import store_of

RANKS, WIDTH, STEPS = 4, 64, 6
# Rows of WIDTH floats that each rank sends to each: rank 2 holds the expert that all want.
ROWS = [[10, 20, 90, 8], [12, 18, 88, 10], [9, 22, 95, 2], [11, 20, 87, 10]]


@pytest.mark.parametrize(
    ("recorded", "elements", "expected"),
    [
        ("[3, 1]", 4, (12, 4)),
        ("[3, 1]", 40, (120, 40)),  # rows of ten elements
        ("[0, 4]", 4, (0, 16)),
        ("[]", 4, None),  # even
        ("[1, 2, 3, ...]", 6, None),  # cut by the profiler
        ("[3, 1]", 6, None),
        ("[-1, 5]", 4, None),
        ("[0, 0]", 4, None),
        ("[true, 3]", 4, None),
        ("{}", 4, None),
        ("nonsense", 4, None),
        (None, 4, None),
        ("[3, 1]", None, None),
    ],
)
def test_recorded_splits_become_bytes_or_nothing(
    recorded: str | None, elements: int | None, expected: tuple[int, ...] | None
) -> None:
    assert split_bytes(recorded, elements, 4) == expected


@given(
    st.lists(st.integers(0, 10**6), min_size=1), st.integers(1, 5000), st.sampled_from([1, 2, 8])
)
def test_bytes_add_up_to_the_message(counts: list[int], row: int, width: int) -> None:
    elements = sum(counts) * row
    found = split_bytes(json.dumps(counts), elements, width)
    if elements == 0:
        assert found is None
    else:
        assert found is not None and sum(found) == elements * width and len(found) == len(counts)


def nccl_events(rank: int) -> list[dict[str, Any]]:
    """Steps of one uneven all-to-all each, as kernels with NCCL's metadata."""
    sent = sum(ROWS[rank]) * WIDTH
    received = sum(rows[rank] for rows in ROWS) * WIDTH
    events: list[dict[str, Any]] = []
    for step in range(STEPS):
        begin = step * 1000.0
        events += [
            event("user_annotation", f"ProfilerStep#{step}", begin, 990.0),
            event("cuda_runtime", "cudaLaunchKernel", begin + 1, 2.0, correlation=2 * step + 1),
            event("kernel", "gemm", begin + 5, 300.0, device=0, stream=7, correlation=2 * step + 1),
            event("cuda_runtime", "cudaLaunchKernel", begin + 4, 2.0, correlation=2 * step + 2),
            event(
                "kernel",
                "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
                begin + 310,
                600.0 + rank,
                **{
                    "device": 0,
                    "stream": 20,
                    "correlation": 2 * step + 2,
                    "Collective name": "all_to_allv",
                    "In msg nelems": sent,
                    "Out msg nelems": received,
                    "Group size": RANKS,
                    "dtype": "Float",
                    "In split size": json.dumps(ROWS[rank]),
                    "Out split size": json.dumps([rows[rank] for rows in ROWS]),
                    "Process Group Name": "7",
                    "Process Group Ranks": json.dumps(list(range(RANKS))),
                    "Seq": step,
                },
            ),
        ]
    return events


def event(category: str, name: str, start: float, length: float, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 0, "tid": 1, "ts": start, "dur": length,
        "args": args,
    }  # fmt: skip


@pytest.fixture(scope="module")
def experts() -> Store:
    store = store_of({rank: {"traceEvents": nccl_events(rank)} for rank in range(RANKS)})
    derive(store)
    return store


def test_nccl_metadata_gives_bytes_to_each_peer(experts: Store) -> None:
    found = experts.con.execute(
        "SELECT DISTINCT rank, split_bytes, bytes FROM collective ORDER BY rank"
    ).fetchall()
    assert [(rank, json.loads(text)) for rank, text, _ in found] == [
        (rank, [rows * WIDTH * 4 for rows in ROWS[rank]]) for rank in range(RANKS)
    ]
    assert all(sum(json.loads(text)) == size for _, text, size in found)


@pytest.mark.slow
def test_the_rank_of_the_wanted_expert_is_named(experts: Store) -> None:
    received = [sum(rows[rank] for rows in ROWS) for rank in range(RANKS)]
    expected = max(received) / (sum(received) / RANKS)
    (row,) = experts.con.execute(
        "SELECT process_group, busiest_rank, busiest_share, imbalance FROM expert_balance"
    ).fetchall()
    assert row[:3] == ("7", 2, 1.0)
    assert row[3] == pytest.approx(expected)
    named = {item.rule: item for item in diagnose(experts).findings}["expert-imbalance"]
    assert named.ranks == [2]


def test_gloo_requests_give_them_too() -> None:
    def spans(rank: int) -> list[dict[str, Any]]:
        rows = ROWS[rank]
        received = [one[rank] for one in ROWS]
        shapes = [[sum(received), WIDTH], [sum(rows), WIDTH], [], [], []]
        return [
            event(
                "cpu_op",
                "c10d::alltoall_base_",
                10.0,
                5.0,
                **{
                    "Input Dims": shapes,
                    "Input type": ["float", "float", "", "ScalarList", "ScalarList"],
                    "Concrete Inputs": ["", "", "", json.dumps(received), json.dumps(rows)],
                },
            ),
            {
                **event("cpu_op", "gloo:all_to_all", 20.0, 50.0, **{"Input Dims": [shapes[1]]}),
                "tid": 5,
            },
        ]

    store = store_of({rank: {"traceEvents": spans(rank)} for rank in range(RANKS)})
    derive(store)
    found = store.con.execute("SELECT rank, split_bytes FROM collective ORDER BY rank").fetchall()
    assert [(rank, json.loads(text)) for rank, text in found] == [
        (rank, [rows * WIDTH * 4 for rows in ROWS[rank]]) for rank in range(RANKS)
    ]
