"""Which request a span serves, where the recording lost one of either."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.gloo_requests import serve

_MS = 1_000_000
_ASKED = [10 * _MS * n for n in range(30)]
_BEGAN = [time + 50_000 for time in _ASKED]
_FREE = [0, *(time + 4 * _MS for time in _BEGAN[:-1])]


@pytest.mark.parametrize(("request_lost", "span_lost"), [(7, None), (None, 7), (7, 20), (20, 7)])
def test_a_lost_request_or_span_shifts_nothing(
    request_lost: int | None, span_lost: int | None
) -> None:
    requests = [n for n in range(30) if n != request_lost]
    spans = [n for n in range(30) if n != span_lost]
    found = serve(
        [_ASKED[n] for n in requests], [_BEGAN[n] for n in spans], [_FREE[n] for n in spans]
    )
    both = sorted(set(requests) & set(spans))
    assert [(spans[s], requests[r]) for s, r in found] == [(n, n) for n in both]


def test_a_burst_that_waits_in_the_queue_pairs_in_order() -> None:
    requests = [1_000 * n for n in range(20)]
    began = [100_000 + 5 * _MS * n for n in range(20)]
    free = [-1, *began[1:]]
    assert serve(requests, began, free) == [(n, n) for n in range(20)]


def test_one_thread_that_was_held_up_loses_no_request() -> None:
    began = list(_BEGAN)
    began[5] += 8 * _MS
    assert serve(_ASKED, began, _FREE) == [(n, n) for n in range(30)]


def test_a_busy_machine_that_delays_a_few_threads_loses_no_request() -> None:
    """GIVEN as many spans as requests, three of them in a row begun late THEN they stay theirs."""
    began = list(_BEGAN)
    for late in (11, 12, 13):
        began[late] += 9 * _MS
    free = [0, *(time + 500_000 for time in began[:-1])]
    assert serve(_ASKED, began, free) == [(n, n) for n in range(30)]
