"""Which request a backend's span serves, when either of the two may be missing from the recording.

A backend takes a request as soon as one of its threads is free, so that a true pair is told by its
delay: from the later of the request and the end of the thread's span before to this span's start.
The pairing in order with the smallest sum of delays wins; leaving both sides of a pair out costs as
much as a delay that nothing explains. A lost request or span shifts nothing else then.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

# A pair is worth a delay of this many ns, or of so many typical ones where those are longer.
_DELAY_NS = 2_000_000
_TYPICAL = 4
# So many late pairs in a row speak for a lost request and a lost span of equal numbers.
_IN_A_ROW = 4
# Most requests of one kind and size that may wait at one time.
_QUEUED = 512


def delays(
    requests: Sequence[int] | Int64s, starts: Sequence[int] | Int64s, free: Sequence[int] | Int64s
) -> Int64s:
    """How long each span's thread could have begun earlier (ns), span k serving request k."""
    found: Int64s = np.asarray(starts, dtype=np.int64) - np.maximum(
        np.asarray(requests, dtype=np.int64), np.asarray(free, dtype=np.int64)
    )
    return found


def serve(
    requests: Sequence[int], starts: Sequence[int], free: Sequence[int]
) -> list[tuple[int, int]]:
    """Pairs (span number, request number), both ascending.

    ``requests``: when each was made, ascending; ``starts``: when each span began, ascending;
    ``free``: when the span's thread ended what it ran before. All ns on one clock.
    """
    asked = np.asarray(requests, dtype=np.int64)
    began = np.asarray(starts, dtype=np.int64)
    highs = np.searchsorted(asked, began, side="right")
    first = int(np.argmax(highs > 0)) if (highs > 0).any() else len(began)
    if first == len(began):
        return []
    worth = _worth(asked, began, free, highs)
    if len(asked) == len(began) and (asked <= began).all():
        # A loss on both sides delays every pair between the two; a busy machine, single ones.
        late = delays(requests, starts, free) > worth
        if not np.convolve(late, np.ones(_IN_A_ROW), "valid").max(initial=0) >= _IN_A_ROW:
            return [(place, place) for place in range(len(began))]
    pairs = _best(asked, began, np.asarray(free, dtype=np.int64), highs, worth)
    return _filled(pairs, asked, began)


def _worth(asked: Int64s, began: Int64s, free: Sequence[int] | Int64s, highs: Int64s) -> int:
    usable = highs > 0
    late = delays(asked[highs[usable] - 1], began[usable], np.asarray(free, dtype=np.int64)[usable])
    return max(_DELAY_NS, _TYPICAL * int(np.median(late)))


def _best(
    asked: Int64s, began: Int64s, free: Int64s, highs: Int64s, worth: int
) -> list[tuple[int, int]]:
    """The pairing of least cost, by a table of which only the queue's length is kept a row."""
    best = np.zeros(len(asked) + 1, dtype=np.int64)
    taken: list[NDArray[np.bool_]] = []
    kept: list[NDArray[np.bool_]] = []
    lows: list[int] = []
    known = 0
    for row, high in enumerate(map(int, highs)):
        best[known : high + 1] = best[known]
        known = high
        low = max(0, high - _QUEUED)
        before = best[low : high + 1].copy()
        gain = worth - (began[row] - np.maximum(asked[low:high], free[row]))
        diagonal = before[:-1] + gain
        after = before.copy()
        after[1:] = np.maximum(before[1:], diagonal)
        after = np.maximum.accumulate(after)
        taken.append((after[1:] == diagonal) & (gain > 0))
        kept.append(after == before)
        lows.append(low)
        best[low : high + 1] = after
    pairs = []
    row, place = len(began) - 1, known
    while row >= 0 and place > 0:
        place = min(place, int(highs[row]))
        inside = place - lows[row]
        if inside > 0 and taken[row][inside - 1]:
            pairs.append((row, place - 1))
            row, place = row - 1, place - 1
        elif inside <= 0 or kept[row][inside]:
            row -= 1
        else:
            place -= 1
    pairs.reverse()
    return pairs


def _filled(pairs: list[tuple[int, int]], asked: Int64s, began: Int64s) -> list[tuple[int, int]]:
    """Adds what is left between two pairs, where as many spans as requests are: a mere delay."""
    result: list[tuple[int, int]] = []
    span = request = 0
    for to_span, to_request in [*pairs, (len(began), len(asked))]:
        if to_span - span == to_request - request:
            between = list(zip(range(span, to_span), range(request, to_request), strict=True))
            if all(asked[r] <= began[s] for s, r in between):
                result.extend(between)
        if to_span < len(began):
            result.append((to_span, to_request))
        span, request = to_span + 1, to_request + 1
    return result
