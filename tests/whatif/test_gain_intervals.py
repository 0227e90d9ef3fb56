"""The interval of a gain: narrower than that of the step, and what was measured lies in it."""

from __future__ import annotations

import json
import math
from pathlib import Path

from advisor import api
from advisor.whatif.predict import _CHANGE_UNCERTAINTY, _GAIN_UNCERTAINTY

_PREDICTIONS = Path(__file__).parents[2] / "benchmarks" / "lab" / "predictions.json"


def test_a_gain_is_known_better_than_the_step(fixtures_dir: Path) -> None:
    with api.load(fixtures_dir / "lab-ddp-slow-rank") as run:
        rows = run.sql(
            "SELECT measured_step_ns - step_ns AS gain, gain_low_ns, gain_high_ns, "
            "measured_step_ns - step_high_ns AS widest_low, "
            "measured_step_ns - step_low_ns AS widest_high FROM whatif"
        )
    assert len(rows) > 0
    assert (rows["widest_low"] < rows["gain_low_ns"]).all()
    assert (rows["gain_low_ns"] < rows["gain"]).all()
    assert (rows["gain"] < rows["gain_high_ns"]).all()
    assert (rows["gain_high_ns"] < rows["widest_high"]).all()


def test_the_width_of_gains_holds_what_the_lab_measured() -> None:
    held = known = 0
    questions = json.loads(_PREDICTIONS.read_text())["predictions"]
    for row in questions:
        predicted = row["traced_step_ns"] - row["predicted_ns"]
        real = row["start_ns"] - row["real_ns"]
        half = math.hypot(
            _CHANGE_UNCERTAINTY * predicted, _GAIN_UNCERTAINTY * row["traced_step_ns"]
        )
        held += abs(predicted - real) <= half
        known += abs(predicted - real) <= half + row["noise"] * row["start_ns"]
    # What the comment beside the constant says.
    assert round(held / len(questions), 2) == 0.93
    assert round(known / len(questions), 2) == 0.99
