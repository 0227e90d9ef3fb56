"""Findings with one cause are one finding: claims on the same time decide which is whose effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from advisor.engine import causes, load_catalogue
from advisor.engine.causes import Claimed, effects, rank_findings
from advisor.engine.claims import ledger_of
from advisor.engine.rule import Rule
from advisor.findings import Basis, Finding, Severity

RULES = {rule.id: rule for rule in load_catalogue()[0]}


def finding(rule: str, savings: int | None, severity: str = "warning", **fields: Any) -> Finding:
    return Finding(
        id=f"{rule}-x",
        run=fields.pop("run", "run"),
        rule=rule,
        severity=Severity(severity),
        title=rule,
        message="",
        where=fields.pop("where", "here"),
        savings_ns=savings,
        probability=fields.pop("probability", 0.9),
        **fields,
    )


def claimed(item: Finding, part: float, *spans: int) -> Claimed:
    """The finding with a claim on ``part`` of each of these spans of 1 ms."""
    return item, ledger_of(dict.fromkeys(spans, (1000000.0, part)))


def merge(found: Sequence[Claimed], rules: Mapping[str, Rule]) -> list[Finding]:
    return [item for item, _ in causes.merge(found, rules)]


def names(found: list[Finding]) -> list[str]:
    return [item.rule for item in found]


def labels(found: Finding) -> list[str]:
    return [effect.label() for effect in found.merged]


def test_why_comes_before_who_and_who_before_where() -> None:
    rules = ["exposed-communication", "straggler-rank", "data-loader-stall"]
    ordered = [claimed(finding(rule, 1_000_000), 1.0, 1, 2) for rule in rules]
    (kept,) = merge(ordered, RULES)
    assert kept.rule == "data-loader-stall"
    assert labels(kept) == ["exposed-communication (here)", "straggler-rank (here)"]


def test_a_worse_finding_takes_what_it_covers_and_is_not_covered_by() -> None:
    rank = claimed(finding("straggler-rank", 3_000_000), 1.0, 1, 2, 3)
    pause = claimed(finding("blocking-sync", 1_000_000), 1.0, 3)
    assert effects([rank, pause], RULES) == {1: 0}
    assert effects([pause, rank], RULES) == {}


def test_other_calls_and_other_runs_stay_apart() -> None:
    one = claimed(finding("small-buckets", 2_000_000), 1.0, 1)
    other = finding("fp32-gradients", 1_000_000)
    assert effects([one, claimed(other, 1.0, 2)], RULES) == {}
    elsewhere = finding("fp32-gradients", 1_000_000, run="other")
    assert effects([one, claimed(elsewhere, 1.0, 1)], RULES) == {}
    assert effects([one, claimed(other, 1.0, 1)], RULES) == {1: 0}


def test_a_small_cause_does_not_swallow_a_large_loss() -> None:
    loss = claimed(finding("exposed-communication", 40_000_000, "critical"), 1.0, *range(10))
    late = claimed(finding("straggler-rank", 4_000_000, "critical"), 1.0, 1)
    assert names(merge([loss, late], RULES)) == ["exposed-communication", "straggler-rank"]


def test_causes_that_take_a_loss_away_together_explain_it() -> None:
    loss = claimed(finding("exposed-communication", 9_000_000), 1.0, *range(10))
    late = claimed(finding("straggler-rank", 4_000_000), 1.0, 0, 1, 2, 3)
    stall = claimed(finding("data-loader-stall", 3_000_000), 1.0, 5, 6, 7)
    found = merge([loss, late, stall], RULES)
    assert names(found) == ["straggler-rank", "data-loader-stall"]
    assert labels(found[0]) == ["exposed-communication (here)"]


def test_one_setting_for_several_groups_is_one_finding() -> None:
    """Of one rule what two findings claim of a call are the same nanoseconds."""
    ordered = [
        claimed(finding("resharding-not-needed", gain, where=f"group {gain}"), 0.3, 1, 2)
        for gain in (3_000_000, 2_000_000)
    ]
    (kept,) = merge(ordered, RULES)
    assert kept.savings_ns == 3_000_000


def test_an_info_finding_never_hides_a_warning() -> None:
    hint = claimed(finding("data-loader-stall", None, "info"), 1.0, 1)
    warning = claimed(finding("straggler-rank", None, "warning"), 1.0, 1)
    assert len(merge([hint, warning], RULES)) == 2


def test_what_may_give_nothing_takes_the_place_of_no_other_remedy() -> None:
    option = claimed(finding("tail-bucket-exposed", 3_000_000, "info", probability=0.4), 1.0, 1)
    other = claimed(finding("fp32-gradients", 1_000_000, "info", probability=0.4), 1.0, 1)
    loss = claimed(finding("exposed-communication", None, "info"), 1.0, 1)
    kept = merge([option, other, loss], RULES)
    assert names(kept) == ["tail-bucket-exposed", "fp32-gradients"]


def test_mutual_claims_leave_one() -> None:
    found = [
        claimed(finding(rule, gain), 1.0, 1, 2)
        for rule, gain in (
            ("imbalanced-pipeline-stages", 20_000_000),
            ("pipeline-bubble", 10_000_000),
            ("straggler-rank", 9_000_000),
        )
    ]
    (kept,) = merge(found, RULES)
    assert kept.rule == "imbalanced-pipeline-stages"
    assert len(kept.merged) == 2


def test_rules_of_any_number_are_held_against_each_other_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The work grows as the square of the findings; those beyond stand as they are."""
    monkeypatch.setattr(causes, "MOST_COMPARED", 40)
    beyond = causes.MOST_COMPARED + 100
    found = [claimed(finding("straggler-rank", 9_000 - n), 1.0, 1) for n in range(beyond)]
    kept = merge(found, RULES)
    assert len(kept) == 1 + 100
    assert len(kept[0].merged) == causes.MOST_COMPARED - 1


