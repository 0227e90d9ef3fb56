"""What calls of other sizes take, by a calibration of the machine: against measured tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from advisor.cli.whatif import command
from advisor.config.loader import read_plain
from advisor.errors import AdvisorError
from advisor.model.nccl.calibration import Calibration, fit, save_calibration
from advisor.store.store import Store
from advisor.whatif.calibrated import Calibrated
from advisor.whatif.cost import ServiceModel, fit_service
from advisor.whatif.network import predict_bandwidth
from advisor.whatif.predict import service_models
from advisor.whatif.program import Call, Issue, Program, Wait
from benchmarks.calibration import TABLES, rows_of

ONE_NODE = dict.fromkeys(range(8), "a")


@pytest.fixture(scope="module")
def oci() -> Calibration:
    """Fitted to another cluster's table of the same machine."""
    rows = rows_of("a100x8-oci")
    return fit(rows, machine="dgx-a100", sources=["oci"], nccl="2.14.3")


def step_of(times: Sequence[tuple[int, float]]) -> Program:
    """Eight GPUs that all-reduce, (bytes, us) each alone."""
    calls = {
        number: Call(tuple(range(8)), "g", us * 1e3, "all_reduce", size, burst=number)
        for number, (size, us) in enumerate(times)
    }
    turns = [item for number in calls for item in (Issue(number), Wait(number))]
    return Program(
        items={rank: [*turns] for rank in range(8)},
        calls=calls,
        start_ns=dict.fromkeys(range(8), 0.0),
        measured_ns=sum(us for _, us in times) * 1e3,
        timeline="device",
    )


def within(model: ServiceModel, rows: Sequence[tuple[int, float]]) -> float:
    found = np.array([model.service_ns(size) / (us * 1e3) for size, us in rows])
    return float(np.mean((found > 0.8) & (found < 1.25)))


def test_sizes_that_the_recording_does_not_hold() -> None:
    # GIVEN a calibration by gathers and broadcasts, and recordings of all-reduces of one size
    measured = [*rows_of("a100x8-allgather"), *rows_of("a100x8-broadcast")]
    mine = fit(measured, machine="dgx-a100", sources=["gathers"], nccl="2.10.3")
    (table,) = [item for item in read_plain(TABLES) if item["id"] == "a100x8-allreduce"]
    rows = [(size, us) for size, us, *_ in table["rows"]]
    by_line, by_curve = [], []
    for size, us in rows:
        if not 1 << 18 <= size <= 1 << 26:
            continue
        step = step_of([(size, us)] * 10)
        # WHEN sizes around it are asked for, by a straight line and by the calibration
        near = [row for row in rows if size / 32 <= row[0] <= size * 32 and row[0] != size]
        line = fit_service([step], "all_reduce", 8)
        curve = fit_service([step], "all_reduce", 8, Calibrated(mine, ONE_NODE)(step.calls[0]))
        assert line is not None and curve is not None
        by_line.append(within(line, near))
        by_curve.append(within(curve, near))
        # What was recorded stays as it was recorded.
        assert curve.service_ns(size) == pytest.approx(us * 1e3, rel=1e-3)
    # THEN the calibrated times are those that were measured, and the line's are not
    assert np.mean(by_curve) >= 0.9
    assert np.mean(by_line) < 0.7


def test_what_the_recording_tells_is_left_as_it_is(oci: Calibration) -> None:
    # GIVEN calls of three sizes, far apart
    step = step_of([(1 << 13, 40.0), (1 << 20, 60.0), (1 << 26, 600.0)])
    curves = Calibrated(oci, ONE_NODE)
    plain, found = service_models([step]), service_models([step], curves)
    key = ("all_reduce", 8)
    # THEN within twice the largest nothing changes, and no answer rests on the calibration
    for size in (1 << 13, 1 << 22, 1 << 27):
        assert found[key].service_ns(size) == plain[key].service_ns(size)
    predict_bandwidth([step], found, 2.0)
    assert not curves.used()
    # beyond that it does, without a jump
    edge = 1 << 27
    assert found[key].service_ns(edge + 1) == pytest.approx(plain[key].service_ns(edge), rel=1e-3)
    assert [it.kind for it in curves.used()] == ["all_reduce of 8 ranks"]


def test_latency_of_a_lone_size_comes_from_the_calibration(oci: Calibration) -> None:
    # GIVEN 64 KB calls, nearly all latency on that machine (33 us of 37)
    step = step_of([(1 << 16, 40.0)] * 10)
    prior = predict_bandwidth([step], service_models([step]), 2.0)
    found = predict_bandwidth([step], service_models([step], Calibrated(oci, ONE_NODE)), 2.0)
    # THEN links twice as fast give little, and the answer is no longer open
    assert prior is not None and found is not None
    assert not found.inconclusive
    assert 0 <= found.gain_ns < 0.2 * found.measured_ns


def test_groups_that_were_not_measured_have_no_curve(oci: Calibration) -> None:
    across = Calibrated(oci, {rank: "ab"[rank // 4] for rank in range(8)})
    call = Call(tuple(range(8)), "g", 1e5, "all_reduce", 1 << 20)
    assert across(call) is None
    assert Calibrated(oci, ONE_NODE)(Call((0, 1), "g", 1e5, "all_to_all", 1 << 20)) is None


@pytest.mark.parametrize(
    ("device", "backend", "said"),
    [("NVIDIA H100 80GB HBM3", "nccl", "H100"), ("NVIDIA A100-SXM4-80GB", "gloo", "gloo")],
)
def test_another_machine_is_refused(oci: Calibration, device: str, backend: str, said: str) -> None:
    store = Store.create()
    store.con.execute(
        "INSERT INTO rank BY NAME SELECT 'run' AS run, 0 AS rank, ? AS device_name, ? AS backend",
        [device, backend],
    )
    with pytest.raises(AdvisorError, match=said):
        Calibrated.of_run(store.con, "run", oci)


@pytest.mark.slow
def test_the_command_says_what_the_calibration_was_for(oci: Calibration, tmp_path: Path) -> None:
    run = str(Path(__file__).parents[2] / "fixtures" / "lab-ddp-slow-link")
    file = tmp_path / "mine.yaml"
    save_calibration(oci, file)
    alone = CliRunner().invoke(command, [run, "--calibration", str(file)])
    assert alone.exit_code == 2 and "--set" in alone.output
    other = CliRunner().invoke(
        command, [run, "-q", "--calibration", str(file), "--set", "link.bandwidth=x2"]
    )
    assert isinstance(other.exception, AdvisorError)
    assert "gloo" in str(other.exception)
