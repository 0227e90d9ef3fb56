"""Rules on real recordings with a known truth, and on real recordings edited into look-alikes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.engine import diagnose
from advisor.findings import FindingsReport, OutcomeKind, Severity
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store

BLAME = {"straggler-rank", "slow-ring-link", "jitter", "expert-imbalance"}


def report_of(*paths: Path, change: str | None = None) -> FindingsReport:
    """Diagnose real inputs; ``change`` is SQL run on the base tables before anything is derived."""
    with Store.create() as store:
        ingest([str(path) for path in paths], store)
        if change is not None:
            store.con.execute(change)
        derive(store)
        report = diagnose(store)
    assert not [item for item in report.outcomes if item.outcome == OutcomeKind.ERROR]
    return report


def urgent(report: FindingsReport) -> list[str]:
    return [item.rule for item in report.findings if item.severity != Severity.INFO]


@pytest.fixture(scope="module")
def dlrm(shared_data: Path) -> Iterator[FindingsReport]:
    yield report_of(shared_data / "dlrm_8xV100")


def test_dlrm_blames_the_late_rank_once(dlrm: FindingsReport) -> None:
    """Rank 7 arrives last in 5 of 8 calls; rank 1 waits 7.6 ms for it in the first."""
    assert urgent(dlrm) == ["straggler-rank"]
    top = dlrm.findings[0]
    assert top.ranks == [7]
    assert "5 of 8" in top.title
    assert any(label.startswith("exposed-communication") for label in top.merged)
    assert dlrm.verdict.cause == "straggler-rank"


def test_dlrm_window_shows_the_call_that_waits(dlrm: FindingsReport) -> None:
    window = dlrm.findings[0].evidence.window
    assert window is not None
    assert window.culprit_rank == 7
    assert window.ranks == list(range(8))


@pytest.mark.parametrize("shift_ns", [400_000_000, -3_000_000])
def test_a_shifted_clock_does_not_move_the_blame(shared_data: Path, shift_ns: int) -> None:
    change = f"UPDATE event SET start_ns = start_ns + {shift_ns} WHERE rank = 2"
    report = report_of(shared_data / "dlrm_8xV100", change=change)
    assert urgent(report) == ["straggler-rank"]
    assert report.findings[0].ranks == [7]


def test_without_the_late_rank_nobody_is_blamed_for_it(shared_data: Path) -> None:
    files = sorted((shared_data / "dlrm_8xV100").glob("worker[0-6]_*"))
    report = report_of(*files)
    for finding in report.findings:
        assert finding.rule != "straggler-rank" or 7 not in finding.ranks


@pytest.mark.parametrize("folder", ["ddp_2xA100_metadata", "ddp_8xMI300", "cpu_only_rank34"])
def test_one_rank_never_yields_blame(shared_data: Path, folder: str) -> None:
    report = report_of(shared_data / folder)
    assert not {finding.rule for finding in report.findings} & BLAME
    missing = {item.rule: item for item in report.outcomes}
    for rule in ("straggler-rank", "slow-ring-link"):
        assert missing[rule].outcome == OutcomeKind.NOT_APPLICABLE
        assert "rank" in missing[rule].reason


def test_ddp_first_bucket_is_no_small_bucket(shared_data: Path) -> None:
    """Real DDP buckets: a first one of a few MB and some over the 25 MiB cap are normal."""
    report = report_of(shared_data / "ddp_2xA100_metadata")
    assert "small-buckets" not in {finding.rule for finding in report.findings}


def test_exposed_share_is_the_union_not_the_sum(shared_data: Path) -> None:
    """39.56 ms of 660.6 ms: the sum of kernel times would claim more."""
    report = report_of(shared_data / "ddp_2xA100_metadata")
    effects = [label for finding in report.findings for label in finding.merged]
    exposed = [item for item in report.findings if item.rule == "exposed-communication"]
    assert exposed or any(label.startswith("exposed-communication") for label in effects)
    for item in exposed:
        assert item.evidence.facts["exposed_ns"] == pytest.approx(39_559_468 / 3, rel=0.02)


def test_one_gpu_without_communication_has_no_communication_finding(shared_data: Path) -> None:
    report = report_of(shared_data / "cuda_sync_alexnet")
    assert not urgent(report)
    assert report.verdict.title.startswith("The device idles for 99 %")


@pytest.mark.parametrize("folder", ["gpu_error_2nd", "lock_gil_1st"])
def test_flight_recorder_names_the_injected_ranks(shared_data: Path, folder: str) -> None:
    """fault_injection.log: ranks 9 and 14; fourteen others are victims in other groups."""
    dumps = sorted((shared_data / "flight_recorder" / folder).glob("_dump_*"))
    report = report_of(*dumps)
    assert urgent(report) == ["hang-suspect"]
    assert report.findings[0].ranks == [9, 14]
    assert report.verdict.cause == "hang-suspect"


def test_own_recordings_slow_and_fast_differ(fixtures_dir: Path) -> None:
    slow = report_of(fixtures_dir / "gpt2-tiny-ddp-2-slow-rank")
    assert urgent(slow) == ["straggler-rank"]
    assert slow.findings[0].ranks == [1]
    fast = report_of(fixtures_dir / "gpt2-tiny-ddp-2")
    assert "straggler-rank" not in {finding.rule for finding in fast.findings}


def test_sockets_forced_by_a_setting(fixtures_dir: Path) -> None:
    report = report_of(fixtures_dir / "nccl-logs" / "v2.10-sockets.log")
    assert urgent(report) == ["env-override"]
    top = report.findings[0]
    assert "NCCL_IB_DISABLE" in top.title
    assert any(label.startswith("socket-transport") for label in top.merged)


def test_infiniband_without_gpudirect(fixtures_dir: Path) -> None:
    report = report_of(fixtures_dir / "nccl-logs" / "v2.21-one-nic.log")
    assert urgent(report) == ["no-gpudirect"]
