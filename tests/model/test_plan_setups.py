"""The plan against published training runs (benchmarks/plan_setups.yaml), those held out apart."""

from __future__ import annotations

from benchmarks.plan_setups import document, fit, planned, rank_of_layout, within

SETUPS = document()["setups"]
HELD_OUT = [setup for setup in SETUPS if not setup["fit"]]


def test_every_row_names_its_source() -> None:
    assert len(SETUPS) >= 80
    assert {setup["source"] for setup in SETUPS} <= set(document()["sources"])


def test_mfu_of_held_out_runs_is_within_15_percent_in_four_of_five() -> None:
    assert len(HELD_OUT) >= 40
    assert within(HELD_OUT) >= 0.8


def test_16_thousand_gpus_reach_what_was_published() -> None:
    # 41 % where a plain pipeline of 16 stages with 16 micro-batches would leave half idle
    (llama,) = [s for s in SETUPS if s["gpus"] == 16384]
    assert 0.85 < planned(llama).mfu / llama["mfu"] < 1.15
    assert planned(llama).bubble < 0.12


def test_what_ran_fits_but_for_few() -> None:
    too_large = [setup for setup in SETUPS if not planned(setup).fits]
    assert len(too_large) <= 5
    assert all(planned(s).memory_bytes < 1.25 * planned(s).capacity_bytes for s in too_large)


def test_published_degrees_are_mostly_among_the_first_three() -> None:
    ranks = [rank_of_layout(setup) for setup in HELD_OUT]
    assert sum(rank is not None and rank <= 3 for rank in ranks) / len(ranks) >= 0.6


def test_the_numbers_are_those_of_the_fit() -> None:
    from advisor.model.plan_speed import FITTED

    rows = [s for s in SETUPS if "h100" in s["hardware"] and s["fit"]]
    found = fit(rows)
    assert found.rows == FITTED[90].rows == len(rows)
    assert abs(found.matrices - FITTED[90].matrices) < 0.02
