"""GIVEN a damaged or unusual file WHEN it is ingested THEN what can be read is kept."""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from advisor.errors import AdvisorError
from advisor.ingest.compression import DEFAULT_LIMITS
from advisor.ingest.readers.kineto.json_value import is_deeper
from advisor.ingest.readers.kineto.repair import Repairer
from advisor.ingest.readers.kineto.resync import _MOST_FAILED_BYTES
from tests.support import traces
from tests.support.marks import long, slow, thinned
from tests.support.traces import (
    BASE_NS,
    LAYOUTS,
    compact,
    dropped,
    event,
    kineto,
    names,
    notes,
    read,
)

pytestmark = [pytest.mark.usefixtures("both_paths"), pytest.mark.slow]

_MANY = 3_000  # several chunks in every layout


def _write(folder: Path, content: str | bytes, name: str = "trace.json") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _expected(count: int, *without: int) -> list[str]:
    return [f"kernel_{number}" for number in range(count) if number not in without]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("count", [*long(0), 1, *long(2), _MANY])
def test_layouts(tmp_path: Path, layout: Callable[..., str], count: int) -> None:
    store = read(_write(tmp_path, layout([event(number) for number in range(count)])))
    assert names(store) == _expected(count)
    assert dropped(store) == {}
    rows = store.con.execute("SELECT min(start_ns), max(start_ns), sum(dur_ns) FROM event")
    if count:
        first = BASE_NS + 4_366_672_476_000_125
        assert rows.fetchall() == [(first, first + (count - 1) * 1000, count * 500)]


@pytest.mark.long
@pytest.mark.parametrize("layout", thinned(LAYOUTS.values(), 2), ids=LAYOUTS)
def test_a_file_cut_anywhere_keeps_all_whole_events(
    tmp_path: Path, layout: Callable[..., str]
) -> None:
    text = layout([event(number) for number in range(40)])
    first = text.index('"traceEvents"') + 20
    for cut in range(first, len(text) - 1, 509):
        kept = text[:cut]
        store = read(_write(tmp_path, kept))
        found = names(store)
        # An event is whole when the start of the next one, or the end of the list, was written.
        starts = sum(kept.count(f'"kernel_{number}"') for number in range(40))
        assert len(found) in (starts, starts - 1), cut
        assert found == _expected(len(found))
        assert store.con.execute("SELECT complete FROM rank").fetchall() == [
            ("]" in text[text.rindex("kernel_39") : cut].split("}")[-1],)
        ]


def test_cut_in_the_middle_of_a_long_file(tmp_path: Path) -> None:
    text = kineto([event(number) for number in range(_MANY)])
    store = read(_write(tmp_path, text[: text.index('"kernel_2000"') + 3]))
    assert names(store) == _expected(2000)
    assert dropped(store) == {"cut off": 1}
    assert "cut off" in notes(store)


@pytest.mark.long
@pytest.mark.parametrize(
    "garbage", thinned([b"\x00\x01garbage", b"\n\n\n", b"}]}]", b'{"a": 1}', b"<html>"], 2)
)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_trailing_garbage(tmp_path: Path, layout: Callable[..., str], garbage: bytes) -> None:
    text = layout([event(number) for number in range(_MANY)]).encode()
    assert names(read(_write(tmp_path, text + garbage))) == _expected(_MANY)


