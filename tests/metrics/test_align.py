"""Alignment of signatures: longest, and by time where several are longest."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from advisor.metrics.collectives.align import align, align_many

letters = st.lists(st.integers(0, 3), max_size=14)


def longest(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, by the textbook recurrence."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            same = table[i][j] + 1 if x == y else 0
            table[i + 1][j + 1] = max(same, table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def array(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


@given(letters, letters)
def test_alignment_is_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    pairs = align(array(a), array(b))
    assert len(pairs) == longest(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(p[0] < q[0] and p[1] < q[1] for p, q in itertools.pairwise(pairs))


@given(st.lists(st.integers(0, 2), min_size=2, max_size=20), st.data())
def test_a_missing_call_shifts_nothing_when_times_tell(
    calls: list[int], data: st.DataObject
) -> None:
    gone = data.draw(st.integers(0, len(calls) - 1))
    rest = [i for i in range(len(calls)) if i != gone]

    def penalty(i: int, low: int, high: int) -> NDArray[np.int64]:
        return np.array([abs(rest[j] - i) for j in range(low, high)], dtype=np.int64)

    pairs = align(array(calls), array([calls[i] for i in rest]), penalty)
    assert [(i, rest[j]) for i, j in pairs] == [(i, i) for i in rest]


@given(st.lists(letters, min_size=1, max_size=4))
def test_every_call_is_in_exactly_one_column_and_in_order(sequences: list[list[int]]) -> None:
    columns = align_many([array(s) for s in sequences])
    for number, sequence in enumerate(sequences):
        assert [c[number] for c in columns if number in c] == list(range(len(sequence)))
    for column in columns:
        assert len({sequences[number][index] for number, index in column.items()}) == 1


def test_long_sequences_are_cut_without_losing_matches() -> None:
    generator = np.random.default_rng(1)
    whole = generator.integers(0, 40, 20_000)
    holes = np.delete(whole, [100, 5_000, 5_001, 19_000])
    pairs = align(whole, holes)
    assert len(pairs) >= len(holes) - 4
    assert all(whole[i] == holes[j] for i, j in pairs)
