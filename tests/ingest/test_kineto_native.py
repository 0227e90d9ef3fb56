"""The scanner in C reads what it accepts exactly as the parser in Python does, and safely."""

from __future__ import annotations

import json
import random
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.ingest import ingest
from advisor.ingest.classes import (
    enqueue_sql,
    event_classes,
    keeps_shapes,
)
from advisor.ingest.readers.kineto.native import pipeline
from advisor.ingest.readers.kineto.native.scanner import Scanner
from advisor.ingest.readers.kineto.parser import Parser
from advisor.ingest.scanner_library import library, missing
from advisor.store.store import Store
from benchmarks.fuzz import sanitized
from benchmarks.fuzz.differential import Differential
from tests.support.marks import long, thinned
from tests.support.traces import event, kineto, notes, one_line, read

NATIVE = Path(pipeline.__file__).parent
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_TABLES = ("event", "comm_event", "rank", "process_group", "source")

pytestmark = pytest.mark.skipif(
    library() is None and shutil.which("cc") is None, reason="there is no C compiler here"
)


def test_it_is_built_where_there_is_a_compiler() -> None:
    assert missing() is None


def _tables(monkeypatch: pytest.MonkeyPatch, native: bool, *paths: Path, **options: Any) -> Any:
    monkeypatch.setenv("ADVISOR_NATIVE", "1" if native else "0")
    with Store.create() as store:
        ingest(paths, store, **options)
        select = "SELECT * FROM {} ORDER BY ALL"
        return {table: store.con.execute(select.format(table)).fetchall() for table in _TABLES}


def _left(monkeypatch: pytest.MonkeyPatch) -> list[bytearray]:
    """Collects the chunks that the scanners gave up."""
    found: list[bytearray] = []
    parse = Parser.parse

    def noted(self: Parser, text: bytearray, *how: int) -> bool:
        found.append(text)
        return parse(self, text, *how)

    monkeypatch.setattr(Parser, "parse", noted)
    return found


_RECORDINGS = sorted({path.parent for path in FIXTURES.glob("*/rank*.json.gz")})


def _marks_of(number: int) -> list[pytest.MarkDecorator]:
    """Two are quick; of the others the full run takes every third, so that both kinds occur."""
    if number < 2:
        return []
    return [pytest.mark.slow if number % 3 == 0 else pytest.mark.long]


@pytest.mark.long
@pytest.mark.parametrize(
    ("folder", "lean"),
    [
        pytest.param(folder, number % 2 == 0, id=folder.name, marks=_marks_of(number))
        for number, folder in enumerate(_RECORDINGS)
    ],
)
def test_our_recordings(folder: Path, monkeypatch: pytest.MonkeyPatch, *, lean: bool) -> None:
    """GIVEN regular traces THEN both give the same tables and the scanner read all of it, but for
    what is read event by event anyway (a small file without line ends)."""
    left = _left(monkeypatch)
    scanned = _tables(monkeypatch, True, folder, lean=lean)
    assert scanned["event"]
    assert not left
    read_singly: list[object] = []
    add = Parser.add
    monkeypatch.setattr(Parser, "add", lambda *given: read_singly.append(given) or add(*given))
    assert scanned == _tables(monkeypatch, False, folder, lean=lean)
    assert left or read_singly


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    ["dlrm_8xV100", "ddp_2xA100_metadata", "ddp_8xMI300", "cuda_sync_alexnet", "cpu_only_rank34"],
)
def test_other_peoples_traces(
    shared_data: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = _left(monkeypatch)
    scanned = _tables(monkeypatch, True, shared_data / folder)
    assert not left
    assert scanned == _tables(monkeypatch, False, shared_data / folder)
    assert scanned["event"]


_MANY = 4_000


def _irregular(number: int) -> dict[str, Any]:
    return event(number, args={"stream": 7.5, "device": None})


@pytest.mark.parametrize("layout", [kineto, one_line])
@pytest.mark.parametrize("every", [1, *long(7), 900])
def test_irregular_chunks_go_through_the_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, every: int
) -> None:
    """GIVEN a few, many or only irregular chunks THEN the tables are as without the scanner."""
    events = [_irregular(n) if n % every == 0 else event(n) for n in range(_MANY)]
    path = tmp_path / "trace.json"
    path.write_text(layout(events))
    left = _left(monkeypatch)
    scanned = _tables(monkeypatch, True, path)
    assert left
    assert scanned == _tables(monkeypatch, False, path)
    assert len(scanned["event"]) == _MANY