def test_worst_first_and_anchors_differ() -> None:
    items = [
        finding("small-buckets", 1_000_000, "info"),
        finding("small-buckets", 9_000_000, "warning"),
        finding("env-override", None, "warning", where="NCCL_P2P_DISABLE"),
    ]
    ordered = rank_findings(items, RULES)
    assert [item.savings_ns for item in ordered] == [9_000_000, None, 1_000_000]
    assert len({item.id for item in merge([claimed(item, 1.0) for item in items], RULES)}) == 3


def test_the_surer_of_two_causes_comes_first() -> None:
    wide = finding("regather-per-micro-batch", 75_000_000, savings_low_ns=10_000_000)
    sure = finding("sync-every-micro-batch", 70_000_000, savings_low_ns=60_000_000)
    assert [item.rule for item in rank_findings([wide, sure], RULES)] == [sure.rule, wide.rule]


def test_much_more_time_comes_first_though_it_is_less_sure() -> None:
    wide = finding("slow-ring-link", 170_000_000, savings_low_ns=31_000_000)
    sure = finding("exposed-communication", 40_000_000, savings_low_ns=39_000_000)
    assert [item.rule for item in rank_findings([sure, wide], RULES)] == [wide.rule, sure.rule]


def test_a_cause_just_under_a_grade_takes_its_effect_just_over() -> None:
    cause = finding("data-loader-stall", 21_000_000)
    effect = claimed(finding("straggler-rank", 22_400_000, "critical"), 1.0, 1)
    assert names(merge([claimed(cause, 1.0, 1), effect], RULES)) == ["data-loader-stall"]
    little = claimed(finding("data-loader-stall", 12_000_000), 1.0, 1)
    assert names(merge([little, effect], RULES)) == ["straggler-rank", "data-loader-stall"]


def test_a_cause_just_under_takes_an_effect_that_its_interval_holds() -> None:
    """Work that moves to three other ranks gives three quarters of the waiting for it."""
    cause = finding("data-loader-stall", 15_000_000, savings_low_ns=11_000_000,
                    savings_high_ns=21_000_000)  # fmt: skip
    effect = claimed(finding("straggler-rank", 20_000_000, "critical"), 1.0, 1)
    assert names(merge([claimed(cause, 1.0, 1), effect], RULES)) == ["data-loader-stall"]


