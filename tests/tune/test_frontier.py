"""Time against memory says what the verdict says: freed of drift, and only beyond the noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.tune.recommend import recommend
from advisor.tune.sweep import Plan, Sweep
from tests.tune.test_sweep import finish, make


def run_of(folder: Path, *trials: tuple[float, float, float]) -> Sweep:
    """A sweep of (bucket cap, step in ms, memory in MB); a cap of 25 is the present settings."""
    sweep = make(folder)
    for number, (cap, step_ms, memory_mb) in enumerate(trials):
        plan = Plan("baseline" if cap == 25 else "search", {"bucket_cap_mb": cap})
        result = finish(plan, number, step_ms * 1e6)
        sweep.results.append(replace(result, peak_memory_bytes=int(memory_mb * 1e6)))
    return sweep


def test_a_machine_that_slows_down_makes_no_setting_the_fastest(tmp_path: Path) -> None:
    # GIVEN a setting that costs half as much again, run while the machine was twice as fast
    sweep = run_of(
        tmp_path,
        (25, 50, 900), (25, 50, 900), (25, 50, 900), (5, 75, 800), (25, 50, 900),
        (25, 100, 900), (25, 100, 900), (25, 100, 900), (25, 100, 900), (25, 100, 900),
    )  # fmt: skip
    points = {p["settings"]: p for p in recommend(sweep, []).frontier}
    present, other = points["present settings"], points["bucket_cap_mb=5"]
    # THEN its step is one and a half of the median of the present ones, and it is not the fastest
    assert present["step_ns"] == pytest.approx(100e6)
    assert other["step_ns"] == pytest.approx(150e6)
    assert present["fastest"] and not other["fastest"]
    assert present["on_frontier"] and other["on_frontier"], "one is faster, one is smaller"


def test_nothing_is_the_fastest_within_the_noise(tmp_path: Path) -> None:
    # GIVEN 10 % of noise and a trial that was 5 % faster and needs more memory
    sweep = run_of(
        tmp_path,
        (25, 100, 900), (25, 110, 900), (25, 100, 900), (5, 99.6, 950), (25, 110, 900),
        (25, 100, 900),
    )  # fmt: skip
    points = {p["settings"]: p for p in recommend(sweep, []).frontier}
    assert not any(point["fastest"] for point in points.values())
    assert points["present settings"]["on_frontier"]
    assert not points["bucket_cap_mb=5"]["on_frontier"]


def test_memory_that_differs_by_less_than_runs_do_favours_nothing(tmp_path: Path) -> None:
    # GIVEN a setting that needs a thousandth less and takes a fifth longer
    sweep = run_of(
        tmp_path,
        (25, 100, 457), (25, 100, 457), (25, 100.2, 457), (5, 120, 456.6), (25, 100, 457),
    )  # fmt: skip
    points = {p["settings"]: p for p in recommend(sweep, []).frontier}
    assert points["present settings"]["on_frontier"]
    assert not points["bucket_cap_mb=5"]["on_frontier"]
