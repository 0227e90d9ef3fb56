"""What a benchmark's verdict says of half the bandwidth is what its table holds."""

from __future__ import annotations

from pathlib import Path

from advisor.engine import diagnose
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store


def test_half_of_the_best_bandwidth_is_read_from_the_measured_sizes(shared_data: Path) -> None:
    """GIVEN sizes that one fitted line does not follow THEN the points decide, not the line."""
    with Store.create() as store:
        ingest([shared_data / "nccl_tests"], store)
        derive(store)
        verdict = diagnose(store, command="advisor diagnose x").verdict
        points = store.con.execute(
            "SELECT bytes, max(busbw_gbps) FROM bench WHERE op = 'all_reduce' AND busbw_gbps > 0 "
            "GROUP BY bytes ORDER BY bytes"
        ).fetchall()
    half_bytes = verdict.values["half_bytes"]
    best = max(speed for _, speed in points)
    assert max(speed for size, speed in points if size < half_bytes) < best / 2
    assert min(speed for size, speed in points if size > half_bytes) >= best / 2