def test_a_cause_that_may_give_nothing_takes_an_effect_of_up_to_as_much() -> None:
    """The calls are the same, whether or not their sizes tell what larger ones would give."""
    gain = {"savings_low_ns": 0, "savings_high_ns": 26_000_000}
    cause = finding("small-buckets", 13_000_000, **gain)
    effect = claimed(finding("latency-bound-collectives", 25_700_000, "critical"), 1.0, 1)
    assert names(merge([claimed(cause, 1.0, 1), effect], RULES)) == ["small-buckets"]
    less = cause.model_copy(update={"savings_high_ns": 14_000_000})
    assert len(merge([claimed(less, 1.0, 1), effect], RULES)) == 2


def test_what_gives_surely_less_is_not_why_all_of_a_loss_is_lost() -> None:
    """A slow link doubles what every call takes; gathers that start sooner hide a third of it."""
    gain = {"savings_low_ns": 45_000_000, "savings_high_ns": 77_000_000}
    link = claimed(finding("slow-ring-link", 61_000_000, "critical", **gain), 1.0, 1, 2, 3)
    gain = {"savings_low_ns": 20_000_000, "savings_high_ns": 35_000_000}
    extra = finding("prefetch-missing", 27_000_000, "critical", **gain)
    both = [link, claimed(extra, 1.0, 1, 2)]
    assert names(merge(both, RULES)) == ["slow-ring-link", "prefetch-missing"]
    gain = {"savings_low_ns": 20_000_000, "savings_high_ns": 77_000_000}
    open_ = finding("slow-ring-link", 50_000_000, "critical", **gain)
    both = [claimed(open_, 1.0, 1, 2), claimed(extra, 1.0, 1, 2)]
    assert names(merge(both, RULES)) == ["slow-ring-link"]


def test_when_calls_run_is_not_why_a_link_is_slow() -> None:
    """Mended it gives what it costs, and what is left to hide is in the other's gain."""
    gain = {"savings_low_ns": 4_000_000, "savings_high_ns": 20_000_000}
    link = claimed(finding("slow-ring-link", 10_000_000, **gain), 1.0, 1, 2)
    waits = claimed(finding("optimizer-waits-for-communication", 12_000_000, **gain), 1.0, 1, 2)
    assert len(merge([link, waits], RULES)) == 2
    unlikely = link[0].model_copy(update={"probability": 0.3})
    assert names(merge([claimed(unlikely, 1.0, 1, 2), waits], RULES)) == [waits[0].rule]


def test_a_network_that_may_give_more_is_no_effect_of_sending_less_over_it() -> None:
    """57 ms a step, 22 of them a slow network's (simulated): only replicas were advised."""
    gain = {"savings_low_ns": 8_500_000, "savings_high_ns": 22_300_000}
    shard = finding("full-shard-across-nodes", 15_400_000, "critical", **gain)
    option = {"basis": Basis.OPTION, "savings_low_ns": 0, "savings_high_ns": 26_400_000}
    network = finding("network-bound", 21_100_000, **option)
    both = [claimed(shard, 1.0, 1, 2), claimed(network, 1.0, 1, 2)]
    assert names(merge(both, RULES)) == [shard.rule, network.rule]
    less = network.model_copy(update={"savings_ns": 15_000_000})
    assert names(merge([both[0], claimed(less, 1.0, 1, 2)], RULES)) == [shard.rule]
    hidden = finding("prefetch-missing", 15_400_000, "critical", **gain)  # costs nothing any more
    assert names(merge([claimed(hidden, 1.0, 1, 2), both[1]], RULES)) == [hidden.rule]


