"""Alignment of two sequences of signatures by longest common subsequence.

Equal signatures repeat (a DDP step is a run of equal buckets), so that many alignments are
longest; among those the one with the smallest sum of penalties wins, which the caller fills with
how badly two calls' times agree. Scores are integers, so that one more match always beats any
penalty.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_MATCH = 1 << 44
MAX_PENALTY = (1 << 24) - 1
IMPOSSIBLE = _MATCH + 1
"""The penalty of a pair that cannot be one call: worse than to leave both alone."""
# Cells of the alignment's table that are worth their memory (bytes); longer sequences are cut.
_MAX_CELLS = 1 << 26

Penalty = Callable[[int, int, int], NDArray[np.int64]]


def align(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    penalty: Penalty | None = None,
    *,
    strict: bool = False,
) -> list[tuple[int, int]]:
    """Index pairs of the best common subsequence of two sequences of signature numbers.

    ``penalty(i, low, high)`` gives integers in 0..MAX_PENALTY for matching ``first[i]`` with each
    of ``second[low:high]``; where it may give IMPOSSIBLE, ``strict`` looks at sequences that are
    equal as well. Sequences too long for one table are aligned in blocks of equal share
    of the two, which finds every match as long as few events are missing.
    """
    if not strict and len(first) == len(second) and np.array_equal(first, second):
        return [(index, index) for index in range(len(first))]
    if len(first) * len(second) > _MAX_CELLS:
        half, other = len(first) // 2, _cut(first, second)
        left = align(first[:half], second[:other], penalty, strict=strict)
        shifted = None
        if penalty is not None:
            bound = penalty
            shifted = lambda i, low, high: bound(i + half, low + other, high + other)  # noqa: E731
        right = align(first[half:], second[other:], shifted, strict=strict)
        return left + [(i + half, j + other) for i, j in right]
    return _table(first, second, penalty)


def _cut(first: NDArray[np.int64], second: NDArray[np.int64]) -> int:
    """Where to cut ``second`` so that its part fits the first half of ``first``.

    Tried around the middle: the cut after which the following signatures agree longest.
    """
    half, window = len(first) // 2, 256
    guess = half * len(second) // len(first)
    reach = abs(len(first) - len(second)) + window
    best, best_score = guess, -1
    for cut in sorted(
        range(max(0, guess - reach), min(len(second), guess + reach)),
        key=lambda place: abs(place - guess),
    ):
        ahead = min(window, len(first) - half, len(second) - cut)
        score = int((first[half : half + ahead] == second[cut : cut + ahead]).sum())
        if score > best_score:
            best, best_score = cut, score
        if score == window:
            break
    return best


def _table(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    penalty: Penalty | None,
) -> list[tuple[int, int]]:
    columns = len(second)
    previous = np.zeros(columns + 1, dtype=np.int64)
    taken = np.zeros((len(first), columns), dtype=bool)
    kept = np.zeros((len(first), columns + 1), dtype=bool)
    for i, signature in enumerate(first):
        cost = penalty(i, 0, columns) if penalty is not None else 0
        diagonal = np.where(second == signature, previous[:-1] + (_MATCH - cost), -1)
        row = np.empty_like(previous)
        row[0] = 0
        row[1:] = np.maximum(previous[1:], diagonal)
        row = np.maximum.accumulate(row)
        taken[i] = row[1:] == diagonal
        kept[i] = row == previous
        previous = row
    pairs = []
    i, j = len(first) - 1, columns
    while i >= 0 and j > 0:
        if taken[i, j - 1]:
            pairs.append((i, j - 1))
            i, j = i - 1, j - 1
        elif kept[i, j]:
            i -= 1
        else:
            j -= 1
    pairs.reverse()
    return pairs


def align_many(
    sequences: Sequence[NDArray[np.int64]],
    penalty: Callable[[Sequence[tuple[int, int]], int], Penalty] | None = None,
    *,
    strict: bool = False,
) -> list[dict[int, int]]:
    """Columns of a common alignment of several sequences: {sequence number: index in it}.

    The longest sequence comes first; each further one is aligned with the columns so far, and what
    fits none of them becomes a column of its own in its place. ``penalty(columns, other)`` gives
    the penalty between one call (sequence, index) of each column and a sequence (see
    :func:`align`); it is used where the base sequence has every column, and always where it is
    ``strict``.
    """
    order = sorted(range(len(sequences)), key=lambda n: (-len(sequences[n]), n))
    base = order[0]
    columns: list[dict[int, int]] = [{base: index} for index in range(len(sequences[base]))]
    signatures = [int(value) for value in sequences[base]]
    for other in order[1:]:
        sequence = sequences[other]
        cost = None
        if penalty is not None and (strict or len(columns) == len(sequences[base])):
            cost = penalty([next(iter(column.items())) for column in columns], other)
        pairs = align(np.asarray(signatures, dtype=np.int64), sequence, cost, strict=strict)
        merged: list[dict[int, int]] = []
        merged_signatures: list[int] = []
        column = index = 0
        for to_column, to_index in [*pairs, (len(columns), len(sequence))]:
            for place in range(column, to_column):
                merged.append(columns[place])
                merged_signatures.append(signatures[place])
            for place in range(index, to_index):
                merged.append({other: place})
                merged_signatures.append(int(sequence[place]))
            if to_column < len(columns):
                columns[to_column][other] = to_index
                merged.append(columns[to_column])
                merged_signatures.append(signatures[to_column])
            column, index = to_column + 1, to_index + 1
        columns, signatures = merged, merged_signatures
    return columns
