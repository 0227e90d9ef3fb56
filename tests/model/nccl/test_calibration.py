"""Calibration against nccl-tests on real machines: fitted on some rows, judged on others.

The six tables of 8xA100 are superbenchmark's; the one of 2 x A3 Mega (16 H100, GPUDirect-TCPXO) is
published in lessizzmore/create-a3mega-ztan-fork (ztan-NCCL-test-result).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor.cli.calibrate import command
from advisor.cli.nccl_model import command as nccl_model
from advisor.config.hardware import machine
from advisor.errors import AdvisorError
from advisor.model.nccl.calibration import (
    Calibration,
    Measured,
    fit,
    load_calibration,
    save_calibration,
)
from advisor.model.nccl.cost import predict
from advisor.model.topology_machine import topology_of
from benchmarks.calibration import held_out, share
from tests.model.nccl.test_measured import measured
from tests.rules.test_benchmarks import TABLES, of, printed

OPS = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
# Bytes and microseconds, out of place.
A3_MEGA = [
    (8, 135.8), (64, 123.4), (512, 126.6), (4096, 126.9), (8192, 131.6), (16384, 138.6),
    (32768, 155.2), (65536, 159.4), (131072, 159.3), (262144, 167.1), (524288, 174.2),
    (1048576, 203.2), (2097152, 254.0), (4194304, 364.6), (8388608, 571.9), (16777216, 977.6),
    (33554432, 1059.9), (67108864, 1261.6), (134217728, 1652.2), (268435456, 2360.9),
    (536870912, 3817.5), (1073741824, 6759.0), (2147483648, 12646.0), (4294967296, 24361.0),
    (8589934592, 47535.0),
]  # fmt: skip


def a100(folder: Path, op: str) -> list[Measured]:
    topology = topology_of(machine("dgx-a100"), 1)
    return [
        Measured(time, predict(topology, op, size, (2, 10, 3)))
        for size, time in measured(folder / "nccl_tests", op).items()
    ]


def fitted(rows: Sequence[Measured]) -> Calibration:
    return fit(rows, machine="dgx-a100", sources=["tables"], nccl="2.10.3")


def within(calibration: Calibration, rows: Sequence[Measured]) -> float:
    ratios = [calibration.time_us(row.prediction)[0] / row.time_us for row in rows]
    return sum(0.8 <= ratio <= 1.25 for ratio in ratios) / len(ratios)


def own_estimates(rows: Sequence[Measured]) -> list[float]:
    """NCCL's own estimate over what was measured."""
    return [r.prediction.choice.time_us / r.time_us for r in rows if r.prediction.choice]


def test_collectives_that_were_not_fitted_come_out_right(shared_data: Path) -> None:
    large, small = [], []
    for left_out in OPS:
        calibration = fitted([r for op in OPS if op != left_out for r in a100(shared_data, op)])
        rows = a100(shared_data, left_out)
        large.append(within(calibration, [r for r in rows if r.prediction.bytes > 64 << 10]))
        small.append(within(calibration, [r for r in rows if r.prediction.bytes <= 64 << 10]))
    assert sum(large) / len(large) >= 0.85
    assert min(large) >= 0.8, "reduce and reduce-scatter are the least"
    assert min(small) >= 0.9


def test_sizes_that_were_not_fitted_come_out_right(shared_data: Path) -> None:
    rows = [row for op in OPS for row in a100(shared_data, op)]
    calibration = fitted(rows[::2])
    held_out = [row for row in rows[1::2] if row.prediction.bytes > 64 << 10]
    assert within(calibration, held_out) >= 0.9
    plain = [
        row.prediction.choice.time_us / row.time_us for row in held_out if row.prediction.choice
    ]
    assert sum(0.8 <= ratio <= 1.25 for ratio in plain) / len(plain) < 0.65, "NCCL's own estimate"


def test_two_nodes_over_sockets_come_out_right_to_a_third() -> None:
    topology = topology_of(machine("gcp-a3-mega"), 2)
    rows = [Measured(us, predict(topology, "allreduce", size, (2, 18, 5))) for size, us in A3_MEGA]
    calibration = fit(rows[::2], machine="gcp-a3-mega", sources=["table"], nccl="2.18.5")
    ratios = [calibration.time_us(r.prediction)[0] / r.time_us for r in rows[1::2]]
    assert all(0.66 < ratio < 1.5 for ratio in ratios)
    assert min(own_estimates(rows)) < 0.25
    assert calibration.floor_us.value > 100, "three times that of one node"


def test_the_file_is_read_back(shared_data: Path, tmp_path: Path) -> None:
    calibration = fitted(a100(shared_data, "allreduce"))
    assert calibration.floor_us.low <= calibration.floor_us.value <= calibration.floor_us.high
    save_calibration(calibration, tmp_path / "c.yaml")
    assert load_calibration(tmp_path / "c.yaml") == calibration


def test_too_little_settles_nothing(shared_data: Path) -> None:
    rows = a100(shared_data, "allreduce")
    with pytest.raises(AdvisorError, match="do not settle"):
        fitted(rows[:6])
    with pytest.raises(AdvisorError, match="do not settle"):
        fitted([rows[0]] * 12)


