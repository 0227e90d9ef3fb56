"""nccl-tests output alone: α, β and n* of each operation come back, and its device is known."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.model.alpha_beta import terms

HEADER = """\
# Collective test starting: {op}_perf
# nThread 1 nGpus 8 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
{devices}
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""  # noqa: E501
ALPHA_NS, BETA = 2_500.0, 0.005


def output(op: str = "all_reduce", hosts: int = 1, beta: float = BETA) -> str:
    """What the program prints where calls follow t = k α + m S β exactly, on 8 A100."""
    devices = "\n".join(
        f"#   Rank  {n} Pid 1 on node{n % hosts} device  {n} [0x00] A100-SXM4-40GB"
        for n in range(8)
    )
    coefficients = terms(op, 8)
    assert coefficients is not None
    k, m = coefficients
    lines = []
    for power in range(3, 31):
        size = 2**power
        us = (k * ALPHA_NS + m * size * beta) / 1e3
        half = f"{us:.3f} {size / us / 1e3:.2f} {1.75 * size / us / 1e3:.2f} N/A"
        lines.append(f"{size} {size // 4} float sum {half} {half}")
    return HEADER.format(op=op, devices=devices) + "\n".join(lines) + "\n"


@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
def test_the_fit_of_a_benchmark_is_what_its_times_follow(tmp_path: Path, op: str) -> None:
    (tmp_path / "out.log").write_text(output(op))
    with advisor.load(tmp_path / "out.log") as run:
        (fit,) = run.sql("SELECT * FROM alpha_beta").to_dict("records")
    assert (fit["origin"], fit["op"], fit["group_size"]) == ("nccl-tests", op, 8)
    assert fit["alpha_ns"] == pytest.approx(ALPHA_NS, rel=0.02)
    assert fit["beta_ns_per_byte"] == pytest.approx(BETA, rel=0.02)
    k, m = terms(op, 8) or (0.0, 0.0)
    assert fit["n_star_bytes"] == pytest.approx(k * ALPHA_NS / (m * BETA), rel=0.03)


@pytest.mark.slow
def test_text_and_report_show_fit_and_hardware(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(output())
    with advisor.load(tmp_path / "out.log") as run:
        verdict, text, page = run.report.verdict, run.render("text"), run.render("html")
    assert verdict.values["half_bytes"] > 0
    assert verdict.cause == "benchmark"
    assert "A benchmark, not a training run" in page
    assert (verdict.values["device"], verdict.values["limit_gbps"]) == ("A100 SXM 40GB", 300)
    assert "  35 µs " in text  # of a call: 2 (n - 1) hops of 2.5 µs
    assert "below n* =" in page
    assert "links of A100 SXM 40GB, data sheet" in page


def test_links_inside_a_host_are_no_measure_of_a_benchmark_across_hosts(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(output(hosts=2, beta=10 * BETA))
    with advisor.load(tmp_path / "out.log") as run:
        assert run.sql("SELECT link_kind FROM alpha_beta")["link_kind"].tolist() == ["inter"]
        assert run.report.verdict.values["limit_by"] == "NICs"


def test_what_beats_the_slowest_nics_of_such_hosts_is_held_against_no_limit(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(output(hosts=2))
    with advisor.load(tmp_path / "out.log") as run:
        assert run.report.verdict.values.get("limit_by") is None


@pytest.mark.parametrize(("gbps", "limit"), [(368.0, 450), (140.0, 150)])
def test_a_pair_of_few_gpus_that_beats_a_mesh_is_of_a_board_with_a_switch(
    tmp_path: Path, gbps: float, limit: float
) -> None:
    """4 of the 8 H100 of an HGX board send 368 GB/s to each other (xxrjun/nccl-tests-cluster)."""
    devices = "\n".join(
        f"#  Rank  {n} Group  0 Pid 1 on node1 device  {n} [0x00] NVIDIA H100 80GB HBM3"
        for n in range(4)
    )
    rows = []
    for power in range(20, 34):
        us = 20 + 2**power / gbps / 1e3
        half = f"{us:.3f} {2**power / us / 1e3:.2f} {2**power / us / 1e3:.2f} 0"
        rows.append(f"{2**power} {2**power // 8} double sum {half} {half}")
    text = HEADER.format(op="sendrecv", devices=devices) + "\n".join(rows) + "\n"
    (tmp_path / "out.log").write_text(text)
    with advisor.load(tmp_path / "out.log") as run:
        (curve,) = run.sql("SELECT op, limit_gbps FROM bench_curve").to_dict("records")
    assert (curve["op"], curve["limit_gbps"]) == ("send_recv", limit)


def test_sizes_off_one_line_widen_the_interval(tmp_path: Path) -> None:
    """Each size is timed twice with one result; small calls take another path (a lower latency)."""
    lines = output().splitlines()
    bent = []
    for line in lines:
        words = line.split()
        if words[0].isdigit() and int(words[0]) < 65_536:
            words[4] = words[8] = f"{float(words[4]) * 0.5:.3f}"
        bent.append(" ".join(words) if words[0].isdigit() else line)
    (tmp_path / "out.log").write_text("\n".join(bent) + "\n")
    with advisor.load(tmp_path / "out.log") as run:
        (fit,) = run.sql("SELECT * FROM alpha_beta").to_dict("records")
    assert fit["alpha_high_ns"] - fit["alpha_low_ns"] > 0.1 * fit["alpha_ns"]
    assert fit["alpha_low_ns"] <= fit["alpha_ns"] <= fit["alpha_high_ns"]
    assert fit["beta_low_ns_per_byte"] <= fit["beta_ns_per_byte"] <= fit["beta_high_ns_per_byte"]
