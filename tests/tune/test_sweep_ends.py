"""How a sweep ends: within its trials, with a failed confirmation, by Ctrl-C, and in whose file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisor import api
from advisor.cli.tune import command
from advisor.config.sweep import Axis
from advisor.config.workload import Workload, load_workload
from advisor.errors import AdvisorError
from advisor.ingest.trial_end import FILE_NAME
from advisor.report.sections.sweep import INCONCLUSIVE
from advisor.tune import run as engine
from advisor.tune import trial as trials
from advisor.tune.budget import Budget
from advisor.tune.job import Limits
from advisor.tune.page import _cause, build_store
from advisor.tune.predictions import from_trace
from advisor.tune.prepare import prepare
from advisor.tune.recommend import recommend, write_files
from advisor.tune.reference import ReferenceJob
from advisor.tune.sweep import Sweep
from advisor.tune.trial import TrialResult
from tests.tune.test_sweep import finish, make, play

STEPS_MS = {1.0: 90.0, 5.0: 80.0, 25.0: 100.0}


@pytest.mark.parametrize("trials", [17, 18, 19, 40])
def test_a_budget_of_trials_counts_all_of_them(tmp_path: Path, trials: int) -> None:
    sweep = make(tmp_path, trials=trials)
    purposes = play(sweep, STEPS_MS)
    assert len(purposes) <= trials
    # It is used up where there is something to use it for: two others, two trials each.
    assert purposes.count("search") == min((trials - 15) // 2, 2)


def test_a_budget_that_compares_nothing_is_refused_before_any_trial(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match=r"--budget 16: 16 trials compare nothing") as error:
        make(tmp_path, trials=16)
    assert "17 at least: 3 of the present settings" in error.value.hint


def test_a_sweep_of_one_alternative_keeps_no_time_for_a_second(tmp_path: Path) -> None:
    # Three baselines, one trial and the baseline after it, four rounds of two.
    sweep = make(tmp_path, seconds=3 + 2 + 2 * 4)
    sweep.points = replace(sweep.points, jobs=sweep.points.jobs[:2])
    assert play(sweep, STEPS_MS).count("search") == 1


def play_with_failures(sweep: Sweep, status: str, failing: set[float]) -> None:
    """As ``play``, but what is run again with these caps does not run to its end."""
    while (plan := sweep.next()) is not None:
        cap = float(plan.configuration["bucket_cap_mb"] or 0)
        number = len(sweep.results)
        result = finish(plan, number, STEPS_MS[cap] * 1e6 * (1 + number % 3 * 1e-4))
        result = replace(result, folder=f"{number:04d}")
        if plan.purpose == "confirm-b" and cap in failing:
            result = replace(result, status=status, step_ns=[], message="rank 1 failed: boom\nmore")
        sweep.results.append(result)
        assert len(sweep.results) < 60


@pytest.mark.parametrize(("status", "word"), [("crash", "crashed"), ("hang", "hung")])
def test_winners_that_all_fail_when_run_again_are_said_to_be_unconfirmed_and_why(
    tmp_path: Path, status: str, word: str
) -> None:
    sweep = make(tmp_path)
    play_with_failures(sweep, status, {1.0, 5.0})
    result = recommend(sweep, [])
    assert not result.recommended
    assert result.outcome == "did-not-run-again"
    for setting, share, trial in (("5.0", "20 %", "0008"), ("1.0", "10 %", "0009")):
        assert (
            f"bucket_cap_mb={setting} was {share} faster in the search, but {word} when it was run "
            f"again (rank 1 failed: boom): see {tmp_path}/trials/{trial}/logs."
            in " ".join(result.also)
        )
    assert result.confidence == "rule-of-thumb"
    assert _cause(sweep, result) == INCONCLUSIVE


def test_one_that_fails_when_run_again_is_named_beside_the_one_that_does_not_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make(tmp_path)
    play_with_failures(sweep, "crash", {5.0})
    monkeypatch.setattr(Sweep, "is_real", lambda *_: False)
    result = recommend(sweep, [])
    assert result.outcome == "no-gain"
    assert "bucket_cap_mb=5.0 was 20 % faster in the search, but crashed" in " ".join(result.also)


SOURCE = """\
# our job, see the wiki
name: w   # short
strategy: ddp

