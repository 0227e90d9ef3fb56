"""GIVEN a damaged beginning WHEN events follow THEN they are read, and the damage is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import AdvisorError
from advisor.ingest.readers.kineto.beginning import damaged_beginning
from tests.support.traces import LAYOUTS, bare, event, kineto, names, notes, one_line, read

_COUNT = 40
_KEY = '"traceEvents": ['
_DAMAGE = {
    "first byte": ("{", "z"),
    "first byte a quote": ("{", '"'),
    "first byte erased": ("{", "\x00"),
    "first bracket": ("{", "["),
    "letter": (_KEY, '"traceEvxnts": ['),
    "colon": (_KEY, '"traceEvents"; ['),
    "quote": (_KEY, '"traceEvents : ['),
    "bracket": (_KEY, '"traceEvents": {'),
    "bracket erased": (_KEY, '"traceEvents": \x00'),
    "key erased": (_KEY, "\x00" * len(_KEY)),
    "another field": ('"schemaVersion": 1', "\x00" * 18),
}


@pytest.mark.parametrize("kind", _DAMAGE)
@pytest.mark.parametrize("layout", ["kineto", "one_line", "line_each"])
def test_damage_before_the_events(tmp_path: Path, layout: str, kind: str) -> None:
    text = LAYOUTS[layout]([event(number) for number in range(_COUNT)])
    old, new = _DAMAGE[kind]
    assert old in text
    path = tmp_path / "rank0.json"
    path.write_text(text.replace(old, new, 1))
    store = read(path)
    assert names(store) == [f"kernel_{number}" for number in range(_COUNT)]
    assert "damaged at its beginning" in notes(store)
    assert store.con.execute("SELECT complete FROM rank").fetchall() == [(False,)]


@pytest.mark.parametrize("size", [16, 100, 1_000])
def test_a_zeroed_beginning(tmp_path: Path, size: int) -> None:
    text = kineto([event(number) for number in range(_COUNT)])
    path = tmp_path / "rank0.json"
    path.write_text("\x00" * size + text[size:])
    store = read(path)
    found = names(store)
    assert found == [f"kernel_{number}" for number in range(_COUNT - len(found), _COUNT)]
    assert len(found) > _COUNT - 8
    assert "damaged at its beginning" in notes(store)


_EVENTS = bare([event(0), event(1)])


@pytest.mark.parametrize(
    "text",
    [
        '{"data": {"traceEvents": ' + _EVENTS + "}}",
        '{"traceEvents": {"a": ' + _EVENTS + "}}",
        '{"samples": ' + _EVENTS + "}",
        "[rank0] starting\n" + one_line([event(0), event(1)]),
        "# How a trace looks\n\nSome words about the format.\n" + _EVENTS,
        '{"a": 1}\n{"b": 2}\n',
        "\x00" * 100 + '{"a": [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]}',
    ],
)
def test_what_is_no_damaged_trace(tmp_path: Path, text: str) -> None:
    assert damaged_beginning(text.encode()) is None
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(AdvisorError):
        read(path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_traces_are_not_damaged(layout: str) -> None:
    assert damaged_beginning(LAYOUTS[layout]([event(0), event(1)]).encode()) is None
    assert damaged_beginning(_EVENTS.encode()) is None


def test_nested_objects_of_the_first_event_are_no_list_of_events(tmp_path: Path) -> None:
    """GIVEN the list's and the first event's brackets lost THEN its arguments are not read."""
    inner = [event(number, name="nested") for number in range(3)]
    text = one_line([event(number, args={"list": inner}) for number in range(_COUNT)])
    path = tmp_path / "rank0.json"
    path.write_text(text.replace('": [{"ph": "X", "cat"', '"ph": "X", "cat"', 1))
    assert names(read(path)) == [f"kernel_{number}" for number in range(1, _COUNT)]
