"""Rules on real recordings with a known truth, and on real recordings edited into look-alikes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor import api
from advisor.api import load
from advisor.engine import diagnose
from advisor.findings import Finding, FindingsReport, OutcomeKind, Severity
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store
from advisor.vocabulary.words import about, fall
from advisor.whatif import annotate
from tests.support.marks import long, thinned

pytestmark = pytest.mark.slow

BLAME = {"straggler-rank", "slow-ring-link", "jitter", "expert-imbalance"}


def report_of(*paths: Path, change: str | None = None) -> FindingsReport:
    """Diagnose real inputs as the command does; ``change`` is SQL on the events, before all else.

    Whatever is found must hold what every finding promises.
    """
    if change is None:
        with api.load(*paths) as run:
            report = run.report
    else:
        with Store.create() as store:
            ingest([str(path) for path in paths], store)
            store.con.execute(change)
            derive(store)
            annotate(store)
            report = diagnose(store)
    assert not [item for item in report.outcomes if item.outcome == OutcomeKind.ERROR]
    for finding in report.findings:
        assert_possible(finding, report.runs[0].step_ns_median)
    return report


def assert_possible(finding: Finding, step_ns: int | None) -> None:
    """No more than the step can be recovered, and an interval is ordered and holds its value."""
    value = finding.savings_ns
    low, high = finding.savings_low_ns, finding.savings_high_ns
    if value is None:
        return
    assert low is None or 0 <= low <= value, finding.id
    assert high is None or value <= high, finding.id
    assert step_ns is None or max(value, high or 0) <= step_ns, finding.id


def urgent(report: FindingsReport) -> list[str]:
    return [item.rule for item in report.findings if item.severity != Severity.INFO]


@pytest.fixture(scope="module")
def dlrm(shared_data: Path) -> Iterator[FindingsReport]:
    yield report_of(shared_data / "dlrm_8xV100")


def test_dlrm_blames_the_late_rank_once(dlrm: FindingsReport) -> None:
    """Rank 7 arrives last in 5 of 8 calls; rank 1 waits 7.6 ms for it in the first.

    One step is too little to call it urgent: replayed without its delay, little is gained.
    """
    assert urgent(dlrm) == []
    top = dlrm.findings[0]
    assert (top.rule, top.ranks) == ("straggler-rank", [7])
    assert (top.evidence.facts["times_last"], top.evidence.facts["calls"]) == (5, 8)
    # Most of that waiting stays without its delay: where time goes remains a line of its own.
    assert top.merged == []
    assert dlrm.verdict.reason == "one-step"


def test_dlrm_says_proves_and_claims_the_same_gain(dlrm: FindingsReport) -> None:
    """The waiting is longer than what the replay gives back; text and proof name the latter."""
    top = dlrm.findings[0]
    assert top.savings_ns is not None
    waiting_ns = top.evidence.facts["waiting_ns"]
    assert 2 * top.savings_ns < waiting_ns
    said = fall(top.savings_ns, top.savings_low_ns, top.savings_high_ns)
    assert said in top.because[0]
    assert said in top.verify
    assert about(waiting_ns) not in top.verify


def test_dlrm_window_shows_the_call_that_waits(dlrm: FindingsReport) -> None:
    window = dlrm.findings[0].evidence.window
    assert window is not None
    assert window.culprit_rank == 7
    assert window.ranks == list(range(8))


@pytest.mark.parametrize("shift_ns", [*long(400_000_000), -3_000_000])
def test_a_shifted_clock_does_not_move_the_blame(shared_data: Path, shift_ns: int) -> None:
    change = f"UPDATE event SET start_ns = start_ns + {shift_ns} WHERE rank = 2"
    report = report_of(shared_data / "dlrm_8xV100", change=change)
    assert urgent(report) == []
    assert report.findings[0].rule == "straggler-rank"
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
    effects = [effect.rule for finding in report.findings for effect in finding.merged]
    exposed = [item for item in report.findings if item.rule == "exposed-communication"]
    assert exposed or "exposed-communication" in effects
    for item in exposed:
        assert item.evidence.facts["exposed_ns"] == pytest.approx(39_559_468 / 3, rel=0.02)


def test_one_gpu_without_communication_has_no_communication_finding(shared_data: Path) -> None:
    report = report_of(shared_data / "cuda_sync_alexnet")
    assert not urgent(report)
    assert report.verdict.values["idle"] == pytest.approx(0.99, abs=0.01)
    assert report.verdict.kind in ("lossy", "inconclusive")


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
    assert "socket-transport" in [effect.rule for effect in top.merged]


def test_infiniband_without_gpudirect(fixtures_dir: Path) -> None:
    report = report_of(fixtures_dir / "nccl-logs" / "v2.21-one-nic.log")
    assert urgent(report) == ["no-gpudirect"]


@pytest.mark.parametrize(
    ("folder", "rule", "ranks", "gain_ms"),
    thinned(
        [
            ("lab-zero1-pauses", "jitter", None, 40.2),
            ("lab-ep-expert-skew", "expert-imbalance", [0], 28.3),
            ("lab-pp-few-micro-batches", "pipeline-bubble", None, 58.5),
            ("lab-zero1-loader-stall", "data-loader-stall", [0], 60.6),
            ("lab-ddp-blocking", "no-overlap-at-all", None, 34.7),
            ("lab-ddp-slow-rank", "straggler-rank", [2], None),
        ],
        2,
    ),
)
def test_lab_recordings_name_the_cause_first(
    fixtures_dir: Path, folder: str, rule: str, ranks: list[int] | None, gain_ms: float | None
) -> None:
    """Faults caused on purpose; the gain is what the same job gave without the fault."""
    report = report_of(fixtures_dir / folder)
    assert urgent(report)[:1] == [rule]
    top = report.findings[0]
    assert ranks is None or top.ranks == ranks
    if gain_ms is not None:
        assert top.savings_low_ns is not None
        assert top.savings_high_ns is not None
        assert top.savings_low_ns <= gain_ms * 1e6 <= top.savings_high_ns


def test_more_micro_batches_are_charged_for_what_each_costs(fixtures_dir: Path) -> None:
    """Sixteen micro-batches instead of two gave 58.5 ms; by the bubble alone it would be 76."""
    report = report_of(fixtures_dir / "lab-pp-few-micro-batches")
    (top,) = [item for item in report.findings if item.rule == "pipeline-bubble"]
    assert top.savings_ns == pytest.approx(58.5e6, rel=0.2)
    assert top.fix[0].splitlines()[1].startswith("n_microbatches=8 ")


def test_traffic_above_theory_is_an_effect_of_synchronising_too_often(fixtures_dir: Path) -> None:
    """Three micro-batches, each synchronised: three times the model's 12 MiB of gradients."""
    report = report_of(fixtures_dir / "emulated-sync-every-micro-batch")
    (cause,) = [item for item in report.findings if item.rule == "sync-every-micro-batch"]
    assert "3 times per step" in cause.title
    assert "traffic-above-theory" in [effect.rule for effect in cause.merged]


