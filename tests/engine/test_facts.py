"""Which steps count, and how much two measurements of one run differ."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.engine.facts import read_facts
from advisor.engine.notes import of_inputs
from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict.facts import Shares, read_situation
from tests.engine.helpers import RUN, store_of


def facts_of(**settings: object) -> tuple[object, list[int]]:
    store = store_of(**settings)
    with Sandbox(store, RUN) as sandbox:
        used = [row["step"] for row in sandbox.records("SELECT step FROM used_step ORDER BY 1")]
        facts = read_facts(sandbox)
    store.close()
    return facts, used


def test_warm_up_and_partial_steps_do_not_count() -> None:
    steps = [
        {"rank": [0, 1], "step": [0], "step_ns": 900_000_000},
        {"rank": [0, 1], "step": [1], "step_ns": 300_000_000},
        {"rank": [0, 1], "step": [2, 3, 4, 5, 6], "step_ns": 100_000_000},
        {"rank": 0, "step": [7], "step_ns": 100_000_000, "complete": True},
        {"rank": 1, "step": [7], "step_ns": 50_000_000, "complete": False},
    ]
    facts, used = facts_of(ranks=2, tables={"step": steps})
    assert used == [2, 3, 4, 5, 6]
    assert facts.step_ns == 100_000_000


def test_a_slow_step_in_the_middle_counts() -> None:
    steps = [
        {"rank": [0], "step": [0, 1, 3, 4], "step_ns": 100_000_000},
        {"rank": [0], "step": [2], "step_ns": 400_000_000},
    ]
    _, used = facts_of(ranks=1, tables={"step": steps})
    assert used == [0, 1, 2, 3, 4]


def test_a_step_that_one_rank_lacks_does_not_count() -> None:
    steps = [
        {"rank": [0, 1], "step": [0, 1], "step_ns": 100_000_000},
        {"rank": [0], "step": [2], "step_ns": 100_000_000},
    ]
    _, used = facts_of(ranks=2, tables={"step": steps})
    assert used == [0, 1]


def test_noise_floor_covers_a_against_a() -> None:
    """Medians of two halves drawn from one distribution differ by less in about 95 % of cases."""
    random = np.random.default_rng(3)
    lengths = random.normal(100e6, 4e6, size=16)
    steps = [
        {"rank": 0, "step": step, "step_ns": int(length)} for step, length in enumerate(lengths)
    ]
    facts, _ = facts_of(ranks=1, tables={"step": steps})
    draws = random.normal(100e6, 4e6, size=(4000, 2, 16))
    differences = np.abs(np.diff(np.median(draws, axis=2), axis=1))
    assert facts.noise_ns == pytest.approx(np.quantile(differences, 0.95), rel=0.6)


def test_too_few_steps_take_three_percent() -> None:
    facts, _ = facts_of(ranks=2, steps=2)
    assert facts.noise_ns == pytest.approx(0.03 * facts.step_ns)


def test_what_the_alignment_leaves_is_not_called_agreement_of_the_clocks() -> None:
    store = store_of(ranks=2, clock_residual_ns=150_000)
    with Sandbox(store, RUN) as sandbox:
        notes = of_inputs(store, sandbox, read_facts(sandbox))
    store.close()
    (note,) = [note for note in notes if note.code == "clock-fit"]
    assert note.values == {"residual_ns": 150_000}


def shares_of(pauses: list[tuple[int, int]], ms: int = 150, exposed_ms: int = 4) -> Shares:
    """Of two ranks with seven steps of 100 ms, some of them exposed. In some (rank, step) a rank
    stands still for longer; the other waits for it in the step after."""
    longer = dict.fromkeys(pauses, "idle_ns")
    longer |= {(1 - rank, step + 1): "exposed_comm_ns" for rank, step in pauses}
    rows = []
    for rank in (0, 1):
        for step in range(7):
            exposed_ns = exposed_ms * 1_000_000
            row = {"exposed_comm_ns": exposed_ns, "compute_ns": 100_000_000 - exposed_ns}
            row["idle_ns"] = 0
            if kind := longer.get((rank, step)):
                row[kind] += ms * 1_000_000
            row |= {"window_ns": sum(row.values()), "comm_ns": row["exposed_comm_ns"]}
            rows.append({"rank": rank, "step": step} | row)
    store = store_of(ranks=2, steps=7, tables={"step_breakdown": rows})
    with Sandbox(store, RUN) as sandbox:
        found = read_situation([], sandbox, read_facts(sandbox), []).shares
    store.close()
    assert found is not None
    return found


@pytest.mark.slow
def test_what_came_once_is_no_share_of_the_step_and_what_comes_again_is() -> None:
    assert shares_of([]).exposed == pytest.approx(0.04)
    assert shares_of([(0, 3)]) == shares_of([])
    assert shares_of([(0, 1), (0, 4)]).exposed > 0.1


def test_a_step_that_is_longer_by_what_steps_differ_counts() -> None:
    assert shares_of([(0, 3)], ms=20, exposed_ms=9).exposed > 0.1
