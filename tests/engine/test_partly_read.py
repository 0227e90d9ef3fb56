"""A gain that is time in calls is not sure where ranks of these calls were not read."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.config.paths import shipped
from advisor.engine import diagnose
from advisor.engine.catalogue import load_catalogue
from advisor.findings import Finding, FindingsReport, Severity
from tests.engine.helpers import store_of

# Rules whose recoverable time is not time in calls with ranks that may be missing: what hosts do,
# what ranks compute, and what ranks and links differ by among those that were read.
OTHER_GROUNDS = {
    "activation-recompute",
    "all-ranks-pause",
    "allocator-retries",
    "blocking-sync",
    "compute-slowed-by-overlap",
    "data-loader-stall",
    "exposed-copies",
    "expert-imbalance",
    "idle-with-queued-work",
    "imbalanced-pipeline-stages",
    "jitter",
    "launch-bound",
    "layout-conversions",
    "network-bound",
    "no-free-core",
    "one-rank-pauses",
    "packet-loss",
    "pause-in-every-step",
    "pipeline-bubble",
    "plain-fp32-matmul",
    "rate-limited-all-gathers",
    "slow-rank-in-stage",
    "slow-ring-link",
    "small-pointwise-kernels",
    "straggler-rank",
    "unfused-attention",
    "unfused-optimizer",
    "unsteady-network",
    "updates-by-parameter",
}


def test_every_rule_with_a_gain_says_whether_it_is_time_in_calls() -> None:
    rules, broken = load_catalogue()
    assert not broken
    with_gain = {rule.id for rule in rules if "savings_ns" in rule.sql}
    assert {rule.id for rule in rules if rule.savings.in_calls} == with_gain - OTHER_GROUNDS
    assert with_gain >= OTHER_GROUNDS
    assert len(list(shipped("rules").glob("*.yaml"))) == len(rules)


def found(
    ranks: list[int],
    *,
    alone: int,
    world: int = 4,
    known: bool = True,
    blind: tuple[int, ...] = (),
    cut: tuple[int, ...] = (),
    busbw_gbps: float | None = None,
) -> tuple[FindingsReport, Finding]:
    """Twelve exposed reductions per step, of which ``alone`` were not read on all ranks."""
    call = {"rank": ranks, "step": 0, "op": "all_reduce", "process_group": "0"}
    call |= {"group_size": world, "phase": "backward", "bytes": 4_000_000, "wait_ns": 0}
    call |= {"dur_ns": 2_000_000, "exposed_ns": 2_000_000, "hidden_ns": 0}
    call |= {"transfer_ns": 2_000_000, "busbw_gbps": busbw_gbps}
    starts = [5_000_000 * place for place in range(12)]
    parts = {"upper bound": starts[:alone], "matched": starts[alone:]}
    calls = [{**call, "t_is": t_is, "start_ns": at} for t_is, at in parts.items() if at]
    steps = {"rank": ranks, "step": 0, "window_ns": 100_000_000, "compute_ns": 70_000_000}
    tables: dict[str, list[dict[str, Any]]] = {
        "collective": calls,
        "process_group": [
            {"process_group": "0", "ranks": list(range(world)) if known else None, "size": world}
        ],
        "step_breakdown": [{**steps, "exposed_comm_ns": 24_000_000, "comm_ns": 24_000_000}],
    }
    if blind:
        seen = {"cpu_ops": 9, "runtime_calls": 9, "launches": 9, "annotations": 0}
        seen |= {"python_calls": 0, "backend_spans": 0, "known_ns": 0, "plain_fp32_ns": 0}
        tables["rank_content"] = [
            {**seen, "rank": ranks, "device_events": 9, "kernel_ns": 9},
            {**seen, "rank": list(blind), "device_events": 0, "kernel_ns": 0},
        ]
    if left := [*blind, *cut]:
        tables["rank"] = [{"rank": [*ranks, *left], "world_size": world, "timeline": "device"}]
        tables["step"] = [
            {"rank": [*ranks, *left], "step": 0, "start_ns": 0, "end_ns": 100_000_000},
        ]
    with store_of(ranks=len(ranks), world_size=world, steps=1, tables=tables) as store:
        if busbw_gbps:
            store.con.execute("UPDATE rank SET device_name = 'NVIDIA H100 80GB HBM3'")
        left_out = "UPDATE step SET left_out = ? WHERE list_contains(?, rank)"
        store.con.execute(left_out, ["no-device", list(blind)])
        store.con.execute(left_out, ["cut-rank", list(cut)])
        report = diagnose(store, select=["no-overlap-at-all"])
    return report, report.findings[0]


@pytest.mark.parametrize("alone", [0, 1, 5])
def test_a_whole_group_keeps_its_gain(alone: int) -> None:
    """Also where some of twelve calls lost an event on another rank: the others tell all."""
    report, finding = found([0, 1, 2, 3], alone=alone)
    assert finding.severity == Severity.CRITICAL
    assert (finding.savings_low_ns or 0) > 0
    assert "not read" not in finding.message
    assert report.runs[0].caveats == []


@pytest.mark.parametrize(
    ("ranks", "who"),
    [([0, 1, 2], "Rank 3 of its group was"), ([0], "Ranks 1-3 of its group were")],
)
def test_missing_ranks_take_the_sure_part_and_are_named(ranks: list[int], who: str) -> None:
    report, finding = found(ranks, alone=12)
    assert finding.severity == Severity.INFO
    assert (finding.savings_low_ns, bool(finding.savings_ns)) == (0, True)
    assert f"{who} not read: waiting for" in finding.message
    assert report.verdict.cause == "unknown"
    assert report.verdict.reason == "ranks-missing"
    assert report.verdict.savings_ns is None
    assert any(step.startswith("Worth a try, up to ") for step in report.verdict.next_steps)
    (said,) = report.runs[0].caveats
    assert said.code == "ranks-not-read"
    assert said.values["missing"] == [rank for rank in range(4) if rank not in ranks]


def test_a_rank_without_device_events_is_called_that() -> None:
    _, finding = found([0, 1, 2], alone=12, blind=(3,))
    assert (finding.severity, finding.savings_low_ns) == (Severity.INFO, 0)
    assert "Rank 3 lacks device events" in finding.message


def test_events_that_most_calls_of_a_whole_group_lost_take_the_sure_part() -> None:
    report, finding = found([0, 1, 2, 3], alone=7)
    assert (finding.severity, finding.savings_low_ns) == (Severity.INFO, 0)
    assert "These calls were not found on all ranks" in finding.message
    assert report.verdict.cause == "unknown"


@pytest.mark.parametrize(("alone", "told"), [(5, True), (7, False)])
def test_a_rank_that_is_cut_late_is_known_by_its_earlier_calls(alone: int, told: bool) -> None:
    """GIVEN 5 or 7 of 12 calls after the end of rank 3's file."""
    report, finding = found([0, 1, 2], alone=alone, cut=(3,))
    assert ((finding.savings_low_ns or 0) > 0) == told
    assert (report.verdict.cause == "no-overlap-at-all") == told
    assert ("The recording of rank 3 is cut" in finding.message) != told


