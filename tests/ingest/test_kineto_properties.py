"""Properties of the reader that must hold for any trace, cut or damage."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from advisor.errors import AdvisorError
from advisor.ingest.compression import DEFAULT_LIMITS
from advisor.ingest.readers.kineto.cutter import Cutter, NoEventsError
from advisor.ingest.readers.kineto.repair import Repairer
from advisor.ingest.readers.kineto.reread import Reread, reread_all, reread_chunks
from tests.support.traces import LAYOUTS, names, read

pytestmark = pytest.mark.slow

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
_NAMES = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=30)
_LIKE_EVENTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["nested", "nested },{"]), "ph": st.just("X"), "ts": st.just(1)},
        optional={"args": st.just({"children": [{"ph": "X", "name": "nested"}] * 2})},
    )
    | st.just({"ph": "X", "name": "nested", "ts": 1}),
    max_size=6,
)
_ARGS = _JSON | st.fixed_dictionaries({"list": _LIKE_EVENTS}, optional={"more": _JSON})
_EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.just("X"),
            "ts": st.integers(0, 10**15),
            "name": _NAMES | st.sampled_from(['},{"ph":', '\n  },\n  {"ph"', "]}", "\\", '"']),
        },
        optional={"args": _ARGS, "dur": st.integers(0, 10**9), "cat": _NAMES},
    ),
    max_size=12,
)


def _pieces(data: bytes, size: int) -> Any:
    parts = iter([data[at : at + size] for at in range(0, len(data), size)])
    return lambda: next(parts, b"")


def _all_events(data: bytes, size: int) -> list[dict[str, Any]]:
    """What cutter and repairing reader find together, without the database."""
    cutter = Cutter(_pieces(data, size), DEFAULT_LIMITS)
    found: dict[int, list[Any]] = {}
    starts: list[int] = []
    bad: list[int] = []
    for chunk in cutter.chunks():
        starts.append(chunk.start)
        try:
            found[chunk.number] = json.loads(bytes(chunk.text))
        except ValueError:
            bad.append(chunk.number)
        else:
            whole = b"[" + data[chunk.start : chunk.end] + b"]"
            assert json.loads(whole) == found[chunk.number]
    starts.append(cutter.last_start)

    def read_on(pieces: list[bytes], start: int = 0) -> Repairer:
        return Repairer(iter(pieces), DEFAULT_LIMITS, start=start)

    ending, reread = Reread(), Reread()
    last = list(reread_all(read_on([cutter.last], cutter.last_start), len(starts) - 1, ending))
    again = list(reread_chunks(read_on([data]), starts, bad, reread))
    if len(starts) - 1 in reread.covered:
        last, ending = [], reread
    assert not reread.dropped
    assert not ending.dropped
    assert ending.ended
    for number in reread.covered:
        found.pop(number, None)
    for chunk in (*again, *last):
        found.setdefault(chunk.number, []).extend(chunk.events)
    return [event for number in sorted(found) for event in found[number]]


@given(_EVENTS, st.sampled_from(sorted(LAYOUTS)), st.integers(8, 4000))
def test_cutting_anywhere_loses_nothing(
    events: list[dict[str, Any]], layout: str, size: int
) -> None:
    """GIVEN any events, layout and block size THEN the pieces hold exactly those events."""
    data = LAYOUTS[layout](events).encode()
    assert _all_events(data, size) == json.loads(json.dumps(events), parse_float=str)


@given(_EVENTS, st.sampled_from(sorted(LAYOUTS)), st.data())
def test_no_event_before_the_damage_is_lost(
    events: list[dict[str, Any]], layout: str, data: st.DataObject
) -> None:
    """GIVEN bytes overwritten from some place on THEN all events that end before it are found."""
    text = LAYOUTS[layout](events).encode()
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.binary(max_size=40))
    try:
        cutter = Cutter(_pieces(damaged, 4096), DEFAULT_LIMITS)
    except NoEventsError:
        assert at < text.index(b"traceEvents") + 20
        return
    assert list(cutter.chunks()) == []  # one block: everything is in the remainder
    found = list(Repairer(iter([cutter.last]), DEFAULT_LIMITS).events())
    whole = 0
    for count in range(len(events) + 1):
        start = LAYOUTS[layout](events[:count])
        body = start[: start.rindex("]")].rstrip().encode()
        if count and text.startswith(body) and len(body) <= at:
            whole = count
    expected = json.loads(json.dumps(events[:whole]))
    assert found[:whole] == expected


_PLAIN = {"ph": "X", "ts": 0, "name": ""}
_CHILDREN = {"children": [{"ph": "X", "name": "nested"}] * 2}
_SAME_KEYS = {
    "list": [
        {"name": "nested", "ph": "X", "ts": 1, "args": _CHILDREN},
        {"ph": "X", "name": "nested", "ts": 1},
    ]
}


@given(
    _EVENTS,
    st.sampled_from(sorted(LAYOUTS)),
    st.integers(0, 1 << 16),
    st.sampled_from([b"", *(bytes([byte]) for byte in b'{}[],:"\\x')]),
    st.integers(0, 1),
)
@example(  # the object in the arguments has the keys of an event before it, in their order
    [
        *[_PLAIN] * 3,
        {"ph": "X", "name": "", "ts": 0},
        {"ph": "X", "ts": 0, "args": _SAME_KEYS, "name": ""},
    ],
    "compact",
    433 - 137,
    b"",
    1,
)
def test_nothing_inside_an_event_becomes_one(
    events: list[dict[str, Any]], layout: str, place: int, put: bytes, removed: int
) -> None:
    """GIVEN one byte put in, taken out or changed THEN no object out of arguments is read."""
    text = LAYOUTS[layout](events).encode()
    first = text.index(b"[", text.index(b"traceEvents")) + 1
    at = first + place % (len(text) - first)
    damaged = text[:at] + put + text[at + removed :]
    cutter = Cutter(_pieces(damaged, 1 << 20), DEFAULT_LIMITS)
    assert list(cutter.chunks()) == []
    repairer = Repairer(iter([cutter.last]), DEFAULT_LIMITS)
    found = [event.get("name") for event in repairer.events()]
    own = [event["name"] for event in events]
    assert not [name for name in found if str(name).startswith("nested") and name not in own]


@pytest.mark.usefixtures("both_paths")
@given(st.binary(max_size=300))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_end_in_events_or_one_clear_error(noise: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "first"}, ' + noise)
        try:
            assert names(read(path))[:1] == ["first"]
        except AdvisorError as error:
            raise AssertionError(f"refused: {error}") from error