def test_the_command_fits_and_the_model_uses_it(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    table = str(shared_data / "nccl_tests" / "nccl_allreduce.log")
    arguments = [table, "--hardware", "dgx-a100", "--nccl", "2.10.3", "-o", str(path)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    line = ["--hardware", "dgx-a100", "--nccl", "2.10.3", "--op", "allreduce", "--bytes", "1M"]
    with_it = CliRunner().invoke(nccl_model, [*line, "--calibration", str(path)])
    assert "calibrated: " in with_it.output
    for other in (["--hardware", "dgx-h100", *line[2:]], [*line, "--nodes", "2"]):
        refused = CliRunner().invoke(
            nccl_model, [*other, "--calibration", str(path)], standalone_mode=False
        )
        assert isinstance(refused.exception, AdvisorError)
        assert "no calibration for" in refused.exception.message
    plain = CliRunner().invoke(nccl_model, line)
    assert "NCCL's own estimate" in plain.output
    wrong = CliRunner().invoke(command, [*arguments[:2], "dgx-h100", *arguments[3:]])
    assert wrong.exit_code == 0, "8 ranks as well: the name is the user's word"
    none = CliRunner().invoke(command, [*arguments, "--nodes", "2"], standalone_mode=False)
    assert isinstance(none.exception, AdvisorError)
    assert "rows of 8 ranks" in none.exception.message


@pytest.mark.slow
def test_calls_of_a_measured_cluster_and_of_another_of_its_kind_come_out_right() -> None:
    found: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for kind, _, ratios in held_out():
        for small, values in ratios.items():
            found[kind, small] += values
    for kind in ("eight sizes", "clusters"):
        assert share(found[kind, False]) >= 0.85, kind
        assert share(found[kind, True]) >= 0.7, kind


# Two nodes of 8 H100 over InfiniBand (nccl-tests issue 309, out of place): of one table to 64 KB
# and above, and above 1 MB of another, whose floor no row tells.
H100_SMALL = [(4096, 30.24), (16384, 32.74), (65536, 33.84)]
H100_FROM_1M = [
    (1048576, 93.25), (2097152, 94.22), (4194304, 110.9), (8388608, 151.6), (16777216, 201.6),
    (33554432, 274.8), (67108864, 477.2), (134217728, 750.7), (268435456, 1296.2),
    (536870912, 2376.5), (1073741824, 4497.4), (2147483648, 8766.9), (4294967296, 17290.0),
]  # fmt: skip


def test_calls_below_all_that_were_measured_have_an_interval_that_holds_them() -> None:
    topology = topology_of(machine("dgx-h100"), 2)
    large, small = (
        [Measured(time, predict(topology, "allreduce", size, (2, 26, 2))) for size, time in rows]
        for rows in (H100_FROM_1M, H100_SMALL)
    )
    found = fitted(large)
    for row in small:
        time, low, high = found.time_us(row.prediction)
        assert time > 1.5 * row.time_us
        assert low <= row.time_us <= high
        assert not found.measures(row.prediction.bytes)
    assert all(found.measures(row.prediction.bytes) for row in large)


@pytest.mark.parametrize(("gbps", "is_slow"), [(58, True), (460, False)])
def test_a_machine_far_below_nccls_estimate_is_said_to_be(
    tmp_path: Path, gbps: float, is_slow: bool
) -> None:
    log = tmp_path / "t.log"
    log.write_text(printed(of(gbps, device="NVIDIA H200")))
    line = [str(log), "--hardware", "dgx-h200", "--nodes", "2", "--nccl", "2.29.7"]
    result = CliRunner().invoke(command, [*line, "-o", str(tmp_path / "c.yaml")])
    assert result.exit_code == 0, result.output
    assert ("times NCCL's own estimate" in result.output) is is_slow


@pytest.mark.slow
def test_what_the_calls_were_told_to_take_is_fitted_as_such(tmp_path: Path) -> None:
    """Two p4d over EFA with NCCL_ALGO=RING: the bandwidth is that of rings, half of trees'."""
    (table,) = [table for table in TABLES if table["id"] == "a100x16-p4d"]
    log = tmp_path / "t.log"
    log.write_text("a:1:1 [0] NCCL INFO NCCL_ALGO set by environment to RING\n" + printed(table))
    line = [str(log), "--hardware", "aws-p4d", "--nodes", "2", "--nccl", "2.10.3"]
    line += ["-o", str(tmp_path / "c.yaml")]
    assert "measured with NCCL_ALGO=RING" in CliRunner().invoke(command, line).output
    ring = load_calibration(tmp_path / "c.yaml")
    assert list(ring.latency) == ["Ring"]
    assert 0.9 < ring.transfer.value < 1.2
    CliRunner().invoke(command, [*line, "--algo", "Tree"])
    tree = load_calibration(tmp_path / "c.yaml")
    assert tree.transfer.value > 1.5
    # Up to 2.23 rings and trees come back where there is no CollNet.
    later = [*line, "--nccl", "2.24.3", "--algo", "CollNetDirect"]
    none = CliRunner().invoke(command, later, standalone_mode=False)
    assert "no algorithm with NCCL_ALGO=CollNetDirect" in str(none.exception)
    (tmp_path / "u.log").write_text(log.read_text().replace("RING", "TREE"))
    both = CliRunner().invoke(command, [str(tmp_path), *line[1:]])
    assert "NCCL_ALGO of RING and TREE" in both.output
