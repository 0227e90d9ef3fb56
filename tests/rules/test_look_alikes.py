"""What looks like a fault and is none, on real recordings or on real recordings edited by code.

The rest of the list is in test_real.py: the union of streams, DDP's first bucket and one over the
cap, a clock that is off, one rank alone, collectives under compute, a job bound by compute.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.findings import FindingsReport
from advisor.ingest import ingest
from advisor.store import Store
from tests.rules.test_real import BLAME, report_of, urgent
from tests.support.marks import long

BELOW = {"bandwidth-below-expected", "benchmark-below-limit"}
# All stands still at one moment: what was under way lasts longer, the rest is later.
PAUSE = """
UPDATE event SET
  dur_ns = dur_ns + CASE WHEN start_ns < {at} AND start_ns + dur_ns > {at} THEN {ns} ELSE 0 END,
  start_ns = CASE WHEN start_ns >= {at} THEN start_ns + {ns} ELSE start_ns END
"""


def middle_of_first_step(folder: Path) -> int:
    with Store.create() as store:
        ingest([str(folder)], store)
        start, length = store.con.execute(
            "SELECT start_ns, dur_ns FROM event WHERE name LIKE 'ProfilerStep#%' "
            "ORDER BY start_ns LIMIT 1"
        ).fetchall()[0]
    return int(start) + int(length) // 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2-tiny-ddp-2", *long("lab-ddp-compute-bound")])
def test_a_long_first_step_is_a_warm_up(fixtures_dir: Path, name: str) -> None:
    """Ten times as long as the others, as a compiling or autotuning first step is."""
    folder = fixtures_dir / name
    plain = report_of(folder)
    step_ns = plain.runs[0].step_ns_median
    assert step_ns is not None
    change = PAUSE.format(at=middle_of_first_step(folder), ns=10 * step_ns)
    slow = report_of(folder, change=change)
    assert any(note.code == "warm-up" for note in slow.runs[0].notes)
    assert slow.runs[0].step_ns_median == pytest.approx(step_ns, rel=0.1)
    # Without its slowest step a run is steadier: that its ranks wait for one another can be seen.
    assert [rule for rule in urgent(slow) if rule != "jitter"] == urgent(plain)
    assert not {item.rule for item in slow.findings} & (BLAME - {"jitter"})


@pytest.mark.slow
def test_pauses_that_move_are_no_rank_s_fault(fixtures_dir: Path) -> None:
    report = report_of(fixtures_dir / "lab-zero1-pauses")
    assert "jitter" in urgent(report)
    assert "straggler-rank" not in {item.rule for item in report.findings}
    assert all(len(item.ranks) != 1 for item in report.findings if item.rule == "jitter")


def found(report: FindingsReport) -> set[str]:
    return {item.rule for item in report.findings}


def times_slower(text: str, factor: float) -> str:
    """The benchmark's result lines with every time so much longer and every bandwidth lower."""
    lines = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) == 12 and cells[0].isdigit():
            for place in (4, 8):
                cells[place] = f"{float(cells[place]) * factor:.2f}"
            for place in (5, 6, 9, 10):
                cells[place] = f"{float(cells[place]) / factor:.2f}"
            line = "  ".join(cells)
        lines.append(line)
    return "\n".join(lines)


@pytest.mark.long
def test_trees_over_two_hosts_beat_one_nic_and_miss_nvlink(
    shared_data: Path, tmp_path: Path
) -> None:
    """34 GB/s over NICs of 25 GB/s is healthy between hosts; inside one, of 300 GB/s, it is not."""
    text = (shared_data / "nccl_tests" / "nccl_allreduce.log").read_text()
    log = tmp_path / "all_reduce_perf.log"
    trace = shared_data / "ddp_2xA100_metadata"
    log.write_text(text)
    assert not found(report_of(trace, log)) & BELOW
    slow = times_slower(text, 235 / 34)
    log.write_text(slow)
    assert found(report_of(trace, log)) & BELOW
    two_hosts = slow
    for rank in range(8):
        two_hosts = two_hosts.replace(
            f"#   Rank  {rank} Pid 112424 on localhost device  {rank}",
            f"#   Rank  {rank} Pid {112424 + rank // 4} on node{rank // 4} device  {rank % 4}",
        )
    assert "on node1 device" in two_hosts
    log.write_text(two_hosts)
    assert not found(report_of(trace, log)) & BELOW
