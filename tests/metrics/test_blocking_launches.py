"""Whether launches wait for their kernels: the call then ends after what it launched."""

from __future__ import annotations

import pytest

from advisor.metrics.timeline.content import content_rows
from advisor.store.store import Store


@pytest.mark.parametrize(
    ("kernel_ns", "launch_ns", "blocks"),
    [(300_000, 320_000, True), (300_000, 6_000, False), (2_000, 12_000, None)],
)
def test_a_launch_that_ends_after_its_kernel_waits_for_it(
    kernel_ns: int, launch_ns: int, blocks: bool | None
) -> None:
    with Store.create() as store:
        store.con.execute(
            "INSERT INTO event BY NAME "
            "SELECT 'run' AS run, 0 AS rank, i AS event_id, i AS correlation, 'runtime' AS class, "
            "'cudaLaunchKernel' AS name, i * 1000000 AS start_ns, $2 AS dur_ns, NULL AS device "
            "FROM range(1, 9) t(i) UNION ALL "
            "SELECT 'run', 0, 100 + i, i, 'compute', 'gemm', i * 1000000 + 8000, $1, 0 "
            "FROM range(1, 9) t(i)",
            [kernel_ns, launch_ns],
        )
        (row,) = content_rows(store.con, "run")
    assert row["blocks"] is blocks