def test_evidence_tells_which_calls_lie_on_the_critical_path(fixtures_dir: Path) -> None:
    """The slowed rank is where most of the step's chain runs."""
    top = report_of(fixtures_dir / "lab-ddp-slow-rank").findings[0]
    tables = {table.title: table for table in top.evidence.tables}
    (ranks,) = [table for title, table in tables.items() if "critical path" in title]
    assert ranks.rows[0][ranks.columns.index("rank")] == 2
    (calls,) = [table for title, table in tables.items() if "off the path" in title]
    assert any(row[calls.columns.index("on_path_ns")] > 0 for row in calls.rows)


def test_a_scan_for_unused_parameters_is_seen_beside_small_calls(fixtures_dir: Path) -> None:
    report = report_of(fixtures_dir / "lab-ddp-unused-parameter-scan")
    (scan,) = [item for item in report.findings if item.rule == "unused-parameter-scan"]
    # Two of eight ranks were read: the scan is sure, that it costs more than a late rank is not.
    assert (scan.severity, scan.savings_low_ns) == (Severity.INFO, 0)
    assert "Ranks 2-7 of its group were not read" in scan.message
    # r² of the fit on its two sizes is 0.04: whether the buckets are mostly latency is a guess.
    assert urgent(report) == []
    # Its one call is not blamed once more as a tiny one: a replay without it gains nothing.
    assert "redundant-collectives" not in {item.rule for item in report.findings}


