"""Long runs of blanks are nothing odd in valid JSON: no event is lost where they stand."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.traces import LAYOUTS, dropped, event, header, names, one_line, read

pytestmark = pytest.mark.slow

_COUNT = 12
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')
_WIDTHS = st.sampled_from([255, 256, 257, 1023, 1024, 5000])
_SPOTS = st.lists(st.tuples(st.integers(0, 400), _WIDTHS), max_size=4)
_STRINGS = st.lists(st.tuples(st.integers(0, _COUNT - 1), _WIDTHS), max_size=3)


def _spread(text: str, spots: list[tuple[int, int]]) -> str:
    """The same JSON with blanks between some of its tokens (from its first on)."""
    tokens = _TOKENS.findall(text)
    for at, width in spots:
        tokens[at % len(tokens)] += " " * width
    return "".join(tokens)


def _read(text: str) -> tuple[list[str], dict[str, int], bool]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(text)
        store = read(path)
        ((complete,),) = store.con.execute("SELECT complete FROM rank").fetchall()
        return names(store), dropped(store), complete


@pytest.mark.long
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(in_names=_STRINGS, in_keys=_STRINGS, in_args=_STRINGS, spots=_SPOTS, bare=st.booleans())
@example(in_names=[(3, 256)], in_keys=[], in_args=[], spots=[], bare=False)
@example(in_names=[], in_keys=[(3, 256)], in_args=[(4, 1024)], spots=[(200, 256)], bare=False)
def test_valid_json_with_long_runs_of_blanks_reads_whole(
    in_names: list[tuple[int, int]],
    in_keys: list[tuple[int, int]],
    in_args: list[tuple[int, int]],
    spots: list[tuple[int, int]],
    bare: bool,
) -> None:
    events = [event(number) for number in range(_COUNT)]
    for number, width in in_names:
        events[number]["name"] += " " * width + "x"
    for number, width in in_keys:
        events[number]["args"]["key" + " " * width + "x"] = 1
    for number, width in in_args:
        events[number]["args"]["stack"] = "def f():\n" + " " * width + "return 1"
    whole: Any = events if bare else {**header(), "traceEvents": events}
    found = _read(_spread(json.dumps(whole), spots))
    assert found == ([made["name"] for made in events], {}, True)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_trace_of_several_chunks_keeps_events_with_blanks(layout: Any, tmp_path: Path) -> None:
    events = [event(n, args={"stack": f"f{n}\n" + " " * 300 + "x"}) for n in range(6000)]
    path = tmp_path / "trace.json"
    path.write_text(layout(events))
    store = read(path)
    assert len(names(store)) == 6000
    assert dropped(store) == {}


def test_an_event_with_blanks_stays_where_another_one_is_damaged() -> None:
    events = [event(number) for number in range(_COUNT)]
    events[5]["name"] += " " * 300 + "x"
    events[9]["args"]["stack"] = "def f():\n" + " " * 2000 + "return 1"
    text = one_line(events).replace('"name": "kernel_2"', '"name": "kernel_2')
    text = text.replace('"ph": "X", "cat": "kernel", "name": "kernel_7"', '"cat" "kernel_7"')
    expected = [made["name"] for n, made in enumerate(events) if n not in (2, 7)]
    found, lost, complete = _read(text)
    assert (found, sum(lost.values()), complete) == (expected, 2, False)


def test_blanks_that_join_two_events_leave_one_that_is_valid() -> None:
    """GIVEN blanks from one event's name into another's: nothing tells them from a long name."""
    text = one_line([event(number) for number in range(_COUNT)])
    first, last = (text.index(f'kernel_{number}"') + 3 for number in (3, 8))
    found, lost, _ = _read(text[:first] + " " * (last - first) + text[last:])
    assert (len(found), lost) == (_COUNT - 5, {})
