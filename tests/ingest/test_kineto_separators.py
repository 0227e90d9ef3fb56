"""GIVEN damage in the text between two events THEN both stay, and the damage is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.marks import long
from tests.support.traces import LAYOUTS, dropped, event, header, names, read

pytestmark = pytest.mark.slow

_COUNT, _HIT = 40, 20
_FIELDS = {"other": [{"name": 1}, {"name": 2}], "end": 7}


def _indented(events: list[Any]) -> str:
    return json.dumps({**header(), "traceEvents": events, **_FIELDS}, indent=1)


def _one_line(events: list[Any]) -> str:
    """Behind the events comes a list that is none of events."""
    return json.dumps({**header(), "traceEvents": events, **_FIELDS})


_LAYOUTS: dict[str, Callable[..., str]] = {
    **LAYOUTS,
    "indented": _indented,
    "fields behind": _one_line,
    "bare": json.dumps,
    "bare indented": lambda events: json.dumps(events, indent=2),
}


def _between(text: str, number: int) -> tuple[int, int]:
    """Where the text between an event and the next one begins and ends."""
    start = text.rindex("{", 0, text.index(f'"kernel_{number}"'))
    _, end = json.JSONDecoder().raw_decode(text, start)
    return end, text.index("{", end)


def _read(folder: Path, text: str) -> tuple[list[str], dict[str, int], bool]:
    """Names of the events, what was lost by reason, and whether the rank is complete."""
    path = folder / "trace.json"
    path.write_text(text)
    store = read(path)
    ((complete,),) = store.con.execute("SELECT complete FROM rank").fetchall()
    return names(store), dropped(store), complete


def _expected(*without: int) -> list[str]:
    return [f"kernel_{number}" for number in range(_COUNT) if number not in without]


_STRAY = {"]": "bracket", "],": "and comma", "}]": "object and list", "]]": "two", "]x": "and text"}
_INSTEAD = {"<": "sign", "\0": "zero", '"': "quote", "{": "brace", "[": "opening", "6": "digit"}


def _named(sign: str) -> str:
    return (_STRAY | _INSTEAD).get(sign, "text")


@pytest.mark.long
@pytest.mark.parametrize("layout", _LAYOUTS.values(), ids=_LAYOUTS)
@pytest.mark.parametrize(
    "instead",
    ["]", "}]", '"', *long("{", "<", "],", "]]", "]x", "\0", "[", "6")],
    ids=_named,
)
def test_one_sign_instead_of_the_comma(
    tmp_path: Path, layout: Callable[..., str], instead: str
) -> None:
    text = layout([event(number) for number in range(_COUNT)])
    start, end = _between(text, _HIT)
    damaged = text[:start] + text[start:end].replace(",", instead) + text[end:]
    found, lost, complete = _read(tmp_path, damaged)
    assert found == _expected()
    assert lost in ({"not an event": 1}, {"malformed event": 1})
    assert not complete


@pytest.mark.parametrize("layout", ["kineto", "one_line", "line_each", "indented"])
def test_a_line_of_a_log_between_two_events(tmp_path: Path, layout: str) -> None:
    text = _LAYOUTS[layout]([event(number) for number in range(_COUNT)])
    start, end = _between(text, _HIT)
    line = text[start:end].replace(",", ",\n[W1122 a.cpp:12] Warning: {foo}\n", 1)
    found, lost, _ = _read(tmp_path, text[:start] + line + text[end:])
    assert found == _expected()
    assert set(lost) == {"not an event"}


@pytest.mark.long
@pytest.mark.parametrize("layout", _LAYOUTS.values(), ids=_LAYOUTS)
@pytest.mark.parametrize("place", ["opening", "closing", "last"])
@pytest.mark.parametrize("instead", ["]", *long("[", "x")], ids=_named)
def test_a_bracket_of_an_event_costs_that_event(
    tmp_path: Path, layout: Callable[..., str], place: str, instead: str
) -> None:
    """Nor is a field behind the list read as events."""
    text = layout([event(number) for number in range(_COUNT)])
    hit = _COUNT - 1 if place == "last" else _HIT
    at = _between(text, hit - 1)[1]
    if place != "opening":
        at = json.JSONDecoder().raw_decode(text, at)[1] - 1
    found, lost, complete = _read(tmp_path, text[:at] + instead + text[at + 1 :])
    assert found == _expected(hit)
    assert sum(lost.values()) >= 1
    assert not complete


def test_events_of_their_own_behind_a_bare_array_are_none_of_it(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(event(number)) for number in range(2, 5))
    found, lost, _ = _read(tmp_path, json.dumps([event(0), event(1)]) + "\n" + lines)
    assert found == ["kernel_0", "kernel_1"]
    assert lost == {"event outside the list of events": 3}


def test_events_in_two_layouts_stay_behind_damage(tmp_path: Path) -> None:
    """GIVEN indented events first THEN their indentation does not hide those in one line."""
    text = _indented([event(number) for number in range(10)])
    end = _between(text, 8)[0]
    rest = ", ".join(json.dumps(event(number)) for number in range(9, _COUNT))
    mixed = f"{text[:end]}, {rest}\n ],\n {text[text.index(chr(34) + 'other') :]}"
    found, lost, _ = _read(tmp_path, mixed.replace('"kernel_20"', '"kernel_20'))
    assert found == _expected(20)
    assert lost == {"malformed event": 1}


@pytest.mark.parametrize("layout", _LAYOUTS.values(), ids=_LAYOUTS)
def test_an_event_whose_beginning_became_closing_brackets_is_lost_alone(
    tmp_path: Path, layout: Callable[..., str]
) -> None:
    text = layout([event(number) for number in range(_COUNT)])
    at = _between(text, _HIT - 1)[1]
    key = text.index("ph", at)
    found, lost, complete = _read(tmp_path, text[:at] + "]" * (key - at) + text[key:])
    assert found == _expected(_HIT)
    assert sum(lost.values()) == 1
    assert not complete


def test_events_behind_what_cannot_be_told_from_the_lists_end_are_counted(tmp_path: Path) -> None:
    """GIVEN garbage with quotes and brackets behind a closing one in mid-list."""
    text = _one_line([event(number) for number in range(_COUNT)])
    start, end = _between(text, _HIT)
    found, lost, complete = _read(tmp_path, f'{text[:start]}], {{}} "x" {text[end + 3 :]}')
    assert len(found) + sum(lost.values()) >= _COUNT - 1
    assert not complete
