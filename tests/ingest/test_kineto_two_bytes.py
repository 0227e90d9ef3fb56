"""GIVEN two wrong bytes that close an event and a list WHEN the layout tells THEN events go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.traces import dropped, event, kineto, names, read

pytestmark = pytest.mark.slow

_COUNT = 60


@pytest.mark.parametrize("wrong", ["}]", "]}"])
@pytest.mark.parametrize("behind", ['"dur": 0.5,', "\n  },", "\n  },\n"])
def test_two_wrong_bytes_behind_a_comma(tmp_path: Path, behind: str, wrong: str) -> None:
    text = kineto([event(number) for number in range(_COUNT)])
    at = text.index(behind, text.index('"kernel_20"')) + len(behind)
    path = tmp_path / "rank0.json"
    path.write_text(text[:at] + wrong + text[at + 2 :])
    store = read(path)
    kept = {f"kernel_{number}" for number in range(_COUNT) if number not in (20, 21)}
    assert kept <= set(names(store))
    assert 1 <= sum(dropped(store).values()) <= 3