bucket_cap_mb: 0.5   # somebody set this long ago
learning_rate: 3e-4
model: {preset: tiny}  # the smallest
"""


def test_the_patched_workload_keeps_the_users_comments_and_order(tmp_path: Path) -> None:
    source = tmp_path / "job.yaml"
    source.write_text(SOURCE)
    sweep = make(tmp_path)
    sweep.job = ReferenceJob(load_workload(source).with_settings({"timed_steps": 15}), source)
    play(sweep, STEPS_MS)
    write_files(sweep, recommend(sweep, []), tmp_path)
    note, text = (tmp_path / "workload.yaml").read_text().split("\n", 1)
    assert note.startswith("# advisor tune: Set bucket_cap_mb=5")
    expected = SOURCE.replace("bucket_cap_mb: 0.5 ", "bucket_cap_mb: 5.0 ")
    assert text == expected
    assert load_workload(tmp_path / "workload.yaml").bucket_cap_mb == 5.0


def test_a_file_that_has_changed_since_is_not_patched(tmp_path: Path) -> None:
    source = tmp_path / "job.yaml"
    source.write_text(SOURCE + "colour: red\n")
    sweep = make(tmp_path)
    sweep.job = replace(sweep.job, source=source)
    play(sweep, STEPS_MS)
    write_files(sweep, recommend(sweep, []), tmp_path)
    job = load_workload(tmp_path / "workload.yaml")
    assert (job.name, job.bucket_cap_mb) == ("w", 5.0)


def test_a_trial_without_a_trace_says_how_it_ended_when_it_is_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a trial that crashed and left three empty logs
    from advisor.profile import launch
    from advisor.profile.failures import LaunchError

    def crash(_job: Workload, folder: Path, _how: Any) -> None:
        for rank in range(3):
            log = folder / "logs" / "r" / "attempt_0" / str(rank) / "stderr.log"
            log.parent.mkdir(parents=True)
            log.write_text("")
        raise LaunchError("rank 1 was killed by SIGSEGV; the others were ended")

    monkeypatch.setattr(launch, "launch", crash)
    folder = tmp_path / "0003"
    result = trials.run_trial(
        ReferenceJob(Workload(name="w")), {}, folder,
        number=3, is_baseline=False, purpose="search", limits=Limits(1),
    )  # fmt: skip
    assert json.loads((folder / FILE_NAME).read_text())["status"] == result.status == "crash"
    # WHEN somebody wants it diagnosed THEN that is what they hear
    with pytest.raises(AdvisorError) as error:
        api.load(folder)
    assert str(error.value) == (
        f"{folder}: trial 3 of a sweep crashed and recorded nothing: rank 1 was killed by SIGSEGV; "
        f"the others were ended\n  what its ranks wrote is in {folder / 'logs'}"
    )


@pytest.mark.slow
def test_empty_logs_of_our_own_ranks_are_no_loss_but_an_empty_trace_is(
    tmp_path: Path, fixtures_dir: Path
) -> None:
    folder = tmp_path / "0000"
    shutil.copytree(fixtures_dir / "gpt2-tiny-ddp-2", folder)
    for name in ("job.json", "launcher-0.log", "r/attempt_0/0/stdout.log"):
        path = folder / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if name == "job.json" else "")
    (folder / "nccl.log").write_text("")
    (folder / "rank2.json").write_text("")
    with api.load(folder) as run:
        notes = run.report.runs[0].notes
    unread = [note.values for note in notes if note.code == "file-not-read"]
    assert unread == [
        {"path": str(folder / name), "reason": "empty file"} for name in ("nccl.log", "rank2.json")
    ]


def ended_well(configuration: Any, values: dict[str, Any]) -> TrialResult:
    """A trial of 15 steps of 100 ms, as the arguments of ``run_trial`` name it."""
    return TrialResult(
        number=values["number"], configuration=configuration, purpose=values["purpose"],
        is_baseline=values["is_baseline"], status="ok", step_ns=[100_000_000] * 15,
        tokens_per_step=512, folder="none", seconds=1.0,
    )  # fmt: skip


@pytest.mark.slow
def test_ctrl_c_between_two_trials_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_trial(_workload: Any, configuration: Any, _folder: Path, **values: Any) -> TrialResult:
        if values["number"] == 2:
            raise KeyboardInterrupt
        return ended_well(configuration, values)

    monkeypatch.setattr(engine, "run_trial", run_trial)
    done = CliRunner().invoke(
        command, ["--sweep", "-o", str(tmp_path / "s"), "-q"], standalone_mode=False
    )
    assert done.return_value == 130
    assert done.stderr.endswith(
        "advisor: stopped by SIGINT; finished trials: 2\n"
        "  the same command with --resume goes on from there\n"
    )


def test_variables_that_won_are_in_env_sh_as_a_shell_reads_them(tmp_path: Path) -> None:
    # GIVEN a variable whose winning value a shell would cut, and one that wins by being unset
    axes = [
        Axis(setting="env.GLOO_SOCKET_IFNAME", values=["lo;x 'y"]),
        Axis(setting="env.OMP_NUM_THREADS", values=[None]),
    ]
    sweep = prepare(
        Workload(name="w"), axes, tmp_path, {"OMP_NUM_THREADS": "9"},
        Budget(timeout_s=1),
    )  # fmt: skip
    while (plan := sweep.next()) is not None:
        won = sum(value != sweep.start[name] for name, value in plan.configuration.items())
        sweep.results.append(finish(plan, len(sweep.results), (100 - 20 * won) * 1e6))
        assert len(sweep.results) < 60
    write_files(sweep, recommend(sweep, []), tmp_path)
    script = '. ./env.sh; printf "%s|%s" "$GLOO_SOCKET_IFNAME" "${OMP_NUM_THREADS-unset}"'
    done = subprocess.run(
        ["sh", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "9"},
    )  # fmt: skip
    assert done.stdout == "lo;x 'y|unset"


@pytest.mark.slow
@pytest.mark.parametrize("trial_ends", [True, False])
def test_a_folder_removed_while_the_sweep_runs_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial_ends: bool
) -> None:
    def run_trial(_workload: Any, configuration: Any, folder: Path, **values: Any) -> TrialResult:
        if values["number"] == 1:
            shutil.rmtree(tmp_path / "s")
            if not trial_ends:
                (folder / "job.json").write_text("{}")
        return ended_well(configuration, values)

    monkeypatch.setattr(engine, "run_trial", run_trial)
    with pytest.raises(AdvisorError) as error:
        CliRunner().invoke(
            command,
            ["--sweep", "-o", str(tmp_path / "s"), "-q"],
            standalone_mode=False,
            catch_exceptions=False,
        )
    assert str(error.value) == (
        f"{tmp_path}/s: trials.jsonl was removed while the sweep ran; its results are lost\n"
        "  leave the sweep's folder alone until it ends, and begin again"
    )
    # AND no journal without a beginning is left in its place
    assert not (tmp_path / "s" / "trials.jsonl").exists()


def test_traces_that_somebody_removed_are_named_as_removed(tmp_path: Path) -> None:
    sweep = make(tmp_path)
    play(sweep, STEPS_MS)
    with pytest.raises(AdvisorError, match="traces of the present settings were removed"):
        build_store(sweep)
    with pytest.raises(AdvisorError, match="it was removed"):
        from_trace(tmp_path, sweep.axes, sweep.start)


def test_the_present_step_is_the_median_of_its_trials(tmp_path: Path) -> None:
    # GIVEN an even number of trials of the present settings WHEN read THEN no upper middle
    sweep = make(tmp_path, trials=17)
    while (plan := sweep.next()) is not None:
        sweep.results.append(finish(plan, len(sweep.results), 1e8 + 1e6 * len(sweep.results)))
    steps = [result.median_ns for result in sweep.results if result.is_baseline]
    while len(steps) % 2:
        del sweep.results[max(i for i, r in enumerate(sweep.results) if r.is_baseline)]
        steps = [result.median_ns for result in sweep.results if result.is_baseline]
    middle = sorted(steps)[len(steps) // 2 - 1 : len(steps) // 2 + 1]
    assert middle[0] < middle[1]
    assert recommend(sweep, []).baseline_step_ns == round(sum(middle) / 2)


def test_a_space_of_the_present_value_alone_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError) as error:
        prepare(Workload(name="w", bucket_cap_mb=25), [Axis(setting="bucket_cap_mb", values=[25])],
                tmp_path, {}, Budget(timeout_s=1))  # fmt: skip
    assert (
        error.value.message == "nothing to vary: bucket_cap_mb with nothing but the present value"
    )