def test_what_a_machine_explains_only_by_way_of_a_late_rank_the_job_can_change() -> None:
    """A rank lacks cores, is late for it, and sends objects that its peers wait for."""
    cores = claimed(finding("no-free-core", 37_000_000), 1.0, 1, 2, 3, 4)
    late = claimed(finding("straggler-rank", 28_000_000), 1.0, 1, 2, 3, 5, 6)
    objects = claimed(finding("redundant-collectives", 24_000_000), 1.0, 5, 6)
    assert names(merge([late, objects], RULES)) == ["straggler-rank"]
    kept = merge([cores, late, objects], RULES)
    assert sorted(names(kept)) == ["no-free-core", "redundant-collectives"]
    assert labels(next(item for item in kept if item.merged)) == ["straggler-rank (here)"]


def gather(rule: str, savings: int, low: int, high: int, group: str = "0") -> Finding:
    return finding(
        rule, savings, "critical", savings_low_ns=low, savings_high_ns=high, process_group=group
    )


def test_of_settings_that_may_give_as_much_the_cheaper_one_comes_first() -> None:
    # As recorded in a run whose prefetching was switched off: keeping all parameters in memory
    # stood first, by a hundredth.
    keep = gather("resharding-not-needed", 134_600_000, 92_500_000, 176_700_000)
    prefetch = gather("prefetch-missing", 142_600_000, 85_600_000, 188_400_000)
    assert names(rank_findings([keep, prefetch], RULES)) == [prefetch.rule, keep.rule]
    more = gather("resharding-not-needed", 143_000_000, 99_000_000, 187_000_000)
    assert names(rank_findings([more, prefetch], RULES)) == [prefetch.rule, more.rule]


def test_keeping_parameters_comes_before_replicas_that_may_give_as_much() -> None:
    keep = gather("resharding-not-needed", 13_500_000, 9_900_000, 17_000_000)
    replicas = gather("full-shard-across-nodes", 15_700_000, 9_300_000, 24_300_000)
    assert names(rank_findings([replicas, keep], RULES)) == [keep.rule, replicas.rule]
    more = gather("full-shard-across-nodes", 30_000_000, 20_000_000, 40_000_000)
    assert names(rank_findings([keep, more], RULES)) == [more.rule, keep.rule]


def test_of_warnings_without_a_gain_the_surer_one_leads() -> None:
    """As in jobs over Omni-Path: NICs that carry nothing, by name, led what NCCL says itself."""
    nics, direct = (finding(rule, None, "warning") for rule in ("nics-shared", "no-gpudirect"))
    assert names(rank_findings([nics, direct], RULES)) == [direct.rule, nics.rule]
    noted = finding(direct.rule, None, "info")
    assert names(rank_findings([noted, nics], RULES)) == [nics.rule, noted.rule]


def test_what_a_log_says_stands_before_what_a_benchmark_shows_of_it() -> None:
    """2,048 GH200, boeschf/nccl-benchmark-on-alps-2025: Slingshot lost packets, and it falls."""
    falls, lost = finding("benchmark-bandwidth-falls", None), finding("nccl-error", None)
    assert names(rank_findings([falls, lost], RULES)) == [lost.rule, falls.rule]


def test_a_setting_that_gives_more_comes_first_whatever_it_costs() -> None:
    keep = gather("resharding-not-needed", 134_600_000, 92_500_000, 176_700_000)
    prefetch = gather("prefetch-missing", 60_000_000, 36_000_000, 80_000_000)
    assert [item.rule for item in rank_findings([prefetch, keep], RULES)] == [
        keep.rule,
        prefetch.rule,
    ]
    elsewhere = gather("prefetch-missing", 134_000_000, 80_000_000, 180_000_000, group="1")
    assert rank_findings([keep, elsewhere], RULES)[0] is keep


