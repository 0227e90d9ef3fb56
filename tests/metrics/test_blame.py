"""Which ranks are compared when files are missing or cut, and what each is to blame for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.match import widest
from advisor.metrics.lateness.blame import arrivals
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Intervals
from advisor.metrics.timeline.timeline import Timeline


def columns(*ranks: str, step: int | None = 0) -> list[Mapping[int, Call]]:
    return [
        {rank: Call(rank, "all_reduce", 0, 1, 0, step=step) for rank in map(int, one)}
        for one in ranks
    ]


def test_a_rank_cut_early_is_left_out() -> None:
    assert widest(columns("0123", *["012"] * 9)) == (0, 1, 2)


def test_steps_that_a_late_cut_lacks_are_left_out() -> None:
    assert widest(columns(*["0123"] * 9, "012")) == (0, 1, 2, 3)


def test_a_rank_whose_host_does_not_run_ahead_is_compared() -> None:
    """The others' recordings begin with calls that they were asked for before."""
    ahead = columns(*["012"] * 9, step=None)
    assert widest([*ahead, *columns("0123")]) == (0, 1, 2, 3)


@given(st.lists(st.frozensets(st.sampled_from("01234"), min_size=2), min_size=1, max_size=20))
def test_no_other_set_seen_shares_more(sets: list[frozenset[str]]) -> None:
    chosen = frozenset(map(str, widest(columns(*("".join(sorted(s)) for s in sets)))))

    def shared(ranks: frozenset[str]) -> int:
        return len(ranks) * sum(other >= ranks for other in sets)

    assert chosen in sets
    assert shared(chosen) == max(shared(one) for one in sets)


@pytest.mark.parametrize("more", [0, 5])
def test_before_the_first_release_the_order_of_a_pipeline_is_no_excess(more: int) -> None:
    """Each stage computes 40 ns a step; the first one is done 10 ns after the next by schedule."""
    none: np.ndarray[tuple[int], np.dtype[np.int64]] = np.empty(0, dtype=np.int64)
    nothing = Intervals.of([], [])
    done = {0: 90, 1: 80, 2: 70}
    calls: list[dict[int, Call]] = [{} for _ in range(5)]
    occupancy: dict[int, Occupancy] = {}
    lines: dict[int, Timeline] = {}
    for rank, at in done.items():
        starts = [100 * step + at + (more if rank == step == 0 else 0) for step in range(5)]
        for step, start in enumerate(starts):
            calls[step][rank] = Call(rank, "all_reduce", start, 100 * step + 99, step, step=step)
        begun = [99 + 100 * step for step in range(4)]
        compute = Intervals.of(begun, [at + 40 for at in begun])
        waiting = Intervals.of([at + 40 for at in begun], starts[1:])
        occupancy[rank] = Occupancy(compute, waiting, waiting, nothing, nothing, compute | waiting)
        lines[rank] = Timeline(rank, True, *[none] * 7)
    found = arrivals("0", calls, occupancy, lines, {})
    assert found is not None
    assert found.excess[0, 0] == more
    assert not found.excess[1:].any()
