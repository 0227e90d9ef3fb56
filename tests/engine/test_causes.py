"""Findings with one cause are one finding."""

from __future__ import annotations

from typing import Any

from advisor.engine import load_catalogue
from advisor.engine.causes import merge, rank_findings
from advisor.findings import Finding, Severity

RULES = {rule.id: rule for rule in load_catalogue()[0]}


def finding(rule: str, savings: int | None, severity: str = "warning", **fields: Any) -> Finding:
    return Finding(
        id=f"{rule}-x",
        run="run",
        rule=rule,
        severity=Severity(severity),
        title=rule,
        message="",
        where=fields.pop("where", "here"),
        savings_ns=savings,
        probability=fields.pop("probability", 0.9),
        **fields,
    )


def test_a_straggler_takes_what_it_causes() -> None:
    found = merge(
        [
            finding("exposed-communication", 20_000_000),
            finding("straggler-rank", 18_000_000, "critical", ranks=[7]),
            finding("launch-bound", 5_000_000, ranks=[7]),
            finding("jitter", 2_000_000),
        ],
        RULES,
    )
    assert [item.rule for item in found] == ["straggler-rank"]
    assert found[0].merged == [
        "exposed-communication (here)",
        "launch-bound (here)",
        "jitter (here)",
    ]


def test_a_small_cause_does_not_swallow_a_large_effect() -> None:
    found = merge(
        [
            finding("exposed-communication", 40_000_000, "critical"),
            finding("straggler-rank", 4_000_000, ranks=[7]),
        ],
        RULES,
    )
    assert [item.rule for item in found] == ["exposed-communication", "straggler-rank"]


def test_other_groups_stay_apart() -> None:
    found = merge(
        [
            finding("slow-ring-link", 20_000_000, process_group="1"),
            finding("exposed-communication", 20_000_000, process_group="2"),
        ],
        RULES,
    )
    assert len(found) == 2


def test_tensor_groups_that_one_mesh_order_mends_are_one_finding() -> None:
    for savings in ((86, 74), (74, 86), (80, 80)):
        found = merge(
            [
                finding(
                    "tensor-parallel-across-nodes",
                    saved * 1_000_000,
                    "critical",
                    where=f"group {group}",
                    process_group=str(group),
                )
                for group, saved in enumerate(savings)
            ],
            RULES,
        )
        assert [item.savings_ns for item in found] == [max(savings) * 1_000_000]
        assert len(found[0].merged) == 1


def test_an_info_finding_never_hides_a_warning() -> None:
    found = merge(
        [
            finding("straggler-rank", None, "info", ranks=[1]),
            finding("launch-bound", None, "warning", ranks=[1]),
        ],
        RULES,
    )
    assert {item.rule for item in found} == {"straggler-rank", "launch-bound"}


def test_mutual_claims_leave_one() -> None:
    """pipeline-bubble and imbalanced-pipeline-stages both explain the straggler; chains end."""
    found = merge(
        [
            finding("imbalanced-pipeline-stages", 20_000_000, "critical", ranks=[3]),
            finding("pipeline-bubble", 10_000_000),
            finding("straggler-rank", 9_000_000, ranks=[3]),
        ],
        RULES,
    )
    assert [item.rule for item in found] == ["imbalanced-pipeline-stages"]
    assert len(found[0].merged) == 2


def test_worst_first_and_anchors_differ() -> None:
    items = [
        finding("small-buckets", 1_000_000, "info"),
        finding("small-buckets", 9_000_000, "warning"),
        finding("env-override", None, "warning", where="NCCL_P2P_DISABLE"),
    ]
    ordered = rank_findings(items, RULES)
    assert [item.savings_ns for item in ordered] == [9_000_000, None, 1_000_000]
    assert len({item.id for item in merge(items, RULES)}) == 3