@pytest.mark.parametrize(
    ("folder", "begins"),
    [
        (
            "lab-fsdp2-slow-link",
            [
                "FSDP2: reduce in bf16; a param_dtype that you set stays beside it.\nfully_shard(",
            ],
        ),
        (
            "lab-ddp-unused-parameter-scan",
            ["Send gradients as bf16 (DDP, register_comm_hook)."],
        ),
    ],
)
def test_narrow_gradients_are_advised_in_the_words_of_the_strategy(
    fixtures_dir: Path, folder: str, begins: list[str]
) -> None:
    """A hook of DDP can be registered on no FSDP model, FSDP1's argument given to no FSDP2 call.

    Beside the slow link of one, which costs all that narrow gradients may give, they are no advice.
    """
    with load(fixtures_dir / folder) as run:
        report = run.diagnose(ignore=["slow-ring-link"])
    (wide,) = [item for item in report.findings if item.rule == "fp32-gradients"]
    assert len(wide.fix) == len(begins)
    assert all(text.startswith(begin) for text, begin in zip(wide.fix, begins, strict=True))


def test_a_compute_bound_job_has_nothing_to_gain(fixtures_dir: Path) -> None:
    report = report_of(fixtures_dir / "lab-ddp-compute-bound")
    assert urgent(report) == []
    assert report.verdict.cause == "healthy"
    assert report.verdict.values["compute"] > 0.9
    assert "compute-bound" in {finding.rule for finding in report.findings}


def test_pauses_that_move_are_blamed_on_nobody(fixtures_dir: Path) -> None:
    report = report_of(fixtures_dir / "lab-zero1-pauses")
    assert not {"straggler-rank", "data-loader-stall"} & {item.rule for item in report.findings}
    (jitter,) = (item for item in report.findings if item.rule == "jitter")
    assert len(jitter.ranks) == 4


def test_a_slow_first_step_is_warm_up(fixtures_dir: Path) -> None:
    """The first step made 200 ms longer on all ranks, before its first operator."""
    change = """
        UPDATE event SET start_ns = start_ns - 200000000, dur_ns = dur_ns + 200000000
        WHERE name = (SELECT min(name) FROM event WHERE starts_with(name, 'ProfilerStep#'))
    """
    report = report_of(fixtures_dir / "lab-ddp-compute-bound", change=change)
    assert urgent(report) == []
    assert any(note.code == "warm-up" for note in report.runs[0].notes)


def test_one_long_step_does_not_rule_the_figures_per_step(fixtures_dir: Path) -> None:
    """An annotation that spans many steps: the last one here is made 20 s longer."""
    folder = fixtures_dir / "lab-ddp-compute-bound"
    change = """
        UPDATE event SET dur_ns = dur_ns + 20000000000
        WHERE name = (SELECT max(name) FROM event WHERE starts_with(name, 'ProfilerStep#'))
    """
    plain, stretched = report_of(folder), report_of(folder, change=change)
    assert any(note.code == "odd-step" for note in stretched.runs[0].notes)
    assert urgent(stretched) == urgent(plain)


def test_hidden_communication_is_no_finding_however_long(fixtures_dir: Path) -> None:
    """A quarter of every step communicates; nine tenths of that run under compute."""
    with load(fixtures_dir / "lab-ddp-hidden-communication") as run:
        row = run.sql(
            "SELECT sum(comm_ns) / sum(window_ns) AS comm, "
            "sum(hidden_comm_ns) / sum(comm_ns) AS hidden FROM step_breakdown"
        ).iloc[0]
        found = {item.rule for item in run.report.findings}
    assert row["comm"] > 0.2
    assert row["hidden"] > 0.8
    assert not found & {"exposed-communication", "no-overlap-at-all", "tail-bucket-exposed"}
