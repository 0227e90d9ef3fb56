"""The interval of a gain: narrower than that of the step, and what was measured lies in it."""

from __future__ import annotations

import json
import math
from pathlib import Path

from advisor import api
from advisor.whatif.predict import _CHANGE_UNCERTAINTY, _GAIN_UNCERTAINTY, predict
from advisor.whatif.program import Program, Work

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


def _job(work_ns: float, measured_ns: float) -> Program:
    return Program({0: [Work(work_ns)]}, {}, {0: 0.0}, False, measured_ns=measured_ns)


def test_what_a_replay_takes_beyond_the_recording_is_no_sure_gain() -> None:
    """GIVEN steps of 65 ms whose replay takes 84 WHEN a change takes 21 ms of the replay away THEN
    all of it but 2 ms may be the replay's own error; of a replay that fits most of it is sure."""
    lows = []
    for replayed_ms in (84, 65):
        steps = [_job(replayed_ms * 1e6, 65e6)] * 5
        found = predict(steps, lambda step: _job(step.replayed_ns - 21e6, step.measured_ns))
        assert found is not None
        assert math.isclose(found.gain_ns, 21e6)
        lows.append(found.gain_low_ns)
    assert math.isclose(lows[0], 2e6)
    assert lows[1] > 14e6


def test_what_is_not_replayed_to_within_its_own_length_tells_no_gain() -> None:
    """Messages of a ring whose partners are not told follow one another in a replay."""

    def halved(step: Program) -> Program:
        return _job(step.replayed_ns / 2, step.measured_ns)

    beyond, fits = _job(131e6, 65e6), _job(66e6, 65e6)
    assert predict([beyond] * 5, halved) is None
    found = predict([beyond, fits], halved)
    assert found is not None
    assert math.isclose(found.gain_ns, 33e6)
