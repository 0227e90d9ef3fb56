"""GIVEN damage that leaves a list inside an event open THEN what follows the event is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.marks import long
from tests.support.traces import LAYOUTS, dropped, event, header, names, notes, read

pytestmark = pytest.mark.slow

_COUNT = 3_000


def _indented(events: list[Any]) -> str:
    """Each event over several lines, from the line's start on."""
    blocks = ",\n".join(json.dumps(item, indent=2) for item in events)
    return json.dumps(header())[:-1] + ', "traceEvents": [\n' + blocks + "\n]}"


_LAYOUTS = LAYOUTS | {"indented": _indented}


def _text(layout: str) -> str:
    frames = [{"name": "f", "line": 3}, {"name": "g", "line": 4}]
    return _LAYOUTS[layout](
        [event(number, args={"stream": 7, "frames": frames}) for number in range(_COUNT)]
    )


def _boundary(text: str) -> tuple[int, int]:
    """From inside event 100's list up to behind the first key of event 101."""
    name = text.index('"kernel_100"')
    start = text.index("4", text.index("line", text.index('"g"', name))) + 1
    return start, text.index(":", text.index('"ph"', start))


def _expected(*without: int) -> list[str]:
    return [f"kernel_{number}" for number in range(_COUNT) if number not in without]


@pytest.mark.parametrize("instead", [" ", "", "\x00", "x"], ids=["blanks", "cut out", "zeros", "x"])
@pytest.mark.parametrize("layout", ["one_line", "indented", *long("line_each", "compact")])
def test_the_end_of_an_event_and_the_start_of_the_next_are_lost(
    tmp_path: Path, layout: str, instead: str
) -> None:
    text = _text(layout)
    start, end = _boundary(text)
    path = tmp_path / "rank0.json"
    path.write_text(text[:start] + instead * (end - start) + text[end:])
    store = read(path)
    assert names(store) == _expected(100, 101)
    assert sum(dropped(store).values()) in (1, 2)
    assert "cut off" not in dropped(store)
    assert "no end" not in notes(store)
