"""The decision table: each row by what it needs, and no sentence in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.engine.catalogue import load_catalogue
from advisor.engine.causes import as_listed, rank_findings
from advisor.engine.facts import Facts
from advisor.engine.verdict.clocks import Clocks
from advisor.engine.verdict.coverage import Coverage
from advisor.engine.verdict.facts import Shares, Situation
from advisor.engine.verdict.grade import is_explained, severity_of
from advisor.engine.verdict.table import Decision, decide
from advisor.engine.verdict.words import host_explains, possible_cause
from advisor.findings import Evidence, Finding, Severity, VerdictKind

MS = 1_000_000
STEP_NS = 100 * MS
FACTS = Facts(
    ranks_read=4, world_size=4, hosts=2, timeline="device", backend="nccl", residual_ns=0,
    steps=8, step_ns=STEP_NS, noise_ns=MS,
)  # fmt: skip
BUSY = Shares(exposed=0.05, compute=0.93, idle=0.02, hidden=0.5, wait_known=True)


def situation(**changes: Any) -> Situation:
    healthy = Situation(
        facts=FACTS, findings=[], shares=BUSY, steps_seen=8, events=9000,
        traced_ranks=4, missing_ranks=[], cut_ranks=[], alone_ranks=[], empty_ranks=[],
        communicates=True, groups_known=True, partly_read=0.0, carried=False,
        lacks_kernels=False, losses=[],
        clocks=None, coverage=None, benchmark=None, formats=frozenset({"kineto"}),
    )  # fmt: skip
    return replace(healthy, **changes)


def finding(
    rule: str = "straggler-rank",
    ms: float | None = 20,
    probability: float | None = 0.95,
    **more: Any,
) -> Finding:
    gain = None if ms is None else round(ms * MS)
    ends = {} if gain is None else {"savings_low_ns": gain // 2, "savings_high_ns": 3 * gain // 2}
    fields: dict[str, Any] = {
        "id": rule, "run": "r", "rule": rule, "severity": Severity.WARNING, "title": "It is slow",
        "message": "m", "savings_ns": gain, "probability": probability,
        "savings_share": gain and gain / FACTS.step_ns, **ends, **more,
    }  # fmt: skip
    return Finding(**fields)


def shares(**changes: float) -> Shares:
    return BUSY._replace(**changes)


FEW = FACTS._replace(ranks_read=1)
BY_PATTERN = FACTS._replace(by_pattern=True)
WIDE = {"savings_low_ns": 2 * MS, "savings_high_ns": 60 * MS}
CLOCKS = Clocks(
    exposed_ns=20 * MS, share=0.2, differ_ns=MS, apart_ns=0, hidden_ns=0, hosts=["a", "b", "c"]
)
EXPOSED: tuple[str, float, None] = ("exposed-communication", 25, None)
BARE = {"basis": "loss"}
DENIED = Evidence(facts={"probe": "denies"})


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"findings": [finding()]}, "sure", "finding"),
        ({"findings": [finding(probability=0.7)]}, "probable", "finding"),
        # One number decides, as it is written, whatever it rests on.
        ({"findings": [finding(probability=0.896)]}, "sure", "finding"),
        ({"findings": [finding(probability=0.905, basis="untried")]}, "sure", "finding"),
        ({"findings": [finding(probability=0.894, basis="evidence")]}, "probable", "finding"),
        ({"findings": [finding(**WIDE)]}, "unknown-cost", "finding"),
        ({"findings": [finding("jitter")]}, "lossy", "jitter"),
        ({"findings": [finding("jitter", ms=6)]}, "lossy", "jitter"),
        ({"findings": [finding("jitter", ms=2, severity=Severity.INFO)]}, "healthy", "healthy"),
        ({"findings": [finding(probability=0.4)]}, "lossy", "exposed"),
        ({"findings": [finding(probability=0.4, severity="info")]}, "healthy", "healthy"),
        ({"findings": [finding(ms=0.5)]}, "healthy", "healthy"),
        ({"findings": [finding(evidence=DENIED)]}, "inconclusive", "probe-denies"),
        ({"findings": [finding("desync", None, severity="critical")]}, "sure", "broken"),
        ({"findings": [finding("no-gpudirect", None)]}, "sure", "setting"),
        ({"findings": [finding("note", None, severity="info")]}, "healthy", "healthy"),
        ({"findings": [finding("jitter"), finding()]}, "sure", "finding"),
        ({"findings": [finding("jitter", ms=25), finding(ms=6)]}, "lossy", "jitter"),
        ({"findings": [finding(ms=1.2), finding("jitter", ms=6)]}, "lossy", "jitter"),
        ({"findings": [finding(*EXPOSED, **BARE)]}, "lossy", "exposed-communication"),
        ({"findings": [finding(*EXPOSED, **BARE), finding(ms=16)]}, "sure", "finding"),
        (
            {"findings": [finding(*EXPOSED, **BARE), finding(ms=6)]},
            "lossy",
            "exposed-communication",
        ),
        ({}, "healthy", "healthy"),
        ({"shares": shares(exposed=0.27)}, "lossy", "exposed"),
        ({"shares": shares(exposed=0.15, schedule=0.08)}, "healthy", "healthy"),
        ({"shares": shares(exposed=0.27, schedule=0.08)}, "lossy", "exposed"),
        ({"shares": shares(exposed=0.15, idle=0.12, schedule=0.08)}, "lossy", "exposed"),
        ({"shares": shares(idle=0.39)}, "lossy", "idle"),
        ({"replay_saves_ns": 5.0 * MS}, "lossy", "exposed"),
        ({"replay_saves_ns": 2.0 * MS}, "healthy", "healthy"),
        ({"replay_saves_ns": 5.0 * MS, "findings": [finding()]}, "sure", "finding"),
        ({"shares": shares(idle=0.5)}, "lossy", "idle"),
        ({"empty_ranks": [1]}, "inconclusive", "nothing-recorded"),
        ({"findings": [finding()], "strangers": [1]}, "inconclusive", "never-met"),
        ({"findings": [finding()], "lost": 0.1}, "inconclusive", "damaged"),
        ({"findings": [finding()], "lost": 0.09}, "sure", "finding"),
        ({"communicates": False}, "inconclusive", "no-communication"),
        ({"coverage": Coverage(0.6, "combine", 49 * MS)}, "inconclusive", "unrecognised"),
        ({"coverage": Coverage(0.97, "", 0)}, "healthy", "healthy"),
        (
            {"coverage": Coverage(0.6, "fusion", MS), "shares": shares(compute=0.02, idle=0.9)},
            "lossy",
            "idle",
        ),
        ({"facts": FEW, "shares": shares(wait_known=False)}, "inconclusive", "ranks-missing"),
        ({"facts": FEW, "alone_ranks": [0]}, "inconclusive", "ranks-alone"),
        ({"cut_ranks": [3], "partly_read": 0.05}, "inconclusive", "ranks-cut"),
        ({"groups_known": False}, "inconclusive", "groups-missing"),
        ({"facts": FACTS._replace(steps=1)}, "inconclusive", "one-step"),
        ({"facts": BY_PATTERN}, "inconclusive", "unmarked"),
        ({"facts": BY_PATTERN, "shares": shares(exposed=0.27)}, "lossy", "exposed"),
        ({"facts": BY_PATTERN, "shares": shares(exposed=0.02)}, "healthy", "healthy"),
        ({"facts": BY_PATTERN._replace(purpose="inference")}, "healthy", "healthy"),
        ({"before_ns": 10 * MS}, "inconclusive", "before"),
        ({"before_ns": 9 * MS}, "healthy", "healthy"),
        ({"clocks": CLOCKS}, "inconclusive", "clocks"),
        ({"shares": None}, "inconclusive", "no-complete-step"),
        ({"shares": None, "steps_seen": 0}, "inconclusive", "no-work"),
        ({"shares": None, "steps_seen": 0, "events": 0}, "inconclusive", "no-trace"),
    ],
)
def test_each_situation_has_one_shape(changes: dict[str, Any], kind: str, reason: str) -> None:
    decision = decide(situation(**changes))
    assert (decision.kind, decision.reason) == (kind, reason)


def test_a_large_gain_is_said_though_ranks_are_missing_and_a_small_one_is_not() -> None:
    missing = {"facts": FEW, "shares": shares(wait_known=False)}
    assert decide(situation(findings=[finding()], **missing)).kind == "sure"
    assert decide(situation(findings=[finding(ms=2)], **missing)).reason == "ranks-missing"


def test_a_small_gain_does_not_stand_before_a_larger_one_that_is_only_possible() -> None:
    small, possible = finding(ms=2), finding("slow-ring-link", ms=20, probability=0.4)
    assert decide(situation(findings=[small])).reason == "finding"
    lost = {"shares": shares(exposed=0.27)}
    assert decide(situation(findings=[possible, small], **lost)).reason == "exposed"
    assert decide(situation(findings=[small], **lost)).reason == "finding"


UNSIZED = {"wait_known": True, "median_bytes": None}
CALLS: dict[str, Any] = {
    "rule": "exposed-communication", "ms": None, "severity": Severity.INFO,
    "claims": {"transfer": 25 * MS}, "evidence": Evidence(facts=UNSIZED),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({}, "exposed", id="no size, so that no rule can tell why"),
        pytest.param({"median_bytes": 8_000_000}, "finding", id="sizes, by which rules looked"),
        pytest.param({"is_message": True}, "finding", id="a pipeline's bubble"),
        pytest.param({"wait_known": False}, "finding", id="waiting, for all that is known"),
    ],
)
def test_a_small_gain_does_not_stand_before_transfers_that_nothing_can_explain(
    changes: dict[str, Any], reason: str
) -> None:
    """GIVEN a sure gain of 5 % (at most 7.5 %) beside calls that are exposed for 25 %."""
    calls = finding(**CALLS | {"evidence": Evidence(facts=UNSIZED | changes)})
    lost = shares(exposed=0.25)
    own = finding("unfused-optimizer", ms=5, claims={"compute": 5 * MS})
    assert decide(situation(findings=[own, calls], shares=lost)).reason == reason
    for other in (
        finding("unfused-optimizer", ms=9, claims={"compute": 9 * MS}),  # a loss itself
        finding("straggler-rank", ms=5, claims={"wait": 5 * MS}),  # who is late tells of calls
    ):
        assert decide(situation(findings=[other, calls], shares=lost)).finding == other


def test_a_probable_gain_does_not_stand_before_one_that_is_possible_and_above_its_high_end() -> (
    None
):
    possible, lost = finding("slow-ring-link", ms=20, probability=0.4), shares(exposed=0.27)
    for probability, ms, reason in (
        (0.8, 8, "exposed"),
        (0.8, 25, "finding"),
        (0.95, 8, "finding"),
    ):
        own = finding(ms=ms, probability=probability)
        assert decide(situation(findings=[possible, own], shares=lost)).reason == reason
    ends = {"savings_low_ns": 2 * MS, "savings_high_ns": 12 * MS}
    sure = finding(ms=8, probability=0.95, **ends)
    assert decide(situation(findings=[possible, sure], shares=lost)).kind == "unknown-cost"


def test_what_is_expected_to_give_most_is_what_a_verdict_is_about_however_it_is_graded() -> None:
    first = finding("data-loader-stall", ms=9, severity=Severity.CRITICAL)
    for ms, about in ((40, "launch-bound"), (10, "launch-bound"), (8, "data-loader-stall")):
        decision = decide(situation(findings=[first, finding("launch-bound", ms=ms)]))
        assert decision.finding is not None
        assert decision.finding.rule == about


def test_what_the_job_can_change_comes_before_what_others_take_of_its_machine() -> None:
    cores = finding("no-free-core", ms=40, severity=Severity.CRITICAL)
    option = finding("fp32-gradients", ms=20, probability=None, savings_low_ns=0)
    for of_job, about in (
        (finding("data-loader-stall", ms=5), "data-loader-stall"),
        (finding("data-loader-stall", ms=2, severity=Severity.INFO), "no-free-core"),
        (option, "no-free-core"),
    ):
        decision = decide(situation(findings=[cores, of_job]))
        assert decision.finding is not None
        assert decision.finding.rule == about
        assert as_listed([cores, of_job])[0].rule == about


def test_waiting_for_shared_cores_that_is_usual_asks_for_no_change_of_the_job() -> None:
    usual = finding("no-free-core", ms=8, severity=Severity.INFO)
    decision = decide(situation(findings=[usual], shares=shares(exposed=0.12)))
    assert (decision.kind, decision.reason) == (VerdictKind.HEALTHY, "shared")
    much = decide(situation(findings=[usual], shares=shares(exposed=0.25)))  # more than cores take
    assert much.reason == "finding"
    cause = finding("data-loader-stall", ms=5)
    assert decide(situation(findings=[usual, cause])).finding == cause


def test_who_makes_less_than_half_of_a_loss_is_not_its_cause() -> None:
    lost = finding("jitter", ms=20)
    assert decide(situation(findings=[lost, finding(ms=6)])).reason == "jitter"
    assert decide(situation(findings=[lost, finding(ms=12)])).reason == "finding"


def test_calls_that_were_not_matched_lack_no_rank_of_a_job_that_was_read_whole() -> None:
    unmatched = {"partly_read": 0.3, "shares": shares(exposed=0.27)}
    assert decide(situation(**unmatched)).reason == "exposed"
    assert decide(situation(facts=FEW, **unmatched)).reason == "ranks-missing"


def test_a_link_that_clocks_may_hide_comes_before_a_smaller_gain() -> None:
    hidden = CLOCKS._replace(hidden_ns=50.0 * MS)
    assert decide(situation(findings=[finding()], clocks=hidden)).reason == "clocks"
    assert decide(situation(findings=[finding(ms=40)], clocks=hidden)).reason == "finding"
    of_link = finding("slow-ring-link")
    assert decide(situation(findings=[of_link], clocks=hidden)).reason == "finding"


def test_a_run_is_healthy_only_with_all_ranks_and_what_its_devices_did_known() -> None:
    """Every way to lack something that could contradict it, one at a time."""
    lacking: list[dict[str, Any]] = [
        {"communicates": False},
        {"coverage": Coverage(0.5, "", 0)},
        {"empty_ranks": [0]},
        {"alone_ranks": [0], "facts": FEW},
        {"groups_known": False},
        {"clocks": CLOCKS},
    ]
    assert all(decide(situation(**one)).kind != "healthy" for one in lacking)


def test_first_use_is_what_a_verdict_is_about_unless_communication_takes_more() -> None:
    loading = {"kind": "loading", "idle_ns": 9 * MS, "name": "cudaLaunchKernel"}
    known = {"findings": [finding()], "idling": loading}
    assert decide(situation(shares=shares(idle=0.12), **known)).reason == "idle"
    more = shares(idle=0.12, exposed=0.75)
    assert decide(situation(shares=more, **known)).reason == "finding"
    few = situation(facts=FEW, shares=more._replace(wait_known=False), idling=loading)
    assert decide(few).reason == "ranks-missing"


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, "info"),
        ({"findings": [finding("jitter", ms=6)]}, "warning"),
        ({"findings": [finding(severity="info")]}, "info"),
        ({"findings": [finding()]}, "warning"),
        ({"shares": shares(exposed=0.27)}, "warning"),
        # waiting in turn that is but a hint, and what is lost beside it
        ({"shares": shares(exposed=0.15), "findings": [finding("jitter", ms=12, severity="info")]},
         "info"),
        ({"shares": shares(exposed=0.27), "findings": [finding("jitter", ms=12, severity="info")]},
         "warning"),
        ({"shares": shares(exposed=0.15), "findings": [finding("jitter", ms=12)]}, "warning"),
        ({"facts": FEW, "shares": shares(exposed=0.62, wait_known=False)}, "warning"),
        ({"facts": FACTS._replace(steps=1), "shares": shares(idle=0.56)}, "warning"),
        ({"facts": FEW, "shares": shares(exposed=0.05, wait_known=False)}, "info"),
        ({"facts": FEW, "shares": shares(exposed=0.27, wait_known=False),
          "findings": [finding("straggler-rank", ms=2, severity="critical")]}, "critical"),
        ({"findings": [finding(probability=0.4, severity="critical")]}, "critical"),
        # of all that idles most is first use, which happens once
        ({"shares": shares(idle=0.9), "idling": {"kind": "loading", "idle_ns": 80 * MS}}, "info"),
        ({"shares": shares(idle=0.9), "idling": {"kind": "pause", "idle_ns": 80 * MS}}, "warning"),
        # transfers longer than the compute beside them are of the work; a warning beside them stays
        ({"shares": shares(exposed=0.27, compute=0.2, moving=0.4)}, "info"),
        ({"shares": shares(exposed=0.27, compute=0.6, moving=0.4)}, "warning"),
        ({"shares": shares(exposed=0.27, compute=0.2, moving=0.4),
          "findings": [finding("network-bound", severity="warning", basis="option")]}, "warning"),
    ],
)  # fmt: skip
def test_a_verdict_is_no_milder_than_its_loss_and_its_findings(
    changes: dict[str, Any], severity: str
) -> None:
    it = situation(**changes)
    assert severity_of(decide(it), it) == severity


@pytest.mark.parametrize(
    ("changes", "explained"),
    [
        ({}, False),
        ({"moving": 0.2, "compute": 0.1}, True),
        ({"moving": 0.2, "compute": 0.3}, False),
        ({"activations": 0.1}, True),
        ({"activations": 0.01}, False),
        ({"schedule": 0.1}, True),
    ],
)
def test_what_the_work_itself_explains(changes: dict[str, float], explained: bool) -> None:
    it = situation(shares=shares(exposed=0.15, **changes))
    lossy = Decision(VerdictKind.LOSSY, "exposed")
    assert is_explained(lossy, it) == explained
    assert not is_explained(Decision(VerdictKind.LOSSY, "idle"), it)


def test_missing_ranks_have_no_part_in_a_device_that_idles_by_itself() -> None:
    """GIVEN one rank of four, and a sure cause of 30 ms of idling: more than is exposed, or less,
    which missing ranks may explain."""
    few = {"facts": FEW, "shares": shares(exposed=0.28, idle=0.55, wait_known=False)}
    idles = finding("launch-bound", ms=30, claims={"idle": 30 * MS})
    assert decide(situation(findings=[idles], **few)).finding == idles
    less = idles.model_copy(update={"savings_ns": 19 * MS})
    assert decide(situation(findings=[less], **few)).reason == "ranks-missing"


def test_a_sure_cause_of_most_of_what_is_exposed_stands_though_ranks_are_missing() -> None:
    """GIVEN 16 ms exposed and a rank that is late for 11 of them, as it is for sure."""
    few = {"facts": FACTS._replace(ranks_read=3), "shares": shares(exposed=0.16, wait_known=False)}
    late = finding(ms=11, claims={"wait": 9 * MS, "transfer": 2 * MS})
    assert decide(situation(findings=[late], **few)).finding == late
    for other in (
        late.model_copy(update={"probability": 0.7}),
        late.model_copy(update={"claims": {"compute": 11 * MS}}),
        late.model_copy(update={"savings_ns": 7 * MS}),
    ):
        assert decide(situation(findings=[other], **few)).reason == "ranks-missing"


@pytest.mark.parametrize(
    ("missing", "changes", "reason"),
    [
        ([3], {}, "finding"),
        ([2, 3], {}, "ranks-missing"),  # half of them: the other half may be later still
        ([3], {"probability": 0.7}, "ranks-missing"),
        ([3], {"savings_low_ns": 4 * MS, "savings_high_ns": 40 * MS}, "finding"),
        ([3], {"savings_low_ns": 0}, "ranks-missing"),  # time in calls with the missing rank
        ([3], {"rule": "jitter"}, "ranks-missing"),
    ],
)
def test_what_most_ranks_prove_leads_though_a_missing_one_may_explain_more(
    missing: list[int], changes: dict[str, Any], reason: str
) -> None:
    """GIVEN 40 ms exposed, and a cause of 7 ms of it that those who were read show."""
    few = {"facts": FACTS._replace(ranks_read=4 - len(missing)), "missing_ranks": missing,
           "shares": shares(exposed=0.4, wait_known=False)}  # fmt: skip
    late = finding(ms=7, claims={"wait": 7 * MS}).model_copy(update=changes)
    assert decide(situation(findings=[late], **few)).reason == reason


def test_a_sure_cause_leads_before_a_larger_likely_one_of_calls_that_lack_a_rank() -> None:
    """GIVEN 40 ms exposed on three of four ranks: a likely link of 20, a loader of 10 for sure."""
    few = {"facts": FACTS._replace(ranks_read=3), "missing_ranks": [3],
           "shares": shares(exposed=0.4, wait_known=False)}  # fmt: skip
    link = finding("slow-ring-link", ms=20, probability=0.88, claims={"transfer": 20 * MS})
    loads = finding("data-loader-stall", ms=10, claims={"idle": 10 * MS})
    assert decide(situation(findings=[link, loads], **few)).finding == loads
    assert decide(situation(findings=[link], **few)).reason == "ranks-missing"


def test_what_links_take_for_the_bytes_of_a_rank_that_is_missing_is_no_waiting() -> None:
    few = {"facts": FEW, "shares": shares(exposed=0.3, wait_known=False), "partly_read": 0.3}
    assert decide(situation(**few)).reason == "ranks-missing"
    assert decide(situation(carried=True, **few)).reason == "exposed"


def test_a_rank_that_is_cut_leaves_nothing_open_where_most_of_its_calls_were_read() -> None:
    it = situation(cut_ranks=[3], shares=shares(exposed=0.3), partly_read=0.0)
    assert decide(it).reason == "exposed"


@pytest.mark.parametrize(("high_ms", "reason"), [(2.4, "finding"), (1.5, "ranks-cut")])
def test_a_small_cause_that_is_counted_stands_though_a_rank_is_cut(
    high_ms: float, reason: str
) -> None:
    """GIVEN 4 ms exposed, and what is sent too often whoever is missing: its high end explains half
    of that, or does not."""
    counted = finding("sync-every-micro-batch", ms=1.4, claims={"transfer": MS},
                      savings_low_ns=0, savings_high_ns=round(high_ms * MS))  # fmt: skip
    it = situation(cut_ranks=[3], shares=shares(exposed=0.04), partly_read=0.04, findings=[counted])
    assert decide(it).reason == reason
    if reason == "finding":
        assert decide(it).kind is VerdictKind.UNKNOWN_COST


@pytest.mark.parametrize("idle", [0.02, 0.63])
def test_what_was_not_recorded_is_no_loss(idle: float) -> None:
    """GIVEN no device events WHEN operators leave much of the step empty THEN it is no warning."""
    it = situation(shares=shares(idle=idle, compute=1 - idle), instead={"operators": 2424})
    assert (decide(it).reason, severity_of(decide(it), it)) == ("no-device", "info")


@pytest.mark.parametrize(
    ("kind", "ms", "named"),
    [("allocator", 40, True), ("allocator", 20, False), ("other", 40, False)],
)
def test_idle_time_has_a_cause_where_the_host_is_seen_at_it(
    kind: str, ms: int, named: bool
) -> None:
    it = situation(shares=shares(idle=0.6, compute=0.4), idling={"kind": kind, "idle_ns": ms * MS})
    assert host_explains(it) is named


@pytest.mark.parametrize(("high_ms", "named"), [(12, True), (9, True), (4, False)])
def test_an_option_that_may_be_most_of_what_is_exposed_is_a_possible_cause(
    high_ms: int, named: bool
) -> None:
    """GIVEN 10 ms exposed and a network that may be slower than elsewhere, behind the loss."""
    loss = finding("exposed-communication", ms=4, claims={"transfer": 4 * MS})
    network = finding("network-bound", ms=high_ms / 2, claims={"transfer": MS}, severity="info",
                      savings_low_ns=0, savings_high_ns=high_ms * MS, basis="option")  # fmt: skip
    it = situation(shares=shares(exposed=0.1), findings=[loss, network])
    decision = Decision(VerdictKind.LOSSY, "exposed")
    assert possible_cause(decision, it) == (network.title if named else None)


@pytest.mark.parametrize(
    ("exposed", "activations", "kind"),
    [
        (0.16, 0.13, VerdictKind.HEALTHY),
        (0.16, 0.02, VerdictKind.LOSSY),
        (0.40, 0.30, VerdictKind.LOSSY),  # more than tensor parallelism in a host pays by design
    ],
)
def test_what_tensor_parallelism_pays_by_design_is_no_loss(
    exposed: float, activations: float, kind: VerdictKind
) -> None:
    found = situation(shares=shares(exposed=exposed, activations=activations))
    assert decide(found).kind is kind


def test_of_two_that_may_give_as_much_the_verdict_and_the_list_take_the_one_ranked_first() -> None:
    ends = {"savings_low_ns": 25 * MS, "savings_high_ns": 55 * MS}
    design = finding("pipeline-bubble", 36, 0.88, **ends)
    device = finding("slow-rank-in-stage", 33, 0.91, **ends)
    rules = {rule.id: rule for rule in load_catalogue()[0]}
    ranked = rank_findings([design, device], rules)
    assert as_listed(ranked) == [device, design]
    assert decide(situation(findings=ranked)).finding is device
    surely_more = finding("pipeline-bubble", 80, 0.88, savings_low_ns=60 * MS)
    assert as_listed(rank_findings([device, surely_more], rules)) == [surely_more, device]
