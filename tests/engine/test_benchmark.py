"""What a benchmark's verdict says of half the bandwidth is what its table holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine import diagnose
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store


@pytest.mark.slow
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


def test_the_verdict_is_of_the_fastest_table(tmp_path: Path) -> None:
    """GIVEN latencies of small messages beside a test of bandwidth, neither of an all-reduce."""
    speeds = "# OSU MPI-CUDA Bandwidth Test v5.7\n# Size      Bandwidth (MB/s)\n1048576  12300.00\n"
    delays = "# OSU MPI-CUDA Latency Test v5.7\n# Size          Latency (us)\n256  2.80\n"
    (tmp_path / "osu.txt").write_text(speeds + delays)
    with Store.create() as store:
        ingest([tmp_path / "osu.txt"], store)
        derive(store)
        values = diagnose(store, command="advisor diagnose x").verdict.values
    assert (values["op"], values["best_gbps"]) == ("send_recv", 12.3)


def test_a_table_of_small_messages_tells_no_bandwidth(tmp_path: Path) -> None:
    """ROCm/rccl pull 929: «reaches 0.11 GB/s» was said of messages up to 1 kB."""
    (tmp_path / "all_reduce.txt").write_text(
        "#       size         count      type   redop     time   algbw   busbw  error     time   "
        "algbw   busbw  error\n"
        "           8             2     float     sum    25.06    0.00    0.00  4e-07    25.95    "
        "0.00    0.00  4e-07\n"
        "        1024           256     float     sum    31.25    0.03    0.06  4e-07    16.80    "
        "0.06    0.11  2e-07\n"
    )
    with Store.create() as store:
        ingest([tmp_path / "all_reduce.txt"], store)
        derive(store)
        verdict = diagnose(store, command="advisor diagnose x").verdict
    assert verdict.title.startswith("all_reduce of 8 B takes 25 µs.")