@pytest.mark.parametrize(("busbw_gbps", "told"), [(405.0, True), (270.0, False)])
def test_what_the_links_take_for_the_bytes_is_no_waiting(busbw_gbps: float, told: bool) -> None:
    """GIVEN one of four ranks, and 60 or 40 % of what an H100's links (450 GB/s) carry at best: a
    switch that sums takes of each rank two thirds of what rings do."""
    _, whole = found([0, 1, 2, 3], alone=0, busbw_gbps=busbw_gbps)
    report, finding = found([0], alone=12, busbw_gbps=busbw_gbps)
    low_ns = (whole.savings_low_ns or 0) * (0.6 if told else 0)
    assert finding.savings_low_ns == pytest.approx(low_ns, abs=1)
    assert ("at most 40 % of it by what the links carry" in finding.message) == told
    assert (report.verdict.cause == "no-overlap-at-all") == told


def test_a_group_of_unknown_ranks_is_not_taken_for_whole() -> None:
    report, finding = found([0, 1, 2, 3], alone=5, known=False)
    assert (finding.severity, finding.savings_low_ns) == (Severity.INFO, 0)
    assert report.verdict.cause == "unknown"


@pytest.mark.slow
def test_the_low_end_that_a_missing_rank_takes_stays_among_the_facts() -> None:
    _, whole = found([0, 1, 2, 3], alone=0)
    _, part = found([0, 1, 2], alone=12)
    assert part.savings_low_ns == 0
    low = part.evidence.facts["low_if_all_read_ns"]
    assert low > 0
    assert "low_if_all_read_ns" not in whole.evidence.facts