def test_environment_settings_explain_only_their_own_effect() -> None:
    effect = finding("no-gpudirect", None, "warning")
    cause = finding("env-override", None, "warning", where="NCCL_ALGO")
    cause.evidence.facts["name"] = "NCCL_ALGO"
    assert len(merge([effect, cause], RULES)) == 2
    cause.evidence.facts["name"] = "NCCL_NET_GDR_LEVEL"
    assert [item.rule for item in merge([effect, cause], RULES)] == ["env-override"]


def test_the_surer_of_two_causes_comes_first() -> None:
    wide = finding("regather-per-micro-batch", 75_000_000, savings_low_ns=10_000_000)
    sure = finding("sync-every-micro-batch", 70_000_000, savings_low_ns=60_000_000)
    assert [item.rule for item in rank_findings([wide, sure], RULES)] == [sure.rule, wide.rule]


def test_much_more_time_comes_first_though_it_is_less_sure() -> None:
    wide = finding("slow-ring-link", 170_000_000, savings_low_ns=31_000_000)
    sure = finding("exposed-communication", 40_000_000, savings_low_ns=39_000_000)
    assert [item.rule for item in rank_findings([sure, wide], RULES)] == [wide.rule, sure.rule]


def test_a_cause_just_under_a_grade_takes_its_effect_just_over() -> None:
    cause = finding("data-loader-stall", 21_000_000, ranks=[0])
    effect = finding("straggler-rank", 22_400_000, "critical", ranks=[0])
    assert [item.rule for item in merge([cause, effect], RULES)] == ["data-loader-stall"]
    little = finding("data-loader-stall", 12_000_000, ranks=[0])
    assert [item.rule for item in merge([little, effect], RULES)] == [
        "straggler-rank",
        "data-loader-stall",
    ]


def test_a_cause_that_may_give_nothing_takes_an_effect_of_up_to_as_much() -> None:
    """The calls are the same, whether or not their sizes tell what larger ones would give."""
    gain = {"savings_low_ns": 0, "savings_high_ns": 26_000_000}
    cause = finding("small-buckets", 13_000_000, process_group="0", **gain)
    effect = finding("latency-bound-collectives", 25_700_000, "critical", process_group="0")
    assert [item.rule for item in merge([cause, effect], RULES)] == ["small-buckets"]
    less = cause.model_copy(update={"savings_high_ns": 14_000_000})
    assert len(merge([less, effect], RULES)) == 2


def gather(rule: str, savings: int, low: int, high: int, group: str = "0") -> Finding:
    return finding(
        rule, savings, "critical", savings_low_ns=low, savings_high_ns=high, process_group=group
    )


def test_of_settings_that_may_give_as_much_the_cheaper_one_comes_first() -> None:
    # As recorded in a run whose prefetching was switched off: keeping all parameters in memory
    # stood first, by a hundredth.
    keep = gather("resharding-not-needed", 134_600_000, 92_500_000, 176_700_000)
    prefetch = gather("prefetch-missing", 142_600_000, 85_600_000, 188_400_000)
    assert [item.rule for item in merge([keep, prefetch], RULES)] == [prefetch.rule, keep.rule]
    more = gather("resharding-not-needed", 143_000_000, 99_000_000, 187_000_000)
    assert [item.rule for item in merge([more, prefetch], RULES)] == [prefetch.rule, more.rule]


def test_a_setting_that_gives_more_comes_first_whatever_it_costs() -> None:
    keep = gather("resharding-not-needed", 134_600_000, 92_500_000, 176_700_000)
    prefetch = gather("prefetch-missing", 60_000_000, 36_000_000, 80_000_000)
    assert [item.rule for item in rank_findings([prefetch, keep], RULES)] == [
        keep.rule,
        prefetch.rule,
    ]
    elsewhere = gather("prefetch-missing", 134_000_000, 80_000_000, 180_000_000, group="1")
    assert rank_findings([keep, elsewhere], RULES)[0] is keep
