"""The order of a sweep, its verdicts and its journal, on results whose truth is set."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.cli.tune import parse_budget
from advisor.config.combinations import baseline
from advisor.config.sweep import (
    Axis,
    Configuration,
    default_space,
    load_space,
    on_interface,
)
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import files, strategies
from advisor.report.sections.sweep import INCONCLUSIVE, KEPT
from advisor.tune.budget import CANDIDATES, CONFIRMATION_ROUNDS, Budget, trials_of
from advisor.tune.journal import Journal
from advisor.tune.page import _cause
from advisor.tune.points import Points, comparable
from advisor.tune.prepare import prepare
from advisor.tune.recommend import recommend, write_files
from advisor.tune.search import Search, Tried
from advisor.tune.sweep import Plan, Sweep
from advisor.tune.trial import TrialResult

AXES = [Axis(setting="bucket_cap_mb", values=[1.0, 5.0, 25.0])]


ROUND = 1 + CANDIDATES


def make(folder: Path, *, trials: int | None = None, seconds: float | None = None) -> Sweep:
    return prepare(
        Workload(name="w", bucket_cap_mb=25),
        AXES,
        folder,
        {},
        Budget(trials, seconds, timeout_s=1),
    )


def finish(plan: Plan, number: int, step_ns: float, sitting: int = 0) -> TrialResult:
    return TrialResult(
        number=number,
        configuration=plan.configuration,
        is_baseline=plan.purpose in ("baseline", "confirm-a"),
        purpose=plan.purpose,
        status="ok",
        step_ns=[int(step_ns)] * 15,
        tokens_per_step=100,
        seconds=1.0,
        sitting=sitting,
    )


def play(sweep: Sweep, true_ms: dict[float, float], noise: float = 0.002) -> list[str]:
    rng = np.random.default_rng(7)
    purposes = []
    while (plan := sweep.next()) is not None:
        step = true_ms[float(plan.configuration["bucket_cap_mb"] or 0)] * 1e6
        sweep.results.append(
            finish(
                plan,
                len(sweep.results),
                step * np.exp(noise * rng.standard_normal()),
                sweep.sitting,
            )
        )
        purposes.append(plan.purpose)
        assert len(purposes) < 100
    return purposes


def test_trials_alternate_with_the_baseline_and_the_winner_is_confirmed(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    purposes = play(sweep, {1.0: 90, 5.0: 80, 25.0: 100})
    first = ["baseline"] * 3 + ["search", "baseline"] * 2
    assert purposes[:7] == first
    assert purposes[7:] == ["confirm-a", "confirm-b", "confirm-b"] * CONFIRMATION_ROUNDS
    winner = sweep.winner()
    assert winner is not None
    assert winner[0] == {"bucket_cap_mb": 5.0}
    assert winner[1].share == pytest.approx(0.2, abs=0.01)
    assert winner[1].low <= 0.2 <= winner[1].high


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("kept", range(1, 8))
def test_a_sweep_that_goes_on_keeps_to_its_budget(tmp_path: Path, kept: int, spare: int) -> None:
    """GIVEN a sweep that ended between two trials before its confirmation THEN what goes on has a
    baseline of its own beside each try, and no more trials than were asked for."""
    asked = trials_of(2, 2) + spare
    sweep = make(tmp_path, trials=asked)
    times = {1.0: 90.0, 5.0: 80.0, 25.0: 100.0}
    play(sweep, times)
    del sweep.results[kept:]
    sweep.sitting = 1
    play(sweep, times)
    assert len(sweep.results) <= asked
    assert [one.ratio is not None for one in sweep.tried()] == [True, True]
    assert sweep.winner() is not None


def test_nothing_helps_means_leave_it(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    play(sweep, {1.0: 100.05, 5.0: 99.9, 25.0: 100}, noise=0.01)
    assert sweep.winner() is None
    result = recommend(sweep, [])
    assert not result.recommended
    assert result.outcome == "no-gain"
    assert _cause(sweep, result) == KEPT
    assert [p.name for p in write_files(sweep, result, tmp_path)] == ["recommendation.json"]


def test_a_machine_too_busy_to_see_a_gain_says_so(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    play(sweep, {1.0: 100.05, 5.0: 99.9, 25.0: 100}, noise=0.4)
    result = recommend(sweep, [])
    assert not result.recommended
    assert result.outcome == "noisy"
    assert result.confidence != "measured"
    assert _cause(sweep, result) == INCONCLUSIVE


def test_a_winner_of_the_search_that_loses_in_the_confirmation_is_not_recommended(
    tmp_path: Path,
) -> None:
    sweep = make(tmp_path)
    rng = np.random.default_rng(3)
    while (plan := sweep.next()) is not None:
        lucky = plan.purpose == "search" and plan.configuration["bucket_cap_mb"] == 5.0
        step = 80e6 if lucky else 100e6
        step *= float(np.exp(0.002 * rng.standard_normal()))
        sweep.results.append(finish(plan, len(sweep.results), step))
        assert len(sweep.results) < 100
    assert sweep.winner() is None
    assert any(result.purpose == "confirm-b" for result in sweep.results)


def test_a_workload_that_does_not_run_ends_at_once(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    while (plan := sweep.next()) is not None:
        sweep.results.append(
            TrialResult(
                number=len(sweep.results),
                configuration=plan.configuration,
                is_baseline=True,
                purpose=plan.purpose,
                status="crash",
                message="rank 1 failed: boom",
            )
        )
    assert len(sweep.results) == 2
    result = recommend(sweep, [])
    assert result.outcome == "does-not-run"
    assert result.why == "rank 1 failed: boom"


def test_alternatives_that_all_failed_are_not_called_no_gain(tmp_path: Path) -> None:
    # GIVEN present settings that run, and alternatives of which none does
    sweep = make(tmp_path)
    while (plan := sweep.next()) is not None:
        result = finish(plan, len(sweep.results), 100e6 + len(sweep.results))
        if plan.purpose == "search":
            number = len(sweep.results)
            result = replace(result, status="oom", step_ns=[], folder=f"{number:04d}")
        sweep.results.append(result)
        assert len(sweep.results) < 100
    result = recommend(sweep, [])
    # THEN the verdict claims no measurement, and says where the reason is
    assert result.outcome == "none-ran"
    assert "2 out of memory" in result.verdict
    assert f"{tmp_path}/trials/0003/logs and those after it" in result.why
    assert result.confidence != "measured"
    assert _cause(sweep, result) == INCONCLUSIVE


def test_time_is_kept_for_the_confirmation(tmp_path: Path) -> None:
    sweep = make(tmp_path, seconds=4 + ROUND * CONFIRMATION_ROUNDS + 2)
    purposes = play(sweep, {1.0: 90, 5.0: 80, 25.0: 100})
    assert purposes.count("search") == 1
    assert purposes.count("confirm-b") == CONFIRMATION_ROUNDS
    assert sum(r.seconds for r in sweep.results) <= sweep.seconds


def test_only_clear_losers_of_the_search_are_stopped_and_they_still_count(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    plan = Plan("search", {"bucket_cap_mb": 5.0})
    # GIVEN no baselines THEN nothing is known to lose against
    assert sweep.stop_above_cost(plan) is None
    # GIVEN baselines of 100 and a best trial of 80
    for step in (100e6, 100e6, 100e6):
        sweep.results.append(finish(Plan("baseline", sweep.start), len(sweep.results), step))
    sweep.results.append(finish(plan, 3, 80e6))
    sweep.results.append(finish(Plan("baseline", sweep.start), 4, 100e6))
    # THEN search trials lose from 5 % above the best on; confirmations run to their end
    limit = sweep.stop_above_cost(Plan("search", {"bucket_cap_mb": 1.0}))
    assert limit == pytest.approx(80e6 / 100 * 1.05, rel=1e-6)
    assert sweep.stop_above_cost(Plan("confirm-b", plan.configuration)) is None
    # WHEN a trial was stopped THEN the search knows its ratio
    stopped = finish(Plan("search", {"bucket_cap_mb": 1.0}), 5, 130e6)
    sweep.results.append(replace(stopped, status="stopped early", step_ns=[int(130e6)] * 5))
    assert sweep.tried()[-1].ratio == pytest.approx(1.3, rel=1e-6)


def test_a_budget_too_small_for_any_trial_is_not_called_no_gain(tmp_path: Path) -> None:
    sweep = make(tmp_path, seconds=5)
    assert set(play(sweep, {1.0: 90, 5.0: 80, 25.0: 100})) == {"baseline"}
    assert recommend(sweep, []).outcome == "too-short"
    assert _cause(sweep, recommend(sweep, [])) == INCONCLUSIVE


@pytest.mark.parametrize(
    ("text", "trials", "seconds"),
    [("8", 8, None), ("90s", None, 90.0), ("5m", None, 300.0), ("0.5h", None, 1800.0)],
)
def test_budgets_are_trials_or_time(text: str, trials: int | None, seconds: float | None) -> None:
    assert parse_budget(text) == (trials, seconds)


@pytest.mark.parametrize("text", ["0", "", "five", "5 d", "-3", "0.5", "2.0"])
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(AdvisorError, match="neither trials nor time"):
        parse_budget(text)


def test_time_left_counts_the_confirmation_and_keeps_to_the_budget(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    assert sweep.left_s is None
    sweep.results.append(finish(Plan("baseline", sweep.start), 0, 100e6))
    # Two more baselines, two trials each beside a baseline, four rounds; one second each.
    assert sweep.left_s == 2 + 2 * 2 + ROUND * CONFIRMATION_ROUNDS
    sweep.seconds = 14.0
    assert sweep.left_s == 13.0
    # Nothing is left where the time holds no comparison: the sweep ends here.
    sweep.seconds = 6.0
    assert sweep.left_s == 0.0


def test_files_of_a_winner(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    play(sweep, {1.0: 90, 5.0: 80, 25.0: 100})
    written = write_files(sweep, recommend(sweep, []), tmp_path)
    assert {p.name for p in written} == {
        "recommendation.json", "env.sh", "workload.yaml", "run.sh", "torchrun.sh",
    }  # fmt: skip
    assert "torchrun --standalone --nproc-per-node=2" in (tmp_path / "torchrun.sh").read_text()
    assert "bucket_cap_mb: 5" in (tmp_path / "workload.yaml").read_text()
    assert json.loads((tmp_path / "recommendation.json").read_text())["confidence"] == "measured"


def test_the_torchrun_job_of_another_micro_batch_is_one_that_the_ranks_accept(
    tmp_path: Path,
) -> None:
    # GIVEN a winner whose global batch is held, so that its accumulation follows
    axes = [Axis(setting="micro_batch", values=[2, 4])]
    sweep = prepare(Workload(name="w"), axes, tmp_path, {}, Budget(timeout_s=1))
    while (plan := sweep.next()) is not None:
        step = 80e6 if plan.configuration["micro_batch"] == 2 else 100e6
        sweep.results.append(finish(plan, len(sweep.results), step))
    write_files(sweep, recommend(sweep, []), tmp_path)
    # WHEN a rank reads what to run
    path = tmp_path / "recommended-torchrun" / files.JOB_FILE
    job = Workload.model_validate(json.loads(path.read_text())["workload"])
    # THEN it is the job that won: two ranks, four sequences each, two at a time
    assert (job.micro_batch, job.global_batch) == (2, 8)
    assert strategies.prepare(job)[0].gradient_accumulation == 2


def test_the_journal_survives_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    start: Configuration = {"bucket_cap_mb": 25}
    header = {"workload": "w", "start": start}
    journal = Journal(tmp_path, header, resume=False)
    journal.add(finish(Plan("baseline", start), 0, 1e6))
    journal.add(finish(Plan("search", {"bucket_cap_mb": 1}), 1, 2e6))
    whole = journal.path.read_text()
    journal.path.write_text(whole[:-20])
    again = Journal(tmp_path, header, resume=True)
    assert [r.number for r in again.results] == [0]
    again.add(finish(Plan("search", {"bucket_cap_mb": 1}), 1, 2e6))
    assert len(Journal(tmp_path, header, resume=True).results) == 2


def test_a_journal_of_another_sweep_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, {"workload": "w"}, resume=False)
    with pytest.raises(AdvisorError, match="another workload"):
        Journal(tmp_path, {"workload": "x"}, resume=True)
    with pytest.raises(AdvisorError, match="earlier sweep"):
        Journal(tmp_path, {"workload": "w"}, resume=False)


def test_the_confirmation_decides_between_two_that_the_search_cannot_tell_apart(
    tmp_path: Path,
) -> None:
    # GIVEN a search in which the second best looked better by luck
    sweep = make(tmp_path)
    true = {1.0: 80e6, 5.0: 82e6, 25.0: 100e6}
    while (plan := sweep.next()) is not None:
        cap = float(plan.configuration["bucket_cap_mb"] or 0)
        lucky = plan.purpose == "search" and cap == 5.0
        sweep.results.append(finish(plan, len(sweep.results), 79e6 if lucky else true[cap]))
    # THEN the rounds side by side tell, and the better one is recommended
    assert sweep.candidates()[0].configuration == {"bucket_cap_mb": 5.0}
    winner = sweep.winner()
    assert winner is not None and winner[0] == {"bucket_cap_mb": 1.0}


def test_of_two_that_hold_the_one_whose_pairs_agree_is_recommended(tmp_path: Path) -> None:
    # GIVEN a candidate that gains 18 % in every pair, and one that gains 5 to 37 %, 21 % on average
    sweep = make(tmp_path)
    rounds = iter([(74e6, 82e6), (89e6, 82e6), (88e6, 82e6), (65e6, 82e6)])
    now: dict[float, float] = {}
    while (plan := sweep.next()) is not None:
        cap = float(plan.configuration["bucket_cap_mb"] or 0)
        if plan.purpose == "confirm-a":
            now = dict(zip((1.0, 5.0), next(rounds), strict=True))
        step = {1.0: 79e6, 5.0: 82e6, 25.0: 100e6}[cap]
        step = now[cap] if plan.purpose == "confirm-b" else step
        sweep.results.append(finish(plan, len(sweep.results), step))
        assert len(sweep.results) < 60
    winner = sweep.winner()
    assert winner is not None and winner[0] == {"bucket_cap_mb": 5.0}
    assert len([gain for _, gain in sweep.confirmations() if sweep.is_real(gain)]) == 2


def test_a_candidate_that_fails_its_confirmation_does_not_stop_the_other(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    true = {1.0: 90e6, 5.0: 80e6, 25.0: 100e6}
    while (plan := sweep.next()) is not None:
        cap = float(plan.configuration["bucket_cap_mb"] or 0)
        result = finish(plan, len(sweep.results), true[cap])
        if plan.purpose == "confirm-b" and cap == 5.0:
            result = replace(result, status="crash", step_ns=[])
        sweep.results.append(result)
        assert len(sweep.results) < 60
    assert sum(result.status == "crash" for result in sweep.results) == 1
    winner = sweep.winner()
    assert winner is not None and winner[0] == {"bucket_cap_mb": 1.0}


def test_knobs_the_backend_ignores_are_left_out() -> None:
    axes, ignored = default_space("nccl").for_job("gloo", "ddp")
    assert all(axis.setting.startswith("env.NCCL") is False for axis in axes)
    assert any(axis.setting == "env.NCCL_ALGO" for axis in ignored)
    # The strategy of somebody's own experiment is not swept away from; its knobs are.
    axes, _ = default_space("gloo").for_job("gloo", "fsdp1-full")
    assert [a.setting for a in axes] == [
        "sync_every_micro_batch", "prefetch_forward", "micro_batch", "env.GLOO_SOCKET_IFNAME",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_swept_strategy_brings_its_own_knobs_and_no_point_twice(tmp_path: Path) -> None:
    axes, _ = default_space("gloo").for_job("gloo", "ddp")
    sweep = prepare(Workload(name="w"), axes, tmp_path, {}, Budget(trials=95, timeout_s=1))
    points = list(sweep.points)
    by_strategy = Counter(str(point["strategy"]) for point in points)
    # Two ranks, four layers, a global batch of 2 x 4. DDP and its hooks: 6 caps x 2 views x
    # 2 graphs (not with accumulated micro-batches, and not under PowerSGD) x 2 interfaces;
    # FSDP2: (wrapping in 1 x 3 x 3 prefetches, 2 x 2 x 2, 4 x 1) x 2 precisions x 3 batches x 2.
    ddp = 6 * 2 * (2 + 1 + 1) * 2
    fsdp = (9 + 4 + 1) * 2 * 3 * 2
    assert by_strategy == {
        "ddp": ddp, "ddp-fp16": ddp, "ddp-bf16": ddp, "zero1": ddp, "ddp-powersgd": 6 * 2 * 3 * 2,
        "fsdp2": fsdp, "fsdp2-zero2": (3 + 2 + 1) * 2 * 3 * 2, "tp": 4 * 2, "pp": 3 * 2,
    }  # fmt: skip
    assert len(points) == len(sweep.points) == len({repr(point) for point in points})
    assert points[0] == sweep.start
    # A strategy never runs with a knob changed that it ignores.
    for point in points:
        if str(point["strategy"]).startswith("fsdp2"):
            assert point["bucket_cap_mb"] == sweep.start["bucket_cap_mb"]
        else:
            assert point["wrap_layers"] == sweep.start["wrap_layers"]
    # Two ranks leave no room for HSDP or for two kinds of parallelism; nothing is hidden of it.
    assert sweep.fixed == ["shard", "tp", "pp", "find_unused_parameters", "sync_every_micro_batch"]
    assert sweep.points.refused > 0
    # Nor does the search leave the grid, also from a best point of another strategy.
    tried: list[Tried] = []
    while (point := sweep.search.next(tried)) is not None:
        cost = (
            0.9 if point["strategy"] == "fsdp2" else 1.0 - float(point["bucket_cap_mb"] or 0) / 999
        )
        tried.append(Tried(point, cost))
    assert len(tried) == 40
    assert all(item.configuration in points for item in tried)


def test_a_space_in_which_nothing_differs_is_refused_with_the_reason(tmp_path: Path) -> None:
    # GIVEN two caps above the 13 MiB of gradients
    axes = [Axis(setting="bucket_cap_mb", values=[20.0, 25.0])]
    with pytest.raises(AdvisorError, match=r"nothing to vary: .* 1 come to the same job"):
        prepare(Workload(name="w"), axes, tmp_path, {}, Budget(timeout_s=1))


@pytest.mark.slow
def test_four_ranks_have_layouts(tmp_path: Path) -> None:
    axes, _ = default_space("gloo").for_job("gloo", "ddp")
    job = Workload(name="w", world_size=4)
    sweep = prepare(job, axes, tmp_path, {}, Budget(timeout_s=1))
    assert {"hsdp", "tp", "pp", "ddp+tp", "ddp+pp", "fsdp2+tp"} <= {
        str(point["strategy"]) for point in sweep.points.jobs
    }


def test_another_micro_batch_or_layout_keeps_the_global_batch() -> None:
    job = Workload(name="w", world_size=4, micro_batch=4, gradient_accumulation=2)
    held = comparable(job, [Axis(setting="micro_batch", values=[2])])
    assert held.global_batch == 4 * 4 * 2
    # Axes that leave the batch alone leave the workload alone.
    assert comparable(job, AXES) == job


def test_gloo_interfaces_are_swept_in_number_never_in_name() -> None:
    axes = default_space("gloo").axes
    swept = {a.setting: a.values for a in on_interface(axes, "eth1,eth2")}
    assert swept["env.GLOO_SOCKET_IFNAME"] == ["eth1,eth1"]
    assert on_interface(axes, None) == axes


def test_a_large_space_of_variables_is_never_listed() -> None:
    axes, _ = default_space("nccl").for_job("nccl", "ddp")
    start = baseline(axes, Workload(name="w"), {})
    axes = [a for a in axes if a.setting.startswith("env.") or a.setting == "bucket_cap_mb"]
    points = Points.of(axes, {axis.setting: start[axis.setting] for axis in axes})
    assert len(points) > 30_000
    assert len(points.jobs) == 6
    found = Search(axes, points.start, limit=3, points=points).next([])
    assert found is not None and points.holds(found)


def test_a_space_with_mistakes_names_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("axes:\n  - setting: UPPER\n    values: []\n    colour: red\n")
    with pytest.raises(AdvisorError) as error:
        load_space(path)
    assert "space.yaml:2" in str(error.value)
    assert "space.yaml:4" in str(error.value)
