"""GIVEN arguments that hold lists of objects that look like events THEN none of them is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.marks import long, thinned
from tests.support.traces import LAYOUTS, dropped, event, names, read

pytestmark = [pytest.mark.usefixtures("both_paths"), pytest.mark.slow]

_MANY = 3_000
_GIANT = 1_500


def _no_indent(events: list[Any], **fields: Any) -> str:
    """Every bracket at the start of a line, so that indentation tells nothing."""
    return json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events, **fields}, indent=0)


_LAYOUTS = LAYOUTS | {"no_indent": _no_indent}


def _nested(count: int, first: str = "name", deep: int = 0) -> list[dict[str, Any]]:
    """Objects like events, whose first key is ``first``; ``deep``: each holds such a list again."""
    made = []
    for number in range(count):
        fields = {"name": f"nested_{number}", "ph": "X", "ts": number, "dur": 1, "cat": "kernel"}
        one: dict[str, Any] = {first: fields[first], **fields}
        if deep:
            one["args"] = {"children": _nested(3, first, deep - 1), "n": number}
        made.append(one)
    return made


def _giant(number: int, count: int, **changes: Any) -> dict[str, Any]:
    return event(number, args={"stream": 7, "list": _nested(count, **changes), "after": [1]})


def _write(folder: Path, text: str) -> Path:
    path = folder / "trace.json"
    path.write_text(text)
    return path


def _kernels(without: int | None = None, count: int = _MANY) -> list[str]:
    return [f"kernel_{number}" for number in range(count) if number != without]


@pytest.mark.long
@pytest.mark.parametrize("layout", _LAYOUTS.values(), ids=_LAYOUTS)
@pytest.mark.parametrize(
    ("first", "deep", "count"), [("name", 0, 9_500), *long(("ph", 0, 9_500), ("ts", 2, 500))]
)
def test_a_giant_event_is_one_event(
    tmp_path: Path, layout: Callable[..., str], first: str, deep: int, count: int
) -> None:
    """GIVEN 0.8 MB of event-like arguments THEN neighbours stay and nothing is dropped."""
    events = [event(number) for number in range(_MANY)]
    events[_GIANT] = _giant(_GIANT, count, first=first, deep=deep)
    store = read(_write(tmp_path, layout(events)))
    assert names(store) == _kernels()
    assert dropped(store) == {}


@pytest.mark.parametrize("at", [0, _MANY - 1])
@pytest.mark.parametrize("layout", ["kineto", "compact"])
def test_a_giant_first_or_last_event(tmp_path: Path, layout: str, at: int) -> None:
    events = [event(number) for number in range(_MANY)]
    events[at] = _giant(at, 9_500)
    store = read(_write(tmp_path, _LAYOUTS[layout](events)))
    assert names(store) == _kernels()
    assert dropped(store) == {}


@pytest.mark.parametrize("layout", thinned(_LAYOUTS.values(), 2), ids=_LAYOUTS)
def test_a_list_among_the_events_is_none(tmp_path: Path, layout: Callable[..., str]) -> None:
    """GIVEN a list item that is itself a list of event-like objects THEN it is one lost item."""
    events: list[Any] = [event(number) for number in range(_MANY)]
    events[_GIANT] = _nested(9_500)
    store = read(_write(tmp_path, layout(events)))
    assert names(store) == _kernels(_GIANT)
    assert dropped(store) == {"not an event": 1}


_DAMAGE = {
    "stray quote before": ('"kernel_1500"', '"kernel"_1500"'),
    "missing quote before": ('"kernel_1500"', '"kernel_1500'),
    "missing opening": ('"list": [', '"list": '),
    "missing opening and object": ('"list": [{', '"list": '),
    "extra opening": ('"list": [', '"list": [['),
    "stray quote inside": ('"nested_700"', '"nested_700""'),
    "missing brace inside": ('{"name": "nested_700"', '"name": "nested_700"'),
    "extra brace inside": ('"nested_700"', '"nested_700"}'),
    "extra bracket inside": ('"nested_700"', '"nested_700"]'),
    "list closed early": ('{"name": "nested_700"', '],{"name": "nested_700"'),
    "garbage inside": ('"nested_700"', "\x00garbage"),
    "missing end": ('], "after": [1]', ', "after": [1]'),
    "missing ends": ('}], "after": [1]', ', "after": [1]'),
}


@pytest.mark.long
@pytest.mark.parametrize("count", [1, *long(720, 9_500)])
@pytest.mark.parametrize("kind", thinned(_DAMAGE, 2))
def test_damage_in_an_event_that_holds_event_like_objects(
    tmp_path: Path, kind: str, count: int
) -> None:
    """GIVEN one line, one damage in such an event THEN it alone is lost, whole."""
    struck = f"nested_{min(700, count - 1)}"
    old, new = (part.replace("nested_700", struck) for part in _DAMAGE[kind])
    events = [event(number) for number in range(_MANY)]
    events[_GIANT] = _giant(_GIANT, count)
    text = LAYOUTS["one_line"](events)
    start = text.index('"kernel_1500"')
    at = text.index(old, start)
    assert at < text.index('"kernel_1501"')
    store = read(_write(tmp_path, text[:at] + new + text[at + len(old) :]))
    found = names(store)
    assert not [name for name in found if name.startswith("nested")]
    assert [name for name in found if name not in ("kernel_1500", "kernel")] == _kernels(_GIANT)
    assert sum(dropped(store).values()) >= 1


@pytest.mark.parametrize("layout", ["kineto", "line_each", "one_line"])
def test_damage_twice_in_such_an_event(tmp_path: Path, layout: str) -> None:
    """GIVEN two damages in the list THEN what lies between is not believed, but counted."""
    events = [event(number) for number in range(_MANY)]
    events[_GIANT] = _giant(_GIANT, 900)
    text = LAYOUTS[layout](events)
    for name in ('"nested_100"', '"nested_500"'):
        text = text.replace(name, name + '"')
    store = read(_write(tmp_path, text))
    assert names(store) == _kernels(_GIANT)
    lost = dropped(store)
    assert lost.pop("malformed event") == 1
    assert set(lost) <= {"object at an unknown depth after damage"}


@pytest.mark.long
@pytest.mark.parametrize("layout", ["kineto", "line_each", "one_line", "compact"])
def test_a_file_cut_inside_such_an_event(tmp_path: Path, layout: str) -> None:
    events = [event(number) for number in range(_MANY)]
    events[_GIANT] = _giant(_GIANT, 9_500)
    text = LAYOUTS[layout](events)
    store = read(_write(tmp_path, text[: text.index('"nested_8000"')]))
    assert names(store) == _kernels(count=_GIANT)
    assert dropped(store) == {"cut off": 1}


@pytest.mark.parametrize("layout", ["kineto", "compact"])
def test_such_an_event_beyond_the_bound(tmp_path: Path, layout: str) -> None:
    """GIVEN one of more than 16 MiB THEN it is dropped whole and its neighbours stay."""
    events = [event(number) for number in range(_MANY)]
    events[_GIANT] = event(_GIANT, args={"list": [*_nested(9_500), {"x": "y" * (17 << 20)}]})
    store = read(_write(tmp_path, _LAYOUTS[layout](events)))
    assert names(store) == _kernels(_GIANT)
    assert dropped(store) == {"event larger than 16 MiB": 1}


def test_damage_elsewhere_leaves_such_an_event_whole(tmp_path: Path) -> None:
    """GIVEN damage in the events before and after THEN the giant and the others stay."""
    events = [event(number) for number in range(_MANY)]
    events[_GIANT] = _giant(_GIANT, 9_500)
    text = LAYOUTS["one_line"](events)
    for number in (10, 1499, 1501, 2500):
        text = text.replace(f'"kernel_{number}"', f'"kernel"_{number}"')
    store = read(_write(tmp_path, text))
    assert names(store) == [
        name
        for name in _kernels()
        if name not in ("kernel_10", "kernel_1499", "kernel_1501", "kernel_2500")
    ]
    assert dropped(store) == {"malformed event": 4}