def test_the_same_of_groups_side_by_side_is_one_finding() -> None:
    """Not where ranks are in both, where gains differ, or where a rank is accused."""

    def of(rule: str, group: str, ranks: list[int], savings: int = 2_000_000) -> Claimed:
        fields: dict[str, Any] = {"process_group": group, "ranks": ranks}
        ends = {"savings_low_ns": 1_500_000, "savings_high_ns": 2_500_000}
        return claimed(finding(rule, savings, **fields, **ends), 1.0, *ranks)

    one = of("prefetch-missing", "1", [0, 1])
    assert effects([one, of("prefetch-missing", "2", [2, 3])], RULES) == {1: 0}
    assert effects([one, of("prefetch-missing", "2", [2, 3], 1_000_000)], RULES) == {}
    assert effects([one, of("small-buckets", "2", [2, 3])], RULES) == {}
    late = [of("straggler-rank", "1", [0]), of("straggler-rank", "2", [2])]
    assert effects(late, RULES) == {}


def test_a_late_rank_and_what_may_be_why_are_one_gain() -> None:
    """Its loader's stall is the same time as its peers' waiting, and less sure."""
    late = claimed(
        finding("straggler-rank", 4_500_000, savings_low_ns=4_000_000, savings_high_ns=5_000_000),
        1.0, *range(4),
    )  # fmt: skip
    stall = claimed(
        finding("data-loader-stall", 4_700_000, "info", savings_low_ns=0, savings_high_ns=5_200_000,
                basis=Basis.OPTION),
        1.0, *range(4),
    )  # fmt: skip
    (kept,) = merge([late, stall], RULES)
    assert (kept.rule, labels(kept)) == ("straggler-rank", ["data-loader-stall (here)"])