_BROKEN = {
    "nan": ('"dur": 0.5', '"dur": NaN', None, {}),
    "infinity": ('"dur": 0.5', '"dur": -Infinity', None, {}),
    "bad escape": ('"kernel_1500"', r'"kernel_1500\Users\x"', r"kernel_1500\Users\x", {}),
    "lone surrogate": ('"kernel_1500"', r'"kernel_1500\ud800"', "kernel_1500\ufffd", {}),
    "control character": ('"kernel_1500"', '"kernel_1500\t\x01"', "kernel_1500\t\x01", {}),
    "nul": ('"kernel_1500"', r'"kernel_1500\u0000"', "kernel_1500\x00", {}),
    "trailing comma": ('"External id": 1500', '"External id": 1500,', "kernel_1500", {}),
    "missing quote": ('"kernel_1500"', '"kernel_1500', "-", {"malformed event": 1}),
    "stray quote": ('"kernel_1500"', '"kernel"_1500"', "-", {"malformed event": 1}),
    "missing brace": ('"External id": 1500', '"External id": 1500}', "kernel_1500", None),
    "raw bytes": ('"kernel_1500"', '"kernel_1500"RAW', "-", {"malformed event": 1}),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", _BROKEN)
@pytest.mark.parametrize("layout", [traces.kineto, *long(traces.one_line, traces.line_each)])
def test_one_broken_event_costs_at_most_itself(
    tmp_path: Path, layout: Callable[..., str], kind: str
) -> None:
    old, new, name, reasons = _BROKEN[kind]
    text = layout([event(number) for number in range(_MANY)])
    at = text.index('"kernel_1500"')
    at = text.index(old, at)
    store = read(_write(tmp_path, text[:at] + new + text[at + len(old) :]))
    found = names(store)
    expected = _expected(_MANY)
    if name == "-":
        expected.remove("kernel_1500")
    elif name is not None:
        expected[1500] = name
    if reasons is None:
        assert set(expected) - {"kernel_1500", "kernel_1501"} <= set(found)
        return
    assert found == expected
    assert dropped(store) == reasons


def test_invalid_utf8_is_replaced_and_noted(tmp_path: Path) -> None:
    text = kineto([event(number) for number in range(_MANY)]).encode()
    store = read(_write(tmp_path, text.replace(b'"kernel_7"', b'"kernel_\xff\xfe7"')))
    found = names(store)
    assert len(found) == _MANY
    assert found[7] == "kernel_\ufffd\ufffd7"
    assert "UTF-8" in notes(store)


def test_utf8_and_bom_are_kept(tmp_path: Path) -> None:
    text = kineto([event(0, name="größe 数 😀"), event(1)])
    store = read(_write(tmp_path, b"\xef\xbb\xbf" + text.encode()))
    assert names(store) == ["größe 数 😀", "kernel_1"]


def test_a_bare_array(tmp_path: Path) -> None:
    for text in (traces.bare([event(n) for n in range(_MANY)]), "[" + json.dumps(event(0))):
        store = read(_write(tmp_path, text))
        assert names(store) == _expected(len(names(store)))
        assert len(names(store)) in (1, _MANY)


def test_duplicate_keys_the_first_counts_on_every_path(tmp_path: Path) -> None:
    twice = '{"ph": "X", "ts": 1, "dur": 1, "name": "first", "name": "second"}'
    nan = '{"ph": "X", "ts": 2, "dur": NaN, "bad": "\\ud800", "name": "first", "name": "second"}'
    for broken in (twice, nan):
        store = read(_write(tmp_path, f'{{"traceEvents": [{twice}, {broken}]}}'))
        assert names(store) == ["first", "first"]


_TIMES = {
    "integer": ("1694128201426602", 1694128201426602000),
    "epoch with decimals": ("1694128201426602.123", 1694128201426602123),
    "text": ('"1694128201426602.001"', 1694128201426602001),
    "three decimals": ("4366672476196.905", 4366672476196905),
    "small": ("0.001", 1),
    "negative": ("-5.5", -5500),
    "exponent": ("1.5e3", 1500000),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        *("epoch with decimals", "text", "negative", "exponent"),
        *long("integer", "three decimals", "small"),
    ],
)
def test_timestamps_are_exact_to_the_nanosecond(tmp_path: Path, kind: str) -> None:
    text, expected = _TIMES[kind]
    far = '{"ph": "X", "ts": 12, "dur": 1, "name": "far"}'
    own = f'{{"ph": "X", "ts": {text}, "dur": 934567890123.457, "name": "own"}}'
    for body in (f"{far}, {own}", f"{own}, {far}", own, own.replace("own", r"own\ud800")):
        store = read(_write(tmp_path, f'{{"traceEvents": [{body}]}}'))
        assert store.con.execute(
            "SELECT start_ns, dur_ns FROM event WHERE name <> 'far'"
        ).fetchall() == [(expected, 934567890123457)]


def test_what_has_no_time_is_counted(tmp_path: Path) -> None:
    odd = [
        {"ph": "X", "name": "no ts"},
        {"ph": "X", "name": "too large", "ts": 10**18},
        {"ph": "X", "name": "list", "ts": [1]},
        {"ph": "X", "name": "true", "ts": True, "dur": 1},
        {"ts": False, "ph": "X", "name": 'in a text: {"ts": true}', "dur": 1},
        {"name": "no phase", "ts": 1},
        "text",
        None,
        5,
    ]
    store = read(_write(tmp_path, kineto([event(0), *odd, event(1)])))
    assert names(store) == ["kernel_0", "kernel_1"]
    assert dropped(store) == {"no timestamp": 5, "not an event": 4}


