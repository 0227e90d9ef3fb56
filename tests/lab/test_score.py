"""The score's own logic on hand-made findings, and the case set's promises."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.findings import Finding, FindingsReport, Severity, Verdict, VerdictKind
from benchmarks.lab import case as lab_case
from benchmarks.lab import score, table
from benchmarks.lab.case import Case, Place, Truth
from benchmarks.lab.cases import all_cases, quick_cases
from benchmarks.lab.config import STRATEGIES, RunConfig, from_json
from benchmarks.lab.faults import KINDS
from benchmarks.lab.hosts import LinkShape
from benchmarks.lab.judge import judge_place

JOB = RunConfig(strategy="ddp", ranks=4)
TRUTH = Truth(faulty_step_ns=(150, 152), healthy_step_ns=(100, 101))


def case(kind: str = "slow-rank", place: Place | None = None, **changes: object) -> Case:
    made = Case(
        id="x", kind=kind, strength="", seed=0, healthy=JOB, faulty=JOB, place=place or Place()
    )
    return replace(made, **changes)


def finding(rule: str, severity: Severity = Severity.WARNING, **changes: object) -> Finding:
    return Finding(
        id=rule, run="run", rule=rule, severity=severity, title="t", message="m", **changes
    )


def report(*findings: Finding) -> FindingsReport:
    return FindingsReport(
        advisor_version="0",
        runs=[],
        verdict=Verdict(
            kind=VerdictKind.SURE if findings else VerdictKind.HEALTHY,
            title="",
            cause=findings[0].rule if findings else "healthy",
        ),
        outcomes=[],
        findings=list(findings),
    )


def test_first_finding_of_an_accepted_rule_is_top_one():
    result = score._result(
        case(place=Place(ranks=(2,))), TRUTH, report(finding("straggler-rank", ranks=[2]))
    )
    assert (result.rank_of_truth, result.place_found, result.band) == (1, "right", "counted")


def test_a_finding_of_the_consequence_alone_is_a_miss():
    result = score._result(case(), TRUTH, report(finding("exposed-communication")))
    assert result.rank_of_truth is None
    assert result.top == "exposed-communication"


def test_the_cause_behind_another_finding_is_not_first():
    result = score._result(
        case(), TRUTH, report(finding("small-buckets"), finding("straggler-rank"))
    )
    assert result.rank_of_truth == 2


def test_a_finding_at_info_names_no_cause_and_is_no_alarm():
    said = report(finding("straggler-rank", Severity.INFO))
    assert score._result(case(), TRUTH, said).rank_of_truth is None
    assert score._result(case(is_control=True), TRUTH, said).alarms == ()


def test_any_warning_on_a_control_is_an_alarm():
    control = case("healthy", is_control=True)
    result = score._result(control, TRUTH, report(finding("jitter")))
    assert score.summarise([result])["summary"]["false_alarms"] == 1


@pytest.mark.parametrize(
    ("ranks", "verdict"),
    [([2], "right"), ([1], "wrong"), ([1, 2], "candidates"), ([0, 1, 2, 3], "wrong")],
)
def test_place_of_a_rank(ranks, verdict):
    found = finding("straggler-rank", ranks=ranks)
    assert judge_place(case(place=Place(ranks=(2,))), found) == verdict


@pytest.mark.parametrize(
    ("direction", "links", "verdict"),
    [
        ("send", ["2 -> 3"], "right"),
        ("send", ["1 -> 2"], "wrong"),
        ("receive", ["1 -> 2"], "right"),
        ("", ["1 -> 2"], "right"),
        ("", ["1 -> 2", "2 -> 3"], "right"),
        ("", ["3 -> 0"], "wrong"),
        ("", ["1 -> 2", "3 -> 0"], "candidates"),
        ("send", ["lab-h2 -> lab-h3"], "right"),
    ],
)
def test_place_of_a_link_on_one_rank_hosts(direction, links, verdict):
    place = Place(ranks=(2,), hosts=(2,), direction=direction)
    found = finding("slow-ring-link", links=links)
    assert judge_place(case("slow-link", place), found) == verdict


def test_place_of_a_host_with_two_ranks():
    job = RunConfig(ranks=8, ranks_per_host=2)
    where = case("slow-link", Place(ranks=(4, 5), hosts=(2,)), faulty=job)
    assert judge_place(where, finding("slow-ring-link", hosts=["advlab7-h2"])) == "right"
    assert judge_place(where, finding("slow-ring-link", ranks=[4, 5])) == "right"
    assert judge_place(where, finding("slow-ring-link", links=["5 -> 6"])) == "right"
    assert judge_place(where, finding("slow-ring-link", links=["6 -> 7"])) == "wrong"


def test_place_of_a_group_is_told_by_its_description():
    where = case("tensor-across-hosts", Place(group="tp"))
    groups = {"1": "mesh_tp", "2": "mesh_dp"}
    found = finding("tensor-parallel-across-nodes", process_group="1")
    assert judge_place(where, found, groups) == "right"
    found = finding("tensor-parallel-across-nodes", process_group="2")
    assert judge_place(where, found, groups) == "wrong"


@pytest.mark.parametrize(
    ("low", "high", "within"), [(40, 60, True), (53, 60, True), (54, 60, False), (1, 48, False)]
)
def test_gain_counts_as_within_when_the_interval_meets_what_is_known(low, high, within):
    # The real gain is 151 - 100 = 51 (means of the phases), known to 2 (150 to 152).
    truth = Truth(faulty_step_ns=(150, 152), healthy_step_ns=(100, 100))
    found = finding("straggler-rank", savings_ns=50, savings_low_ns=low, savings_high_ns=high)
    result = score._result(case(), truth, report(found))
    assert result.gain_within_interval is within


def test_no_interval_is_neither_within_nor_outside():
    result = score._result(case(), TRUTH, report(finding("straggler-rank")))
    assert result.gain_within_interval is None
    assert score.summarise([result])["summary"]["with_interval"] == 0


@pytest.mark.parametrize(
    ("faulty", "name"), [(1100, "counted"), (1050, "weak"), (1010, "no effect")]
)
def test_bands(faulty, name):
    assert score.band(case(), Truth((faulty,), (1000,))) == name


def test_an_edited_recording_is_judged_by_its_cause():
    edited = case("shift-clock", cause="slow-rank")
    assert score._result(edited, TRUTH, report(finding("straggler-rank"))).rank_of_truth == 1


def test_the_table_lists_misses_and_alarms():
    miss = score._result(case(), TRUTH, report(finding("jitter")))
    alarm = score._result(
        case("healthy", is_control=True, id="calm"), TRUTH, report(finding("jitter"))
    )
    text = table.render(score.summarise([miss, alarm]))
    assert "named jitter" in text
    assert "calm" in text.split("False alarms")[1]
    assert "0/1 (0%)" in text


def test_results_can_be_written_and_read(tmp_path):
    results = score.summarise([score._result(case(), TRUTH, report(finding("jitter")))])
    table.write(results, tmp_path / "results.json")
    assert table.read(tmp_path / "results.json") == json.loads(json.dumps(results))


def test_every_kind_of_fault_has_accepted_rules():
    assert set(score.accepted_rules()) == set(KINDS)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_set_is_as_large_and_varied_as_the_lab_promises(seed):
    cases = all_cases(seed)
    faults = [one for one in cases if not one.is_control]
    assert len({one.id for one in cases}) == len(cases)
    assert len(faults) >= 60
    assert len({one.kind for one in faults}) >= 12
    assert len({one.faulty.strategy for one in faults}) >= 4
    assert {2, 3, 4, 8} <= {one.faulty.ranks for one in cases}
    assert len(cases) - len(faults) >= 40
    assert {one.faulty.strategy for one in cases} == set(STRATEGIES)


def test_seeds_move_places_and_same_seed_gives_the_same():
    def places(seed):
        return [(one.place, one.strength) for one in all_cases(seed)]

    assert places(1) == places(1)
    assert places(1) != places(2)
    ranks = Counter(one.place.ranks for one in all_cases(1) if len(one.place.ranks) == 1)
    assert len(ranks) >= 4


def test_a_fault_changes_the_run_and_a_control_does_not():
    for one in all_cases(1):
        assert (one.healthy == one.faulty) is one.is_control, one.id


def test_quick_is_a_small_subset():
    quick = {one.id for one in quick_cases(1)}
    assert 6 <= len(quick) <= 10
    assert quick <= {one.id for one in all_cases(1)}


def test_a_case_survives_its_record(tmp_path: Path):
    for one in all_cases(2):
        one.write(tmp_path)
        assert lab_case.read(tmp_path) == one


def test_run_configuration_survives_json_and_rejects_nonsense():
    job = JOB.but(links={2: LinkShape(500, 500, delay_ms=1.0)}, time_scale={1: 1.5})
    assert from_json(job.to_json()) == job
    with pytest.raises(ValueError, match="multiple of"):
        RunConfig(ranks=3, ranks_per_host=2)
    with pytest.raises(ValueError, match="none of"):
        RunConfig(strategy="dpp")
    with pytest.raises(ValueError, match="add up"):
        RunConfig(strategy="pp", stage_layers=(1, 1))


@pytest.mark.parametrize(
    ("recorded", "disturbance"), [(None, 152 / 150 - 1), (151, 152 / 150 - 1), (180, 0.2)]
)
def test_disturbance_compares_steps_that_should_be_alike(
    recorded: int | None, disturbance: float
) -> None:
    truth = Truth((150, 152), (100, 101), recorded)
    assert truth.disturbance == pytest.approx(disturbance)
