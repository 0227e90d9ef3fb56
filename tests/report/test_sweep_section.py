"""The sweep's section: what is drawn agrees with the recommendation, and says what was left out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from advisor.report import render
from advisor.report.figures import Dots
from advisor.report.sections import sweep, sweep_trials
from tests.report.support import RUN, add_everything, make_report, make_store


def page(change: dict[str, object] | None = None) -> str:
    with make_store() as store:
        add_everything(store)
        if change is not None:
            ((text,),) = store.con.execute("SELECT recommendation FROM sweep").fetchall()
            result = {**json.loads(text), **change}
            store.con.execute("UPDATE sweep SET recommendation = ?", [json.dumps(result)])
        return render(make_report(), store, "html")


def section(text: str) -> str:
    found = re.search(r'<section id="sweep".*?</section>', text, re.DOTALL)
    assert found is not None
    return found[0]


def test_trials_effects_pairs_and_frontier_are_shown() -> None:
    text = section(page())
    assert {"trials", "effects", "frontier"} <= set(re.findall(r'id="([a-z]+)"', text))
    assert "bucket_cap_mb=25 moves the step most: 6" in text
    assert re.search(r"NCCL_ALGO=Tree</td><td[^>]*>5.% longer", text)
    assert "with <code>NCCL_ALGO=Tree</code>, beyond each alone" in text
    assert "2 settings trade time against memory" in text


def test_a_variable_that_is_not_set_is_called_unset() -> None:
    assert sweep._plain("env.NCCL_ALGO=None") == "NCCL_ALGO=unset"
    assert sweep._plain("env.NCCL_ALGO='allreduce:ring'") == "NCCL_ALGO=allreduce:ring"


def test_what_was_not_tried_is_listed() -> None:
    assert "7 combinations of the grid" in section(page())
    assert "not tried" not in section(page({"not_tried": []}))


def test_the_best_single_trial_is_no_winner_when_the_sweep_says_leave_it() -> None:
    # GIVEN a trial far below the noise that the confirmation did not bear out
    text = section(page({"recommended": False, "changes": {}, "verdict": "leave it: no gain"}))
    # THEN the picture says what the recommendation says, and marks no trial
    assert "Leave it: no gain" in text
    trials = text[text.index('id="trials"') : text.index('id="effects"')]
    assert "chosen" not in trials


def test_modelled_times_are_never_drawn_among_measured_steps() -> None:
    with make_store() as store:
        add_everything(store)
        for number, (settings, step, own) in enumerate(
            (("{}", 50_000, True), ('{"env.NCCL_ALGO": "allreduce:tree"}', 120_000, False)), 50
        ):
            store.con.execute(
                "INSERT INTO trial VALUES (?, ?, ?, ?, 'ok', 'modelled', NULL, ?, NULL, NULL)",
                [RUN, number, settings, own, step],
            )
        text = section(render(make_report(), store, "html"))
    trials = text[text.index('id="trials"') : text.index('id="effects"')]
    modelled = text[text.index('id="modelled"') :]
    assert "allreduce:tree" not in trials
    assert "NCCL_ALGO=allreduce:tree" in modelled and "2.4 times" in modelled
    assert "Modelled, not measured" in modelled


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (50_010, "none costs more than NCCL's own choice"),
        (51_000, "forcing one costs up to 2 % more than NCCL's own choice"),
        (120_000, "forcing one costs up to 2.4 times NCCL's own choice"),
    ],
)
def test_what_a_modelled_setting_costs_is_told_from_nothing(step: int, said: str) -> None:
    def row(settings: str, step: int) -> dict[str, object]:
        return {
            "trial": 0, "settings": settings, "is_baseline": settings == "{}", "outcome": "ok",
            "step_ns_median": step,
        }  # fmt: skip

    figure = sweep_trials.modelled([row("{}", 50_000), row('{"env.NCCL_ALGO": "Ring"}', step)], "")
    assert figure.title == f"NCCL's settings on the named machine (modelled): {said}"


def test_steps_of_an_emulated_job_are_not_called_measured() -> None:
    with make_store() as store:
        add_everything(store)
        assert ">Measured.<" in render(make_report(), store, "html")
        store.con.execute("UPDATE trial SET origin = 'emulated' WHERE origin = 'measured'")
        text = section(render(make_report(), store, "html"))
    assert "Measured." not in text
    assert "Emulated: layers wait instead of computing, only communication is real." in text


def test_one_setting_alone_is_no_chart() -> None:
    with make_store() as store:
        add_everything(store)
        store.con.execute("DELETE FROM trial WHERE NOT is_baseline")
        found = sweep.build(store, RUN)
    assert found is not None
    assert found.figures[0].drawing is None
    assert found.figures[0].table is not None and found.figures[0].table.rows


def test_drift_of_the_machine_moves_no_dot() -> None:
    # GIVEN a machine that slows from 100 to 200 ms and a setting that always saves a tenth
    def row(number: int, step_ms: float, settings: str = "{}") -> dict[str, object]:
        return {
            "trial": number, "settings": settings, "is_baseline": settings == "{}",
            "outcome": "ok", "origin": "measured", "steps": 15,
            "step_ns_median": step_ms * 1e6, "step_ns_mad": 0.0,
        }  # fmt: skip

    trials = [row(0, 100), row(1, 90, '{"a": 1}'), row(2, 100), row(3, 150), row(4, 200)]
    trials += [row(5, 180, '{"a": 1}'), row(6, 200)]
    figure = sweep_trials.measured(trials, {}, "")
    assert isinstance(figure.drawing, Dots)
    # THEN one dot for it, a tenth below the one of the present settings (150 ms)
    assert [(dot.label, round(dot.step_ns / 1e6)) for dot in figure.drawing.times] == [
        ("present settings (5 trials)", 150), ("a=1 (2 trials)", 135),
    ]  # fmt: skip


def test_a_sweeps_page_is_about_the_sweep_and_claims_no_findings_gain() -> None:
    report = make_report()
    kept = report.verdict.model_copy(
        update={"cause": sweep.KEPT, "title": "Leave it", "savings_ns": None}
    )
    with make_store() as store:
        add_everything(store)
        text = render(report.model_copy(update={"verdict": kept}), store, "html")
    head = text[text.index("<header>") : text.index("</header>")]
    assert "No measurable gain" in head and "can be won back" not in head
    assert text.index('<section id="sweep"') < text.index('<section id="steps"')


def test_without_trials_there_is_no_section() -> None:
    with make_store() as store:
        assert sweep.build(store, RUN) is None


@pytest.mark.slow
def test_the_frontier_says_whether_fresh_pairs_confirmed_it() -> None:
    def points(confirmed: bool) -> dict[str, Any]:
        step = {"step_ns": 90_000_000, "peak_memory_bytes": 800_000_000, "on_frontier": True}
        other = {"step_ns": 91_000_000, "peak_memory_bytes": 700_000_000, "on_frontier": True}
        one = {"settings": "a=1", "fastest": True, "confirmed": confirmed, **step}
        return {"frontier": [one, {"settings": "b=1", **other}]}

    assert "Not confirmed in fresh pairs." not in page(points(True))
    assert "Not confirmed in fresh pairs." in page(points(False))
    alone = {"frontier": [point | {"on_frontier": point["settings"] == "a=1"}
                          for point in points(True)["frontier"]]}  # fmt: skip
    assert 'id="frontier' not in page(alone), "the verdict names what nothing beats"


def test_a_failed_trial_says_why_and_where_its_log_is() -> None:
    with make_store() as store:
        add_everything(store)
        store.con.execute(
            "INSERT INTO trial VALUES "
            "(?, 77, '{\"a\": 1}', false, 'crash', 'measured', 0, NULL, NULL, 'trials/0077/logs')",
            [RUN],
        )
        ((text,),) = store.con.execute("SELECT recommendation FROM sweep").fetchall()
        failure = {"trial": 77, "reason": "rank 1 <b>failed</b>", "log": "trials/0077/logs"}
        result = {**json.loads(text), "failures": [failure]}
        store.con.execute("UPDATE sweep SET recommendation = ?", [json.dumps(result)])
        trials = section(render(make_report(), store, "html"))
    assert "crash: rank 1 &lt;b&gt;failed&lt;/b&gt; (log: trials/0077/logs)" in trials