@pytest.mark.parametrize(
    ("changes", "unknown"), [({}, None), ({"cat": "cpu_op", "args": {}}, 0)], ids=["device", "host"]
)
def test_missing_duration_is_zero_on_the_host_alone(
    tmp_path: Path, changes: dict[str, Any], unknown: int | None
) -> None:
    """What a device did for an unknown time stays unknown (metrics/steps/untimed.py)."""
    events = [event(n, **changes, dur=dur) for n, dur in enumerate((None, "2.5", -1, True))]
    del events[0]["dur"]
    store = read(_write(tmp_path, kineto(events)))
    assert store.con.execute("SELECT dur_ns FROM event ORDER BY event_id").fetchall() == [
        (unknown,),
        (2500,),
        (unknown,),
        (unknown,),
    ]


def test_begin_and_end_pairs_nest(tmp_path: Path) -> None:
    def edge(phase: str, at: int, name: str = "") -> dict[str, object]:
        return {"ph": phase, "ts": at, "pid": 1, "tid": 2, "name": name}

    events = [
        edge("E", 0),
        edge("B", 1, "outer"),
        edge("B", 2, "inner"),
        edge("E", 5),
        edge("E", 9),
        edge("B", 10, "open"),
    ]
    store = read(_write(tmp_path, kineto(events)))
    assert store.con.execute("SELECT name, dur_ns FROM event ORDER BY event_id").fetchall() == [
        ("outer", 8000),
        ("inner", 3000),
    ]
    assert dropped(store) == {"begin without end": 1, "end without begin": 1}


def test_an_end_with_a_name_ends_the_begin_of_that_name(tmp_path: Path) -> None:
    """GIVEN ends out of order, of a name that is not open, and of begins without a name."""

    def edge(phase: str, at: int, name: str | None = None) -> dict[str, object]:
        named = {} if name is None else {"name": name}
        return {"ph": phase, "ts": at, "pid": 1, "tid": 2, **named}

    events = [
        edge("B", 1, "a"),
        edge("B", 2, "b"),
        edge("B", 3, "a"),
        edge("B", 4),
        edge("E", 5, "none such"),  # of the begin that has no name
        edge("E", 6, "b"),
        edge("E", 7, "none such"),
        edge("E", 8),
        edge("E", 10, "a"),
        edge("E", 11, "a"),
    ]
    store = read(_write(tmp_path, kineto(events)))
    assert store.con.execute("SELECT name, dur_ns FROM event ORDER BY start_ns").fetchall() == [
        ("a", 9000),
        ("b", 4000),
        ("a", 5000),
        (None, 1000),
    ]
    assert dropped(store) == {"end without begin": 2}


def test_args_of_any_type(tmp_path: Path) -> None:
    odd = [[], "text", 5, None, {"stream": {"a": [1]}}, {"correlation": "x"}, {"bytes": 1e300}]
    events = [event(number, args=args) for number, args in enumerate(odd)]
    assert names(read(_write(tmp_path, kineto(events)))) == _expected(len(odd))


def test_hexadecimal_streams(tmp_path: Path) -> None:
    store = read(_write(tmp_path, kineto([event(0, args={"device": 1, "stream": "0x1f"})])))
    assert store.con.execute("SELECT device, stream FROM event").fetchall() == [(1, 31)]


def test_names_are_data(tmp_path: Path) -> None:
    hostile = ["<script>alert(1)</script>", "'; DROP TABLE event; --", "a" * 10_000, "", "\\"]
    store = read(_write(tmp_path, kineto([event(n, name=name) for n, name in enumerate(hostile)])))
    assert names(store) == hostile
    quoted = read(_write(tmp_path, kineto([event(0)])), run="r'; DROP TABLE event; --")
    assert names(quoted) == ["kernel_0"]


def test_deep_nesting_costs_one_event(tmp_path: Path) -> None:
    text = kineto([event(number) for number in range(3)])
    deep = '{"ph": "X", "ts": 1, "name": "deep", "args": {"x": ' + "[" * 100_000
    closed = deep + "]" * 100_000 + "}}"
    for inserted in (closed, deep):
        at = text.index("  {", text.index("kernel_0"))
        store = read(_write(tmp_path, text[:at] + inserted + ",\n" + text[at:]))
        assert names(store) == _expected(3)
        assert dropped(store) == {"event nested deeper than 200 levels": 1}


