"""Interval algebra against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.contention import exclusive_ns
from advisor.metrics.timeline.intervals import Intervals, last_holding
from advisor.metrics.timeline.timeline import SYNC, Timeline

Pair = tuple[int, int]
pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def build(spans: list[Pair]) -> Intervals:
    return Intervals.of([s for s, _ in spans], [e for _, e in spans])


def moments(spans: list[Pair]) -> set[int]:
    return {t for s, e in spans for t in range(s, e)}


@given(pairs, pairs)
def test_algebra_agrees_with_sets_of_nanoseconds(one: list[Pair], two: list[Pair]) -> None:
    a, b = build(one), build(two)
    x, y = moments(one), moments(two)
    for found, expected in ((a | b, x | y), (a & b, x & y), (a - b, x - y), (a, x)):
        covered = {t for s, e in zip(found.start, found.end, strict=True) for t in range(s, e)}
        assert covered == expected
        assert found.length == len(expected)
        # Disjoint, sorted, not even touching.
        assert (found.start[1:] > found.end[:-1]).all()


@given(pairs, st.lists(st.tuples(st.integers(-5, 70), st.integers(-5, 70)), min_size=1, max_size=6))
def test_covered_counts_the_part_in_each_window(spans: list[Pair], windows: list[Pair]) -> None:
    built = build(spans)
    found = built.covered([w[0] for w in windows], [w[1] for w in windows])
    assert found.tolist() == [len(moments(spans) & set(range(*w))) for w in windows]
    assert [built.within(*window) for window in windows] == found.tolist()


@given(pairs, st.lists(st.integers(-5, 70), min_size=1, max_size=8))
def test_of_windows_that_overlap_the_last_holds_a_time(
    windows: list[Pair], times: list[int]
) -> None:
    found = last_holding([w[0] for w in windows], [w[1] for w in windows], times)
    holders = [[i for i, (low, high) in enumerate(windows) if low <= t < high] for t in times]
    assert found.tolist() == [max(held, default=-1) for held in holders]


def test_nanoseconds_since_the_epoch_stay_exact() -> None:
    base = 1_790_857_026_123_456_789
    found = Intervals.of([base, base + 2], [base + 1, base + 5])
    assert found.length == 4
    assert found.covered([base], [base + 3]).tolist() == [2]


kinds = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=15
)


@given(kinds, st.tuples(st.integers(-10, 100), st.integers(0, 100)))
def test_any_window_splits_without_remainder(
    spans: list[tuple[int, int, int]], window: Pair
) -> None:
    start = np.array([s for _, s, _ in spans], dtype=np.int64)
    nothing = np.zeros(len(spans), dtype=np.int64)
    line = Timeline(
        0, True, np.array([k for k, _, _ in spans], dtype=np.int64), start,
        start + np.array([d for _, _, d in spans], dtype=np.int64),
        nothing, nothing, nothing, nothing,
    )  # fmt: skip
    low, high = window[0], window[0] + window[1]
    split = {k: int(v[0]) for k, v in Occupancy.of(line).split([low], [high]).items()}
    parts = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
    assert sum(split[part] for part in parts) == split["window_ns"] == window[1]
    by_kind = [moments([(s, s + d) for k, s, d in spans if k == kind]) for kind in range(5)]
    inside = set(range(low, high))
    assert split["comm_ns"] == len(by_kind[1] & inside)
    assert split["hidden_comm_ns"] == len(by_kind[1] & by_kind[0] & inside)
    done = [own for kind, own in enumerate(by_kind) if kind != SYNC]  # waiting is no work
    assert split["idle_ns"] == len(inside - set().union(*done))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=10))
def test_shares_of_a_link_add_up_to_the_time_it_is_used(spans: list[Pair]) -> None:
    start = [s for s, _ in spans]
    end = [s + d for s, d in spans]
    alone = exclusive_ns(start, end)
    assert abs(alone.sum() - Intervals.of(start, end).length) < 1e-6
    assert (alone <= np.array(end) - np.array(start) + 1e-9).all()


@given(pairs, pairs)
def test_shares_of_exposed_time_add_up_to_the_union(spans: list[Pair], within: list[Pair]) -> None:
    """Time that several calls share is split between them, never counted once for each."""
    ordered = [(min(s, e), max(s, e)) for s, e in spans]
    shares = exclusive_ns([s for s, _ in ordered], [e for _, e in ordered], within=build(within))
    assert float(shares.sum()) == pytest.approx(len(moments(ordered) & moments(within)), abs=1e-6)
