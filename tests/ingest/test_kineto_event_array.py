"""A bare array of events is known as one wherever an event's phase stands; other lists are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.ingest.detect import detect
from advisor.ingest.readers import kineto
from advisor.ingest.readers.kineto.beginning import is_list_of_events
from advisor.ingest.source import HEAD_BYTES, Source
from tests.support.marks import long
from tests.support.traces import dropped, event, names, read

PROFILE = Path(__file__).parents[2] / "fixtures" / "gpt2-tiny-ddp-2" / "profile.json"

_COUNT = 20
_METADATA = {
    "args": {"name": "python"},
    "cat": "__metadata",
    "name": "process_name",
    "ph": "M",
    "pid": 1,
    "tid": 0,
    "ts": 0,
}
_TRICKY = {"args": {"text": 'x, } ] {"ph"', "dims": [[2, 3], [], {"a": {}}]}}


def _events(**changes: Any) -> list[Any]:
    return [event(number, **(changes if number == 0 else {})) for number in range(_COUNT)]


_LISTS: dict[str, list[Any]] = {
    "sorted keys": [dict(sorted(made.items())) for made in _events()],
    "arguments with brackets first": [{**_TRICKY, **event(0, **_TRICKY)}, *_events()[1:]],
    "metadata first": [_METADATA, *_events()],
    "long name": [{"name": "n" * 5000, **event(0, name="n" * 5000)}, *_events()[1:]],
    "name longer than the head": [
        {"name": "", **event(0, name='"' * (HEAD_BYTES + 3))},
        *_events()[1:],
    ],
    "two long strings": [
        {"args": {}, **event(0, args={"a": "[{" * HEAD_BYTES, "b": "\\" * HEAD_BYTES})},
        *_events()[1:],
    ],
    "empty first": [{}, *_events()],
    "null first": [None, *_events()],
}


@pytest.mark.parametrize("events", _LISTS.values(), ids=_LISTS)
@pytest.mark.parametrize("indent", [None, *long(1)], ids=["line", "indented"])
def test_a_bare_array_is_read_like_a_field(
    tmp_path: Path, events: list[Any], indent: int | None
) -> None:
    text = json.dumps(events, indent=indent)
    found = []
    for number, whole in enumerate((text, f'{{"traceEvents": {text}}}')):
        path = tmp_path / str(number) / "trace.json"
        path.parent.mkdir()
        path.write_text(whole)
        store = read(path)
        found.append((names(store), dropped(store)))
    assert found[0] == found[1]
    assert len(found[0][0]) == _COUNT


def test_a_bare_array_that_is_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(_LISTS["sorted keys"])[:-30])
    store = read(path)
    assert len(names(store)) == _COUNT - 1
    assert dropped(store) == {"cut off": 1}


_OTHERS: dict[str, Any] = {
    "numbers": [1, 2, 3],
    "results": [{"size": 8, "args": {"ph": "X", "ts": 1}, "busbw": 1.5}] * 3,
    "acidity": [{"sample": {"a": 1}, "ph": 7.2}],
    "words": [{"args": {}, "ph": "acid"}],
    "lists": [[{"args": {}, "ph": "X"}]],
    "strings": ['{"args": {}, "ph": "X"}'],
    "nothing": [{}, None],
}


@pytest.mark.parametrize("value", _OTHERS.values(), ids=_OTHERS)
def test_other_lists_are_none_of_events(value: Any) -> None:
    assert not is_list_of_events(json.dumps(value).encode())


def test_the_text_behind_the_list_and_half_strings_tell_nothing() -> None:
    assert not is_list_of_events(b'[{"a": {}}] [{"a": {}, "ph": "X"}]')
    assert not is_list_of_events(b'[{"a": {}, "text": "[{\\"a\\": {}, ' + b'\\"ph\\": \\"X\\"' * 9)
    assert not is_list_of_events(b'[{"a": "' + b"{" * HEAD_BYTES)


@pytest.mark.parametrize(
    "text",
    [
        '["' + "n" * (2 * HEAD_BYTES) + '", 2, 3]',
        '[{"text": "' + "n" * (2 * HEAD_BYTES) + '"}, {"text": {"ph": "X"}}]',
        '[{"name": "' + "n" * (2 * HEAD_BYTES),
        '[{"name": "' + "\\\\" * HEAD_BYTES + "\\",
    ],
    ids=["strings", "objects", "cut", "backslashes"],
)
def test_other_lists_with_long_strings_are_not_taken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(text)
    assert not kineto.detect(Source.of(path, 0))


def test_no_other_reader_is_asked_of_what_begins_as_torch_profilers_traces_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        def detect(self, source: Source) -> bool:
            raise AssertionError(source.path)

    path = tmp_path / "trace.json"
    path.write_text(" " + json.dumps({"schemaVersion": 1, "traceEvents": _events()}))
    among: Any = [Other(), kineto]
    assert detect(Source.of(path, 0), among) is kineto
    with monkeypatch.context() as patched:  # nor imported
        patched.setattr("advisor.ingest.detect.readers", Other)
        assert detect(Source.of(path, 0)) is kineto
        patched.setattr("advisor.ingest.detect._each", Other)  # nor of what is ours beside it
        assert detect(Source.of(PROFILE, 0)) is None
    path.write_text(json.dumps({"traceEvents": _events(), "schemaVersion": 1}))
    with pytest.raises(AssertionError, match="trace"):
        detect(Source.of(path, 0), among)