@pytest.mark.long
@pytest.mark.parametrize("layout", [kineto, *slow(compact)])
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@pytest.mark.usefixtures("both_paths")
def test_one_bound_of_nesting_in_every_layout(
    tmp_path: Path, layout: Callable[..., str], pair: tuple[str, str]
) -> None:
    """GIVEN events in chunks of their own and in the file's last bytes THEN 200 levels are kept.

    Two levels are the event's and its arguments'.
    """
    opens, closes = pair
    inside = "" if opens == "[" else "1"
    for levels, lost in ((198, 0), (199, 1), (20_000, 1)):
        marks = [event(n, args={"x": "@"} if n in (5, 2_000) else {}) for n in range(2_001)]
        deep = opens * levels + inside + closes * levels
        store = read(_write(tmp_path, layout(marks).replace('"@"', deep)))
        assert store.con.execute("SELECT count(*) FROM event").fetchone() == (2_001 - 2 * lost,)
        reason = "event nested deeper than 200 levels"
        assert dropped(store) == ({reason: 2} if lost else {})


def test_brackets_are_counted_by_level() -> None:
    for levels in (1, 2, 5, 6):
        for text in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b"0" + b"}" * levels):
            assert is_deeper(b"[1, {}," + text + b",[]]", 5) is (levels + 1 > 5)
    assert not is_deeper(b'[{"name": "[[[[[[\\"{{{{{"}]', 5)


def test_objects_after_the_events_are_no_events(tmp_path: Path) -> None:
    for layout in (traces.kineto, traces.compact):
        text = layout([event(number) for number in range(_MANY)])
        more = json.dumps([event(n, name="impostor") for n in range(_MANY)], indent=2)
        text = text.rstrip()[:-1] + f', "otherEvents": {more}, "baseTimeNanoseconds": 5}}'
        assert names(read(_write(tmp_path, text))) == _expected(_MANY)


def test_fields_after_the_events_count(tmp_path: Path) -> None:
    plain = [event(number) for number in range(_MANY)]
    text = json.dumps(
        {
            "schemaVersion": 1,
            "traceEvents": plain,
            "baseTimeNanoseconds": BASE_NS,
            "distributedInfo": {"rank": 5, "world_size": 8},
            "advisor": {"strategy": "ddp", "compute": "real", "peak_memory_bytes": 7},
        },
        indent=1,
    )
    for path in (
        _write(tmp_path, text),
        _write(tmp_path, gzip.compress(text.encode()), "other.json.gz"),
    ):
        store = read(path)
        rank = store.con.execute(
            "SELECT rank, world_size, peak_memory_bytes, has_base_time FROM rank"
        ).fetchall()
        assert rank == [(5, 8, 7, True)]
        assert store.con.execute("SELECT strategy, compute FROM run").fetchall() == [
            ("ddp", "real")
        ]
        assert store.con.execute(
            "SELECT DISTINCT rank, min(start_ns) FROM event GROUP BY 1"
        ).fetchall() == [(5, BASE_NS + 4_366_672_476_000_125)]


@pytest.mark.parametrize(("bases", "expected"), [((BASE_NS,), BASE_NS), ((BASE_NS, 5), 0)])
def test_a_file_that_was_cut_before_its_base_time_takes_that_of_the_others(
    tmp_path: Path, bases: tuple[int, ...], expected: int
) -> None:
    """Kineto writes it at the end, and the same in every rank of a job."""
    for rank, base in enumerate(bases, 1):
        whole = {"distributedInfo": {"rank": rank}, "traceEvents": [event(0)]}
        text = json.dumps({**whole, "baseTimeNanoseconds": base})
        _write(tmp_path, text, f"rank{rank}.json")
    text = json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": [event(0), event(1)]})
    _write(tmp_path, text[:-3], "rank0.json")
    store = read(tmp_path)
    found = store.con.execute("SELECT min(start_ns) FROM event WHERE rank = 0").fetchone()
    assert found == (expected + 4_366_672_476_000_125,)


def _two_members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])


_CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "json named gz": lambda data: data,
    "gzip": gzip.compress,
    "gzip members": _two_members,
    "gzip then zeros": lambda data: gzip.compress(data) + b"\x00" * 512,
    "gzip then garbage": lambda data: gzip.compress(data) + b"garbage",
    "gzip, wrong checksum": lambda data: gzip.compress(data)[:-8] + b"\x00" * 8,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
    "zstd frames": lambda data: (
        zstandard.ZstdCompressor().compress(data[:5000])
        + zstandard.ZstdCompressor().compress(data[5000:])
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["trace.json", *slow("trace.json.gz"), *long("trace.json.zst")])
@pytest.mark.parametrize("kind", _CONTAINERS)
def test_containers_whatever_the_name(tmp_path: Path, kind: str, name: str) -> None:
    data = kineto([event(number) for number in range(_MANY)]).encode()
    store = read(_write(tmp_path, _CONTAINERS[kind](data), name))
    assert names(store) == _expected(_MANY)


@pytest.mark.parametrize("compress", [gzip.compress, *slow(zstandard.ZstdCompressor().compress)])
def test_a_cut_container_keeps_what_was_written(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    data = kineto([event(number) for number in range(20_000)]).encode()
    packed = compress(data)
    cut = packed[: len(packed) * 3 // 4]
    store = read(_write(tmp_path, cut))
    found = names(store)
    assert found == _expected(len(found))
    assert len(found) > 5_000
    assert "cut" in notes(store)
    assert store.con.execute("SELECT complete FROM rank").fetchall() == [(False,)]


@pytest.mark.long
def test_a_corrupt_gzip_keeps_everything_before_the_damage(tmp_path: Path) -> None:
    data = kineto([event(number) for number in range(20_000)]).encode()
    packed = bytearray(gzip.compress(data))
    at = len(packed) // 2
    packed[at : at + 64] = b"\xff" * 64
    inflater = zlib.decompressobj(31)
    before = inflater.decompress(bytes(packed[:at]))
    store = read(_write(tmp_path, bytes(packed)))
    readable = before.count(b'"External id"') - 1
    assert names(store)[:readable] == _expected(readable)
    assert "damaged" in notes(store)


def test_a_corrupt_zstd_keeps_everything_before_the_damage(tmp_path: Path) -> None:
    """Of a file so small that one call would decode all of it, too."""
    for count in (_MANY, 20_000):
        data = kineto([event(number) for number in range(count)]).encode()
        packed = bytearray(zstandard.ZstdCompressor(level=1).compress(data))
        at = len(packed) * 3 // 4
        packed[at:] = bytes(number * 37 % 251 for number in range(len(packed) - at))
        inflater, before = zstandard.ZstdDecompressor().decompressobj(), b""
        with contextlib.suppress(zstandard.ZstdError):
            for byte in packed:
                before += inflater.decompress(bytes([byte]))
        readable = before.count(b'"External id"') - 1
        assert readable > 500
        store = read(_write(tmp_path, bytes(packed), "trace.json.zst"))
        assert names(store)[:readable] == _expected(readable)
        assert "damaged" in notes(store)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    start = b'{"schemaVersion": 1, "traceEvents": [\n' + b" " * (100 << 20)
    for name, data in (
        ("bomb.json.gz", gzip.compress(start, mtime=0)),
        ("bomb.json.zst", zstandard.ZstdCompressor().compress(start)),
    ):
        with pytest.raises(AdvisorError, match="bomb"):
            read(_write(tmp_path, data, name))


def test_an_event_larger_than_allowed_is_counted(tmp_path: Path) -> None:
    events = [event(0), event(1, big="x" * (20 << 20)), *(event(n) for n in range(2, _MANY))]
    for layout in (traces.kineto, traces.compact):
        store = read(_write(tmp_path, layout(events)))
        assert names(store) == _expected(_MANY, 1)
        assert list(dropped(store).values()) == [1]


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    ['{"ph":[', '{"ph":"X","l":[{"name":1},{"ph":"X"},', '],"a":1', '{"name":1}],"k":2,'],
    ids=["open lists", "open events", "ends", "closed lists"],
)
def test_text_made_to_be_tried_without_end_is_given_up(text: str) -> None:
    """GIVEN 60 KB of it THEN what is looked at in vain stays below the bound."""
    data = (json.dumps(event(0)) + "," + text * (60_000 // len(text))).encode()
    repairer = Repairer(iter([data]), DEFAULT_LIMITS)
    assert [found["name"] for found in repairer.events() if "cat" in found] == ["kernel_0"]
    assert repairer.at_end
    assert repairer._resync._failed_bytes < _MOST_FAILED_BYTES + 20_000_000