@pytest.mark.slow
def test_keys_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN keys whose order changes, that begin alike, are long or many THEN none is mistaken."""
    kept = {"device": 1, "stream": 7, "External id": 5, "correlation": 9, "bytes": 64, "Seq": 3}
    events = []
    for n in range(_MANY):
        chosen = random.Random(n).sample(sorted(kept), k=n % len(kept) + 1)
        near = [f"{name}{' ' * (n % 3)}x" for name in chosen] + ["streamer", "k" * (20 + n % 30)]
        args = {f"unknown {n % 150}": 1} | dict.fromkeys(near, 2) | {k: kept[k] + n for k in chosen}
        keys = random.Random(-n).sample(sorted(args), k=len(args))
        made = event(n) | {"args": {key: args[key] for key in keys}}
        order = random.Random(2 * n).sample(sorted(made), k=len(made))
        events.append({key: made[key] for key in order})
    path = tmp_path / "trace.json"
    path.write_text("[" + ",\n".join(json.dumps(one) for one in events) + "]")
    left = _left(monkeypatch)
    scanned = _tables(monkeypatch, True, path)
    assert not left
    assert scanned == _tables(monkeypatch, False, path)
    streams = [one["args"].get("stream", one["tid"]) for one in events]
    with Store.create() as store:
        ingest([path], store)
        rows = store.con.execute("SELECT stream FROM event ORDER BY event_id").fetchall()
    assert [stream for (stream,) in rows] == streams


@pytest.mark.long
@pytest.mark.slow
def test_more_names_than_it_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a hundred thousand distinct names THEN batches end early and nothing is lost."""
    events = [event(n, cat=["python_function", "kernel"][n % 300 == 0]) for n in range(100_000)]
    path = tmp_path / "trace.json"
    path.write_text(one_line(events))
    scanned = _tables(monkeypatch, True, path)
    assert scanned == _tables(monkeypatch, False, path)
    assert len(scanned["event"]) == 100_000


@pytest.mark.slow
def test_collectives_beyond_one_insert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.ingest.readers.kineto.insert._ROWS_AT_ONCE", 100)
    events = [event(n, args={"Collective name": "allreduce", "Seq": n}) for n in range(_MANY)]
    path = tmp_path / "trace.json"
    path.write_text(kineto(events))
    scanned = _tables(monkeypatch, True, path)
    assert scanned == _tables(monkeypatch, False, path)
    assert len(scanned["comm_event"]) == _MANY


def test_rows_of_collectives_do_not_keep_the_batch_of_events() -> None:
    """They are collected over many batches; memory must not grow with the trace."""
    found = library()
    assert found is not None
    scanner = Scanner(found, "External id", lean=False, merged=False)
    text = json.dumps([event(1, args={"Collective name": "allreduce"})]).encode()
    assert scanner.scan(bytearray(text), 0, 0, 0) == "done"
    batch = weakref.ref(scanner._batch)
    events, comm = scanner.take()
    assert events.num_rows == comm.num_rows == 1
    assert batch() is not None
    del events
    assert batch() is None
    assert comm.to_pylist()[0]["collective"] == "allreduce"


def test_a_failure_in_a_thread_comes_out_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("advisor.ingest.readers.kineto.native.scanner.Scanner.scan", broken)
    path = tmp_path / "trace.json"
    path.write_text(kineto([event(n) for n in range(_MANY)]))
    with Store.create() as store:
        with pytest.raises(ZeroDivisionError):
            ingest([path], store)
        for table in ("run", "event", "comm_event"):
            assert store.con.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]


@pytest.mark.parametrize("native", ["0", "1"])
def test_events_without_a_duration_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    """Of ten spans three do not say how long they took; an instant need not."""
    monkeypatch.setenv("ADVISOR_NATIVE", native)
    events = [event(n) for n in range(10)]
    del events[0]["dur"]
    events[4]["dur"] = -1
    events[5]["dur"] = None
    events.append({"ph": "i", "name": "mark", "ts": 5, "pid": 1, "tid": 1})
    path = tmp_path / "trace.json"
    path.write_text(kineto(events))
    with read(path) as store:
        assert "events without a usable duration: 3" in notes(store)
        assert store.con.execute(
            "SELECT count(*) FILTER (dur_ns = 0), count(*) FROM event"
        ).fetchall() == [(1, 11)]
    path.write_text(kineto([event(n) for n in range(10)]))
    with read(path) as store:
        assert "duration" not in notes(store)