@pytest.mark.parametrize(("ranks", "likely"), [([0, 1, 2], True), ([0], False)])
def test_what_is_counted_is_likely_where_most_ranks_were_read(
    ranks: list[int], likely: bool
) -> None:
    """Gradients that are reduced in each of four backward passes are, whoever is missing."""
    call = {"rank": ranks, "op": "all_reduce", "process_group": "0", "group_size": 4}
    call |= {"step": 0, "phase": "backward", "bytes": 4_000_000, "wait_ns": 0, "hidden_ns": 0}
    call |= {"dur_ns": 5_000_000, "exposed_ns": 5_000_000, "t_is": "upper bound"}
    tables: dict[str, list[dict[str, Any]]] = {
        "collective": [{**call, "start_ns": [10_000_000, 30_000_000, 50_000_000, 70_000_000]}],
        "process_group": [{"process_group": "0", "ranks": [0, 1, 2, 3], "size": 4}],
        "step_breakdown": [
            {"rank": ranks, "step": 0, "window_ns": 100_000_000, "compute_ns": 80_000_000,
             "exposed_comm_ns": 20_000_000, "comm_ns": 20_000_000}
        ],
        "gradient_sync": [
            {"rank": ranks, "step": 0, "process_group": "0", "op": "all_reduce",
             "micro_batches": 4, "syncs": 4, "bytes": 16_000_000, "exposed_ns": 20_000_000}
        ],
    }  # fmt: skip
    with store_of(ranks=len(ranks), world_size=4, steps=1, tables=tables) as store:
        report = diagnose(store, select=["sync-every-micro-batch"])
    (finding,) = report.findings
    assert finding.savings_low_ns == 0
    assert finding.severity == (Severity.WARNING if likely else Severity.INFO)
    assert (report.verdict.cause == "sync-every-micro-batch") == likely


@pytest.mark.parametrize(
    ("size", "likely"), [(100_000, True), (1024**2, True), (4_000_000, True), (15_000_000, False)]
)
def test_buckets_are_counted_where_ddps_own_are_fewer(size: int, likely: bool) -> None:
    """Each costs its latency, or what a missing rank takes to ask for one more. Of 300 MB half of
    20 calls are no more than DDP's own, and may take long for a rank that is late once."""
    ranks = [0, 1, 2]
    call = {"rank": ranks, "op": "all_reduce", "process_group": "0", "group_size": 4, "step": 0}
    call |= {"phase": "backward", "bytes": size, "wait_ns": 0, "hidden_ns": 0}
    call |= {"dur_ns": 1_000_000, "exposed_ns": 1_000_000, "t_is": "upper bound"}
    starts = [2_000_000 * place for place in range(20)]
    tables: dict[str, list[dict[str, Any]]] = {
        "collective": [{**call, "start_ns": starts}],
        "process_group": [{"process_group": "0", "ranks": [0, 1, 2, 3], "size": 4}],
        "step_breakdown": [
            {"rank": ranks, "step": 0, "window_ns": 100_000_000, "compute_ns": 80_000_000,
             "exposed_comm_ns": 20_000_000, "comm_ns": 20_000_000}
        ],
        "alpha_beta": [
            {"origin": "trace", "op": "all_reduce", "group_size": 4, "samples": 60, "sizes": 3,
             "alpha_ns": 160_000, "alpha_low_ns": 150_000, "alpha_high_ns": 170_000, "k": 6,
             "m": 1.5, "beta_ns_per_byte": 0.001, "n_star_bytes": 640_000_000,
             "largest_bytes": size, "r2": 0.9}
        ],
    }  # fmt: skip
    with store_of(ranks=3, world_size=4, steps=1, tables=tables) as store:
        (finding,) = diagnose(store, select=["small-buckets"]).findings
    assert finding.savings_low_ns == 0
    assert finding.severity == (Severity.WARNING if likely else Severity.INFO)
