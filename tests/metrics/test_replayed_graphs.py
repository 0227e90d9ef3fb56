"""Whether most of what a device did was replayed by CUDA graphs: serving with graphs is no fix."""

from __future__ import annotations

import pytest

from advisor.metrics.timeline.content import content_rows
from advisor.store.store import Store


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calls", "kernels", "replays"),
    [
        ({"hipGraphLaunch": 1, "hipLaunchKernel": 10}, 555, True),
        ({"cudaGraphLaunch": 1, "cudaLaunchKernel": 500}, 555, False),
        ({"cudaLaunchKernel": 10}, 555, False),  # a recording that lost its launches
    ],
)
def test_a_device_replays_where_few_launches_start_many_kernels(
    calls: dict[str, int], kernels: int, replays: bool
) -> None:
    names = [("runtime", None, name) for name, count in calls.items() for _ in range(count)]
    names += [("compute", 0, "gemm")] * kernels
    with Store.create() as store:
        store.con.executemany(
            "INSERT INTO event BY NAME SELECT 'run' AS run, 0 AS rank, $1 AS event_id, "
            "$2 AS class, $3 AS device, $4 AS name, 0 AS start_ns, 5 AS dur_ns",
            [(number, *event) for number, event in enumerate(names)],
        )
        (row,) = content_rows(store.con, "run")
    assert row["replays"] is replays
