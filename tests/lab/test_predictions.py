"""The figures of the predictions' score, on scores whose truth is set; the families make sense."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

from benchmarks.lab.config import RunConfig
from benchmarks.lab.families import Family, families
from benchmarks.lab.grids import grids, point_name
from benchmarks.lab.measure import is_recorded
from benchmarks.lab.predictions import Score, render, summarise


def score(start: int, real: int, predicted: int | None, half_width: int = 5) -> Score:
    return Score(
        family="f",
        traced="a",
        target="b",
        setting="bucket_cap_mb",
        value=1.0,
        start_ns=start,
        real_ns=real,
        traced_step_ns=None if predicted is None else start,
        predicted_ns=predicted,
        low_ns=None if predicted is None else predicted - half_width,
        high_ns=None if predicted is None else predicted + half_width,
        noise=0.01,
    )


def test_errors_signs_and_intervals() -> None:
    # GIVEN one prediction 10 % too high whose effect has the wrong sign, one right, one missing
    wrong, right, none = score(100, 90, 99 + 2), score(100, 110, 111), score(100, 110, None)
    # THEN each figure is what a hand would compute
    assert wrong.error == pytest.approx(101 / 90 - 1)
    assert (wrong.right_sign, wrong.held) == (False, False)
    assert (right.right_sign, right.held) == (True, True)
    assert (none.error, none.right_sign, none.held) == (None, None, None)
    assert score(100, 102, 99).right_sign is None  # too small an effect to have a sign
    row = summarise([wrong, right, none])["summary"]["all"]
    assert (row["questions"], row["answered"], row["right_signs"]) == (3, 2, "1/2")
    assert row["intervals_held"] == 0.5
    assert row["worst_error"] == pytest.approx(101 / 90 - 1, abs=1e-4)
    assert "worst:" in render(summarise([wrong, right, none]))


def test_a_question_differs_from_its_trace_in_what_it_asks_only() -> None:
    fields = {
        "bucket_cap_mb": {"bucket_cap_mb"},
        "link.bandwidth": {"link_mbit"},
        "late_rank": {"time_scale", "loader_ms"},
        "resharding": {"reshard"},
        "prefetch": {"prefetch"},
        "wrap_layers": {"wrap_layers"},
    }
    for family in families():
        for question in family.questions:
            one, other = family.configs[question.traced], family.configs[question.target]
            differing = {name for name in vars(one) if getattr(one, name) != getattr(other, name)}
            assert differing, question
            assert differing <= fields[question.setting], question


def test_a_recording_with_other_settings_than_now_does_not_count(tmp_path) -> None:
    job = RunConfig(ranks=2, time_scale={1: 1.5})
    family = Family("f", {"one": job}, ())
    folder = tmp_path / "f" / "one"
    assert not is_recorded(family, tmp_path)
    folder.mkdir(parents=True)
    (folder / "steps.json").write_text("[]")
    (folder / "config.json").write_text(job.to_json())
    assert is_recorded(family, tmp_path)
    assert not is_recorded(Family("f", {"one": job.but(steady_links=True)}, ()), tmp_path)


def test_three_jobs_two_links_two_strategies_and_each_grid_holds_its_start() -> None:
    found = grids()
    assert len(found) == 3 * 2 * 2
    for grid in found:
        size = math.prod(len(axis.values) for axis in grid.axes)
        assert len(grid.points) == len(grid.family.configs) == size
        assert grid.family.traced == {point_name(grid.start)}
        assert grid.family.traced <= set(grid.points)
