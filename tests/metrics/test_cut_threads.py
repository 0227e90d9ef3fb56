"""A cut file: its threads stand one after another, so that some are whole and others are lost."""

from __future__ import annotations

from advisor.metrics.collectives.gloo import _assign, _Request
from advisor.metrics.steps.annotated import Step, Steps


def _request(start: int) -> _Request:
    return _Request("all_reduce", start, 1, 8, 8, "float", None, None)


def _spans(starts: list[int]) -> dict[str, list[object]]:
    count = len(starts)
    return {
        "name": ["gloo:all_reduce"] * count,
        "input_dims": ["[[8]]"] * count,
        "input_types": ['["float"]'] * count,
        "start_ns": list(starts),
        "end_ns": [start + 1 for start in starts],
        "tid": [2] * count,
    }


def test_spans_after_the_programs_last_event_take_no_earlier_request() -> None:
    requests = [_request(time) for time in (10, 30)]
    found = _spans([11, 31, 51, 71])
    of_span = _assign(found, range(4), requests, until=40, complete=False)
    assert {row: request.start for row, request in of_span.items()} == {0: 10, 1: 30}


def test_a_whole_recording_pairs_one_to_one_whatever_came_last() -> None:
    requests = [_request(time) for time in (10, 12, 14)]
    of_span = _assign(_spans([11, 21, 31]), range(3), requests, until=14, complete=True)
    assert [of_span[row].start for row in range(3)] == [10, 12, 14]


def test_steps_that_lost_a_call_are_partial() -> None:
    steps = Steps(tuple(Step(n, 10 * n, 10 * n + 10, None, None, True, "x") for n in range(3)))
    assert [step.complete for step in steps.without([15]).steps] == [True, False, True]
    assert steps.without([]).steps == steps.steps


def test_a_cut_thread_that_asks_gives_spans_after_its_end_no_earlier_request() -> None:
    # One of the backend's threads was lost too, so that there are as many requests as spans.
    requests = [_request(time) for time in (10, 20, 30, 40)]
    of_span = _assign(_spans([11, 31, 61, 81]), range(4), requests, until=40, complete=False)
    assert {row: request.start for row, request in of_span.items()} == {0: 10, 1: 30}
