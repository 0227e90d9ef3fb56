"""Which ranks are compared when files are missing or cut."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.match import widest


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