def test_where_time_goes_in_groups_side_by_side_is_said_once() -> None:
    """The gradients of a mesh's data-parallel groups; the other half waits for the same setting."""

    def gradients(ns: int, group: str, *ranks: int) -> Claimed:
        ends = {"savings_low_ns": ns // 2, "savings_high_ns": 2 * ns}
        fields: dict[str, Any] = {"process_group": group, "where": group, "ranks": list(ranks)}
        return claimed(finding("exposed-communication", ns, **fields, **ends), 1.0, *ranks)

    one, other = gradients(19_000_000, "dp 0", 0, 2), gradients(18_000_000, "dp 1", 1, 3)
    (kept,) = merge([one, other], RULES)
    assert labels(kept) == ["exposed-communication (dp 1)"]
    assert kept.where == "dp 0 (and ranks 1, 3)"
    less = gradients(1_000_000, "tp 1", 1, 3)
    assert [item.where for item in merge([one, less], RULES)] == ["dp 0", "tp 1"]
    same_ranks = gradients(18_000_000, "tp 0", 0, 2)
    assert len(merge([one, (same_ranks[0], claimed(same_ranks[0], 1.0, 7)[1])], RULES)) == 2


def test_whose_time_is_claimed_tells_groups_side_by_side_without_their_ranks() -> None:
    def tiny(group: int) -> Claimed:
        ends = {"savings_low_ns": 2_000_000, "savings_high_ns": 4_000_000}
        fields: dict[str, Any] = {"process_group": str(group), "where": f"tp {group}"}
        item = finding("redundant-collectives", 3_000_000, **fields, **ends)
        return item, replace(ledger_of({group: (1e6, 1.0)}), ranks=frozenset({group, group + 1}))

    (kept,) = merge([tiny(0), tiny(2), tiny(4)], RULES)
    assert kept.where == "tp 0 (and 2 groups like it)"
    assert len(kept.merged) == 2


def test_an_option_that_would_give_more_is_no_effect_of_a_remedy_that_gives_less() -> None:
    """Hybrid sharding for 6 ms does not hide that a faster network may give 11."""
    shard = finding("full-shard-across-nodes", 6_000_000, savings_low_ns=3_000_000,
                    savings_high_ns=9_000_000)  # fmt: skip
    network = finding("network-bound", 11_000_000, savings_low_ns=0, savings_high_ns=14_000_000,
                      basis=Basis.OPTION, probability=None)  # fmt: skip
    both = [claimed(shard, 0.6, 1, 2), claimed(network, 1.0, 1, 2)]
    assert names(merge(both, RULES)) == ["full-shard-across-nodes", "network-bound"]
    less = network.model_copy(update={"savings_ns": 5_000_000, "savings_high_ns": 5_000_000})
    both = [claimed(shard, 0.6, 1, 2), claimed(less, 0.5, 1, 2)]
    assert names(merge(both, RULES)) == ["full-shard-across-nodes"]


def test_a_remedy_of_which_little_is_sure_leaves_another_of_the_same_calls() -> None:
    """Gathers that are not prefetched hold up reductions of twice the size that they need: each
    setting is a cause of its own until the first surely takes the gain of the second."""
    ends = {"savings_low_ns": 9_000_000, "savings_high_ns": 44_500_000}
    gathers = finding("prefetch-missing", 44_000_000, "critical", **ends)
    ends = {"savings_low_ns": 11_000_000, "savings_high_ns": 20_000_000}
    wide = claimed(finding("fp32-gradients", 15_600_000, "critical", **ends), 0.5, 1, 2)
    assert names(merge([claimed(gathers, 0.9, 1, 2, 3, 4, 5, 6), wide], RULES)) == [
        "prefetch-missing",
        "fp32-gradients",
    ]
    sure = gathers.model_copy(update={"savings_low_ns": 40_000_000})
    (kept,) = merge([claimed(sure, 0.9, 1, 2, 3, 4, 5, 6), wide], RULES)
    assert labels(kept) == ["fp32-gradients (here)"]


def test_what_costs_more_than_a_cause_gives_at_best_is_no_effect_of_it() -> None:
    pieces = claimed(
        finding("latency-bound-collectives", 4_500_000, savings_low_ns=2_200_000), 1.0, 1, 2
    )
    for high, alone in ((4_200_000, True), (5_000_000, False)):
        item = finding(
            "full-shard-across-nodes", 2_400_000, savings_low_ns=1_100_000, savings_high_ns=high
        )
        kept = merge([pieces, claimed(item, 0.6, 1, 2)], RULES)
        assert (len(kept) == 2) is alone


def test_a_machine_that_may_explain_as_much_is_ruled_out_before_code_is_rewritten() -> None:
    rewrite = finding(
        "optimizer-waits-for-communication", 2_000_000, savings_low_ns=1_000_000,
        category="overlap", because=["Why.", "More."], fix=["Use FSDP2", "Clip less"],
    )  # fmt: skip
    network = finding(
        "network-bound", 2_000_000, probability=None, basis=Basis.OPTION, category="fabric",
        savings_low_ns=0, savings_high_ns=3_000_000, fix=["Measure it.\nall_reduce_perf -b 64M"],
    )  # fmt: skip
    (kept,) = merge([claimed(rewrite, 0.9, 1, 2), claimed(network, 0.7, 1, 2)], RULES)
    assert labels(kept) == ["network-bound (here)"]
    assert kept.because == ["Why.", "The same time may be the machine's: network-bound."]
    assert (
        kept.fix[1]
        == "Or the machine is slow, which is quick to check. Measure it.\nall_reduce_perf -b 64M"
    )
    apart, _ = merge([claimed(rewrite, 0.9, 1, 2), claimed(network, 0.3, 1, 2, 3, 4)], RULES)
    assert apart.fix == rewrite.fix and apart.because == rewrite.because


def test_a_link_is_repaired_before_a_design_moves_less_over_it() -> None:
    # Simulated: the NIC of one of two hosts, of 12.6 ms, beside sharding inside hosts, of 6.9.
    inside = gather("full-shard-across-nodes", 10_400_000, 4_800_000, 24_500_000)
    link = finding(
        "slow-ring-link",
        8_600_000,
        "critical",
        savings_low_ns=3_200_000,
        savings_high_ns=19_300_000,
    )
    assert [item.rule for item in rank_findings([inside, link], RULES)] == [link.rule, inside.rule]
    more = gather("full-shard-across-nodes", 40_000_000, 20_000_000, 60_000_000)
    assert [item.rule for item in rank_findings([more, link], RULES)] == [more.rule, link.rule]