# Values for the fields that are read: usual ones, and those on which parsers differ.
_TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=12)
_ODD = st.sampled_from(
    [
        *(None, True, "", " 7", "7", "-7", "007", "0x1f", "0xg", "Spans", "1e3", "inf", "1_000"),
        *(
            0,
            -1,
            7.0,
            7.5,
            2**31,
            -(2**31),
            2**63,
            10**18,
            10**25,
            1e300,
            -0.0,
            [],
            {},
            [[1, "a b"]],
        ),
        *([1.5, None, True, {"a b": ["\\", "é"]}], {"x": [1]}, "é\u20ac\U0001f600", "\x7f", "a/b"),
    ]
)
_WHOLE = st.integers(-5, 10**7) | st.integers() | _ODD
_TIME = (
    st.integers(0, 10**15).map(lambda ns: ns / 1000)
    | st.integers(0, 5 * 10**15)
    | st.sampled_from(["4366672476196.905", "4600000000000000", "4600000000000000.001", "1.2345"])
    | _ODD
)
_NAME = st.sampled_from(
    [
        *("ncclDevKernel_AllReduce", "void gemm<4>", "éncclFoo", "gloo:all_reduce", "c10d::send"),
        *("nccl:broadcast", "torch::autograd::AccumulateGrad", "aten::mm", "record_param_comms"),
    ]
)
_CATEGORY = st.sampled_from(
    [name for rule in event_classes().categories for name in rule.names] + ["Trace", "new", "é"]
)
_ARGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("device", "stream", "correlation", "External id", "bytes"), _WHOLE),
        **dict.fromkeys(("In msg nelems", "Group size", "Seq", "Src Rank", "rank"), _WHOLE),
        **dict.fromkeys(("Collective name", "Process Group Ranks", "name"), _TEXT | _ODD),
        **dict.fromkeys(("Input Dims", "Input type", "In split size"), _ODD | st.lists(_ODD)),
        "other": _ODD,
    },
)
_EVENT = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXXXXXXiMsC") | _ODD, "ts": _TIME, "name": _NAME | _TEXT | _ODD},
    optional={
        "cat": _CATEGORY | _TEXT | _ODD,
        "pid": _WHOLE,
        "tid": _WHOLE,
        "dur": _TIME,
        "args": _ARGS | _ODD,
        "id": _ODD,
    },
)
_ONE_ODD = st.tuples(_EVENT, _EVENT, st.integers(0, 6))


def _mostly_usual(drawn: tuple[dict[str, Any], dict[str, Any], int]) -> list[dict[str, Any]]:
    """An event of which few fields are odd: all odd ones are refused at the first."""
    odd, other, few = drawn
    usual = event(3, ph="X", args={"device": 0, "stream": 7, "Collective name": "allreduce"})
    changed = dict(list(odd.items())[few : few + 2])
    args = odd.get("args")
    if isinstance(args, dict) and few > 2:
        changed["args"] = dict(list(args.items())[few - 3 : few])
    return [event(0), {**usual, **changed}, *([other] if few == 6 else [])]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("lean", "merged"), thinned([(False, True), (True, False), (False, False)], 3)
)
def test_any_event_is_read_alike_or_refused(*, lean: bool, merged: bool) -> None:
    both = Differential(lean=lean, merged=merged)

    @settings(max_examples=25)
    @given(st.lists(_ONE_ODD.map(_mostly_usual), min_size=20, max_size=40))
    def check(chunks: list[list[dict[str, Any]]]) -> None:
        texts = [
            json.dumps(
                chunk,
                ensure_ascii=bool(at % 2),
                indent=[None, 2][at % 3 == 0],
                separators=[None, (",", ":")][at % 3 == 1],
            ).encode()
            for at, chunk in enumerate(chunks)
        ]
        wrong = both.mismatches(texts)
        assert not wrong, texts[wrong[0]]

    check()
    assert both.accepted > 100
    assert both.refused > 100


def test_whose_shapes_are_kept_is_the_same_in_the_database() -> None:
    """GIVEN names around the patterns THEN Python and SQL decide alike."""
    names = ["", "x", "éncclFoo", "gloo:x", "xgloo:x", "c10d::a", "a c10d::"]
    for rule in event_classes().enqueue_names:
        plain = rule.pattern.replace("\\b", "").replace("\\w*", "ab").replace("^", "").rstrip("$")
        names += [plain, f"void {plain}<int>", plain.split("|")[0].strip("()"), plain[1:]]
    # What stands behind arguments of templates without end is looked at by neither.
    names += [f"{name}{'x' * 5_000}" for name in names] + [f"{'x' * 5_000} {n}" for n in names]
    with Store.create() as store:
        select = f"SELECT name, {enqueue_sql('name')} FROM (SELECT unnest(?) AS name)"
        found = store.con.execute(select, [names]).fetchall()
    assert {asks for _, asks in found} == {True, False}
    assert all(keeps_shapes(name) == asks for name, asks in found)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_mutations_under_the_address_sanitizer(tmp_path: Path) -> None:
    """GIVEN damaged chunks in buffers of their exact size THEN nothing is read beyond them."""
    program = sanitized.built(tmp_path, "scanner")
    accepted, refused = sanitized.scan(program, 60_000, 1, sanitized.chunks(tmp_path))
    assert accepted > 1000
    assert refused > 1000
