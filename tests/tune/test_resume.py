"""Going on with a sweep: what is compared ran in one sitting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisor.cli.tune import command
from advisor.errors import AdvisorError
from advisor.report.sections.sweep_trials import _settings
from advisor.tune import run as engine
from advisor.tune.journal import Journal
from advisor.tune.recommend import recommend, trial_rows
from advisor.tune.search import Predicted
from advisor.tune.sweep import Plan, Sweep
from advisor.tune.trial import TrialResult
from tests.tune.test_sweep import finish, make

STEPS_MS = {1.0: 90, 5.0: 80, 25.0: 100}
# Three baselines, two trials with one after each, and a whole round of three.
FIRST_ROUND = 3 + 2 * 2 + 3


def sit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, stop_at: int | None, factor: float = 1.0
) -> tuple[Sweep, list[str]]:
    """One sitting on a machine ``factor`` times as slow, ended before trial ``stop_at``."""
    ran: list[str] = []

    def run_trial(_job: Any, configuration: Any, _folder: Path, **given: Any) -> TrialResult:
        if given["number"] == stop_at:
            raise KeyboardInterrupt
        ran.append(given["purpose"])
        cap = float(configuration["bucket_cap_mb"])
        plan = Plan(given["purpose"], configuration)
        noise = 1 + given["number"] % 2 * 1e-4
        finished = finish(plan, given["number"], STEPS_MS[cap] * 1e6 * factor * noise)
        return replace(finished, sitting=given["sitting"])

    monkeypatch.setattr(engine, "run_trial", run_trial)
    sweep = make(folder)
    try:
        engine.run(sweep, resume=True, predict=lambda *_: Predicted(), notify=lambda *_: None)
    except KeyboardInterrupt:
        assert stop_at is not None
    return sweep, ran


@pytest.mark.parametrize("into_the_round", [1, 2])
def test_a_round_that_was_not_finished_is_run_again_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into_the_round: int
) -> None:
    # GIVEN a sweep that was stopped inside its second round; the machine is now half as fast
    sit(tmp_path, monkeypatch, stop_at=FIRST_ROUND + into_the_round)
    sweep, ran = sit(tmp_path, monkeypatch, stop_at=None, factor=2.0)
    # THEN the round begins anew, so that no pair is of two sittings
    assert ran[:3] == ["confirm-a", "confirm-b", "confirm-b"]
    assert len(ran) == 3 * 3
    winner = sweep.winner()
    assert winner is not None
    assert winner[0] == {"bucket_cap_mb": 5.0}
    assert winner[1].share == pytest.approx(0.2, abs=0.001)
    # AND the journal holds every trial once, in order
    kept = Journal(tmp_path, _header(sweep), resume=True).results
    assert [result.number for result in kept] == list(range(FIRST_ROUND + 9))


def test_between_two_rounds_nothing_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sit(tmp_path, monkeypatch, stop_at=FIRST_ROUND)
    _, ran = sit(tmp_path, monkeypatch, stop_at=None)
    assert len(ran) == 3 * 3


@pytest.mark.parametrize("stop_at", [1, 2, 3, 4, 5, 6, 7])
def test_a_search_trial_is_compared_with_its_own_sitting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    # GIVEN a search that was stopped anywhere and goes on where steps take twice as long
    sit(tmp_path, monkeypatch, stop_at=stop_at)
    sweep, ran = sit(tmp_path, monkeypatch, stop_at=None, factor=2.0)
    # THEN the present settings run before anything else of the sitting
    assert ran[0] in ("baseline", "confirm-a")
    # AND every ratio is the true one, and the jump between the sittings is no noise
    ratios = {item.configuration["bucket_cap_mb"]: item.ratio for item in sweep.tried()}
    assert ratios == {5.0: pytest.approx(0.8, rel=1e-3), 1.0: pytest.approx(0.9, rel=1e-3)}
    assert sweep.resolution_of(1) == pytest.approx(0.0, abs=1e-3)


def test_the_page_and_the_file_compare_within_one_sitting_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sit(tmp_path, monkeypatch, stop_at=4)
    sweep, _ = sit(tmp_path, monkeypatch, stop_at=None, factor=2.0)
    result = recommend(sweep, [])
    assert result.resumed_at == [4]
    found = {
        one.label: one.step_ns for one in _settings(trial_rows(sweep), 100e6, result.resumed_at)
    }
    # THEN trial 3, the last of its sitting, is 20 % faster than the runs of that sitting
    assert found["bucket_cap_mb=5.0"] == pytest.approx(80e6, rel=1e-3)
    assert found["bucket_cap_mb=1.0"] == pytest.approx(90e6, rel=1e-3)


def test_no_trial_is_stopped_early_by_a_step_of_an_earlier_sitting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []
    sit(tmp_path, monkeypatch, stop_at=5)
    before = Sweep.stop_above_cost

    def stop_above_cost(sweep: Sweep, plan: Plan) -> float | None:
        limits.append(before(sweep, plan))
        return limits[-1]

    monkeypatch.setattr(Sweep, "stop_above_cost", stop_above_cost)
    _, ran = sit(tmp_path, monkeypatch, stop_at=None, factor=2.0)
    # THEN the limit is above the best configuration's step on the machine as it is now
    (limit,) = (value for value, purpose in zip(limits, ran, strict=True) if purpose == "search")
    assert limit is not None
    assert limit > 2.0 * 80e6 / 100


def _header(sweep: Sweep) -> dict[str, Any]:
    return {
        **sweep.job.document(),
        "axes": [axis.model_dump(mode="json") for axis in sweep.axes],
        "start": sweep.start,
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing", "no such folder to resume from"), (".", "holds no sweep to resume")],
)
def test_nothing_to_resume_is_said_and_nothing_is_begun(
    tmp_path: Path, name: str, message: str
) -> None:
    folder = tmp_path / name
    with pytest.raises(AdvisorError, match=message) as caught:
        CliRunner().invoke(
            command, ["--sweep", "--resume", "-o", str(folder)], catch_exceptions=False
        )
    assert caught.value.where == str(folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [0, 20])
def test_a_journal_without_its_first_line_is_refused_and_left_as_it_is(
    tmp_path: Path, left: int
) -> None:
    # GIVEN a sweep whose journal was cut inside its first line, its trials beside it
    journal = Journal(tmp_path, {"start": {"bucket_cap_mb": 25.0}}, resume=False)
    cut = journal.path.read_bytes()[:left]
    journal.path.write_bytes(cut)
    (tmp_path / "trials" / "0000").mkdir(parents=True)
    # WHEN resumed THEN it does not begin from zero among the old trials
    with pytest.raises(AdvisorError, match="has lost its first line"):
        Journal(tmp_path, {"start": {"bucket_cap_mb": 25.0}}, resume=True)
    assert journal.path.read_bytes() == cut


_TRIAL: dict[str, Any] = {
    "number": 0, "configuration": {"bucket_cap_mb": 25.0}, "is_baseline": True,
    "purpose": "baseline", "status": "ok", "step_ns": [5_000_000] * 3, "seconds": 1.5,
}  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        {"step_ns": "abc"},
        {"step_ns": [float("nan")]},
        {"step_ns": [-1]},
        {"step_ns": [1 << 70]},
        {"step_ns": []},
        {"step_ns": None},
        {"objective": [float("inf")]},
        {"losses": [[1]]},
        {"number": "²"},
        {"number": -1},
        {"sitting": 1 << 80},
        {"seconds": float("nan")},
        {"tokens_per_step": 2.5},
        {"status": "fine"},
        {"configuration": [1]},
        {"configuration": {"bucket_cap_mb": {}}},
        {"configuration": {}},
        {"configuration": {"bucket_cap_mb": 25.0, "other": 1}},
        {"unknown": 1},
        {"folder": 7},
    ],
    ids=str,
)
def test_a_journal_with_what_no_trial_gives_is_refused_and_left_as_it_is(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    header = {"start": {"bucket_cap_mb": 25.0}}
    path = Journal(tmp_path, header, resume=False).path
    with path.open("a") as file:
        file.write(json.dumps(_TRIAL) + "\n")
    assert len(Journal(tmp_path, header, resume=True).results) == 1
    with path.open("a") as file:
        file.write(json.dumps(_TRIAL | values) + "\n" + "cut")
    before = path.read_bytes()
    with pytest.raises(AdvisorError, match=r"is not a journal|other settings"):
        Journal(tmp_path, header, resume=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", [b"\xff", b"[" * 100_000, b"[]", b"null", b'{"a":' * 5000])
def test_a_line_of_a_journal_that_is_none_is_refused(tmp_path: Path, line: bytes) -> None:
    path = Journal(tmp_path, {"start": {}}, resume=False).path
    for text in (path.read_bytes() + line + b"\n", line + b"\n"):
        path.write_bytes(text)
        with pytest.raises(AdvisorError, match=r"is not a journal|holds a sweep of another"):
            Journal(tmp_path, {"start": {}}, resume=True)


def test_a_kill_before_the_first_trial_leaves_a_journal_to_begin(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {"start": {}}, resume=False)
    journal.path.write_bytes(journal.path.read_bytes()[:5])
    assert Journal(tmp_path, {"start": {}}, resume=True).results == []
    assert journal.path.read_text() == '{"start": {}}\n'
