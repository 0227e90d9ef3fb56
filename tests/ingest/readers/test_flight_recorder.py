"""Flight-recorder dumps: the same values as torch wrote, the culprits visible, nothing executed."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError
from advisor.ingest.detect import detect
from advisor.ingest.readers import flight_recorder
from advisor.ingest.readers.flight_recorder.dump import parse_dump, rank_of
from advisor.ingest.readers.flight_recorder.unpickle import unpickle
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store
from tests.support.marks import long


def entry(seq: int, **changes: Any) -> dict[str, Any]:
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_758_580_155_793_872_443,
        "input_sizes": [[2048, 1, 5120]],
        "output_sizes": [[2048, 1, 5120]],
        "state": "started",
        "time_discovered_started_ns": 1_758_580_155_793_872_999,
        "time_discovered_completed_ns": None,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 12}],
    } | changes


DUMP = {
    "version": "2.9",
    "nccl_version": "2.27.3",
    "pg_config": {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "7": {"name": "7", "desc": "mesh_tp", "ranks": "[2, 3]"},
    },
    "pg_status": {
        "0": {"last_enqueued_collective": 5, "last_started_collective": -1},
        "1": {"last_enqueued_collective": 9, "last_completed_collective": 8},
    },
    "entries": [
        entry(4),
        entry(5),
        entry(0, is_p2p=True, p2p_seq_id=3, profiling_name="nccl:send 0->1"),
    ],
}


def stored(*paths: Path) -> Store:
    store = Store.create()
    sources = [Source.of(path, number) for number, path in enumerate(paths)]
    assert all(detect(source) is flight_recorder for source in sources)
    flight_recorder.read(sources, ReadContext(store, "r"))
    return store


def rows(store: Store, sql: str) -> list[Any]:
    return list(store.con.execute(sql).fetchall())


@pytest.mark.parametrize("case", ["gpu_error_2nd", "lock_gil_1st"])
def test_real_dumps_hold_what_pickle_finds_in_them(shared_data: Path, case: str) -> None:
    """The standard library is the truth here; only these known files are given to it."""
    for path in (shared_data / "flight_recorder" / case).glob("_dump_*"):
        data = path.read_bytes()
        assert unpickle(data) == (pickle.loads(data), None)


@pytest.mark.parametrize("case", ["gpu_error_2nd", "lock_gil_1st"])
def test_real_dumps_show_the_injected_faults(shared_data: Path, case: str) -> None:
    """GIVEN 16 ranks of which two were disturbed THEN exactly those stand out."""
    folder = shared_data / "flight_recorder" / case
    log = (folder / "fault_injection.log").read_text()
    listed = re.search(r"Fault ranks: \[(.*)\]", log)
    assert listed is not None
    culprits = sorted(int(rank) for rank in listed[1].split(","))
    with stored(*sorted(folder.glob("_dump_*"))) as store:
        assert rows(store, "SELECT count(DISTINCT rank), sum(events_dropped) FROM source") == [
            (16, 0)
        ]
        if case == "gpu_error_2nd":
            found = rows(
                store,
                "SELECT rank FROM flight WHERE state = 'last_enqueued' AND process_group = '0' AND "
                "seq < (SELECT max(seq) FROM flight WHERE state = 'last_enqueued' "
                "AND process_group = '0') ORDER BY 1",
            )
        else:  # they hold the GIL: nothing of theirs is pending
            found = rows(
                store,
                "SELECT DISTINCT rank FROM flight WHERE rank NOT IN "
                "(SELECT rank FROM flight WHERE op IS NOT NULL) ORDER BY 1",
            )
        groups = rows(store, "SELECT ranks, size FROM process_group WHERE process_group = '0'")
    assert [rank for (rank,) in found] == culprits
    assert groups == [(list(range(16)), 16)]


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_both_forms_give_the_same_rows(tmp_path: Path, form: str) -> None:
    path = tmp_path / "nccl_trace_rank_2"
    if form == "pickle":
        path.write_bytes(pickle.dumps(DUMP, protocol=2))
    else:
        path.write_text(json.dumps(DUMP))
    with stored(path) as store:
        calls = rows(
            store,
            "SELECT rank, process_group, seq, op, state, created_ns, started_ns, completed_ns, "
            "input_sizes, frames FROM flight WHERE op IS NOT NULL ORDER BY op, seq",
        )
        progress = rows(store, "SELECT process_group, state, seq FROM flight WHERE op IS NULL")
        version = rows(store, "SELECT rank, value FROM topology")
    first = (2, "0", 4, "all_reduce", "started", 1758580155793872443, 1758580155793872999, None)
    assert calls[0] == (*first, "[[2048, 1, 5120]]", '["step train.py:12"]')
    assert [(row[2], row[3]) for row in calls[1:]] == [(5, "all_reduce"), (3, "send 0->1")]
    assert sorted(progress) == [
        ("0", "last_enqueued", 5),
        ("7", "last_completed", 8),
        ("7", "last_enqueued", 9),
    ]
    assert version == [(2, "2.27.3")]


class Command:
    """Pickles to a call of ``os.system``."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch /tmp/advisor-was-here",)


class State:
    """Pickles to GLOBAL, REDUCE and BUILD."""


MALICIOUS = [
    pickle.dumps({"entries": [Command()]}, protocol=protocol) for protocol in (0, 1, 2, 3, 4, 5)
] + [
    pickle.dumps({"entries": State()}, protocol=2),
    b"\x80\x02}U\x07entries(ios\nsystem\nX\x04\x00\x00\x00echo0s.",
    b"\x80\x02}(U\x07entriescposix\nsystem\nX\x01\x00\x00\x00a\x85Ru.",
    b"\x80\x04}(\x8c\x07entries\x8c\x05posix\x8c\x06system\x93\x8c\x01a\x85Ru.",
    b"\x80\x02}(U\x07entriesPsomeid\nu.",
    b"\x80\x02}(U\x07entries\x82\x01u.",
    b"\x80\x02cbuiltins\neval\n(U\x051 + 1tR.",
    b"\x80\x02}(U\x07entries(cos\nsystem\nU\x01ao\x75.",
]


@pytest.mark.parametrize("data", MALICIOUS)
def test_pickles_that_could_run_code_are_refused(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(os, "system", ran.append)
    monkeypatch.setattr(subprocess, "Popen", ran.append)
    with pytest.raises(AdvisorError, match="can run code"):
        unpickle(data)
    assert ran == []


def test_a_refused_file_does_not_stop_the_others(tmp_path: Path) -> None:
    good, bad = tmp_path / "rank_2", tmp_path / "rank_3"
    good.write_bytes(pickle.dumps(DUMP, protocol=2))
    bad.write_bytes(pickle.dumps({"pg_config": Command()}, protocol=2))
    with stored(bad, good) as store:
        assert rows(store, "SELECT count(*) FROM flight WHERE op IS NOT NULL") == [(3,)]
        assert rows(store, "SELECT source_id, events_dropped > 0 FROM source ORDER BY 1")[0] == (
            0,
            True,
        )


def test_shared_references_cost_nothing() -> None:
    """GIVEN lists doubled 60 times (2^60 values if written out) THEN it is read at once."""
    bomb: list[Any] = [1]
    for _ in range(60):
        bomb = [bomb, bomb]
    content, cut = unpickle(pickle.dumps({"entries": [entry(1, input_sizes=bomb)]}, protocol=2))
    assert cut is None
    assert len(parse_dump(content).entries) == 1


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [*long(2), 4])
def test_a_cut_pickle_keeps_its_finished_entries(protocol: int) -> None:
    """GIVEN a dump cut anywhere THEN entries come back in order, whole, and never more."""
    many = {**DUMP, "entries": [entry(seq) for seq in range(50)]}
    data = pickle.dumps(many, protocol=protocol)
    kept = []
    for end in range(0, len(data), 13):
        content, cut = unpickle(data[:end])
        assert cut is not None
        sequence = [item.seq for item in parse_dump(content).entries]
        assert sequence == list(range(len(sequence)))
        kept.append(len(sequence))
    assert kept == sorted(kept)
    assert kept[-1] >= 48


def test_the_rank_is_in_every_group() -> None:
    groups = parse_dump(dict(DUMP))
    assert rank_of(groups, Path("trace_rank_3.pkl")) == 3
    assert rank_of(groups, Path("2026-trace_1")) is None  # rank 1 is in no group of this dump
    alone = parse_dump({"pg_config": {"9": {"name": "9", "ranks": "[6]"}}})
    assert rank_of(alone, Path("whatever_3")) == 6
    assert rank_of(parse_dump({"rank": 5}), Path("x_3")) == 5
    assert rank_of(parse_dump({}), Path("dump_20250923120001")) is None


@pytest.mark.parametrize("ranks", ["[0, 12345678901]", "[0, ٣]", [0, "1"], [0, -1], "0-3", 7])
def test_a_group_with_what_is_no_rank_has_unknown_ranks(ranks: object) -> None:
    """The first nine digits of a longer number would be a rank that nobody named."""
    dump = parse_dump({"pg_config": {"0": {"name": "0", "ranks": ranks}}})
    assert [group.ranks for group in dump.groups] == [None]
    assert dump.dropped == {"ranks of a group that are no ranks": 1}


def test_a_rank_out_of_range_is_told_by_the_name(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_2.json"
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": [0, 2, 2**40]}}
    path.write_text(json.dumps(DUMP | {"rank": 2**40, "pg_config": groups}))
    store = stored(path)
    assert rows(store, "SELECT DISTINCT rank FROM flight") == [(2,)]
    assert rows(store, "SELECT ranks, size FROM process_group") == [(None, None)]


def test_a_dump_of_unknown_rank_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(pickle.dumps(DUMP, protocol=2))
    with stored(path) as store:
        assert rows(store, "SELECT rank, events_read, events_dropped FROM source") == [(None, 0, 3)]


def test_one_group_under_a_number_and_its_text() -> None:
    """GIVEN keys 0 and "0" with values that cannot be compared THEN it is read all the same."""
    status = {0: {"last_enqueued_collective": 1}, "0": "x"}
    assert len(parse_dump({**DUMP, "pg_status": status}).entries) == 3


@pytest.mark.parametrize("sizes", [[[2**70]], [[-5]], None, "[[1000", [[4], [None]], [[4], "x"]])
def test_sizes_of_which_a_part_is_damaged_are_unknown(sizes: object) -> None:
    """GIVEN a part of them only THEN ranks would seem to disagree about the call."""
    entries = [{**DUMP["entries"][0], "input_sizes": sizes}]
    assert parse_dump({**DUMP, "entries": entries}).entries[0].input_sizes == []


def test_a_call_whose_name_cannot_be_printed_is_dropped() -> None:
    entries = [{**DUMP["entries"][0], "profiling_name": "nccl:all_r\0duce"}]
    assert parse_dump({**DUMP, "entries": entries}).entries == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("duration_ms", "²"), ("duration_ms", -1), ("duration_ms", 1e300)),
        *(("time_created_ns", 2**70), ("time_discovered_started_ns", "x")),
        *(("collective_seq_id", -1), ("process_group", 7)),
        *(("input_sizes", [[-5]]), ("output_sizes", "[[1")),
    ],
)
def test_a_field_that_cannot_be_used_is_counted_by_its_name(key: str, value: object) -> None:
    good, *_ = DUMP["entries"]
    dump = parse_dump({**DUMP, "entries": [good, {**good, key: value}]})
    assert len(dump.entries) == 2
    assert dump.notes == [f"calls without a usable {key}: 1"]


@pytest.mark.parametrize(
    ("key", "value"), [("profiling_name", 7), ("profiling_name", "a\0"), ("state", "gone")]
)
def test_a_dropped_call_is_counted_with_its_field(key: str, value: object) -> None:
    good, *_ = DUMP["entries"]
    dump = parse_dump({**DUMP, "entries": [good, {**good, key: value}, 7]})
    assert dump.dropped == {
        f"entry without a usable {key}": 1,
        "entry without a usable form": 1,
    }


def test_progress_that_no_job_can_make_is_dropped_and_accuses_nobody() -> None:
    first = next(iter(DUMP["pg_status"]))
    beyond = {**DUMP["pg_status"], first: {"last_enqueued_collective": 1 << 62}}
    dump = parse_dump({**DUMP, "pg_status": beyond})
    assert dump.dropped["progress that no job can make"] == 1
    assert 1 << 62 not in [value for *_, value in dump.status]
    assert max(value for *_, value in parse_dump(DUMP).status) > 0


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=4), values), st.sampled_from([0, 1, 2, 3, 4, 5]))
def test_plain_values_come_back_as_pickle_wrote_them(
    content: dict[str, Any], protocol: int
) -> None:
    assert unpickle(pickle.dumps(content, protocol=protocol)) == (content, None)


@pytest.mark.slow
@given(
    st.sampled_from(["entries", "pg_config", "pg_status", "nccl_version", "rank"]),
    values,
)
def test_fields_of_any_type_are_survived(key: str, value: Any) -> None:
    parse_dump({**DUMP, key: value})
    for name in DUMP["entries"][0]:  # type: ignore[index]
        parse_dump({**DUMP, "entries": [entry(1, **{name: value})]})


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=3)), max_size=6))
def test_mutated_pickles_never_crash(edits: list[tuple[int, bytes]]) -> None:
    data = bytearray(pickle.dumps(DUMP, protocol=2))
    for place, noise in edits:
        data[place : place + 1] = noise
    try:
        content, _ = unpickle(bytes(data))
    except AdvisorError:
        return
    parse_dump(content)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_gives_the_same_rows(tmp_path: Path, protocol: int) -> None:
    """GIVEN a dump that a script wrote again with Python's pickle THEN the rows are JSON's."""
    columns = "process_group, seq, op, state, created_ns, input_sizes, frames"
    query = f"SELECT {columns} FROM flight ORDER BY ALL"
    again = tmp_path / "trace_rank_2"
    again.write_bytes(pickle.dumps(DUMP, protocol=protocol))
    plain = tmp_path / "json" / "trace_rank_2"
    plain.parent.mkdir()
    plain.write_text(json.dumps(DUMP))
    with stored(again) as store, stored(plain) as expected:
        found = rows(store, query)
        assert len(found) == 6
        assert found == rows(expected, query)
        assert rows(store, "SELECT rank, events_dropped, note FROM source") == [(2, 0, None)]
    data = again.read_bytes()
    for share in (0.5, 0.9):  # cut: what was whole is there, and the loss is counted
        again.write_bytes(data[: int(len(data) * share)])
        with stored(again) as store:
            left = rows(store, f"{query}")
            assert len(left) < len(found)
            ((dropped, note),) = rows(store, "SELECT events_dropped, note FROM source")
        assert dropped > 0
        assert "breaks off" in note or "damaged" in note


def test_text_of_python_2_and_code_in_old_protocols(tmp_path: Path) -> None:
    """Strings of Python 2 are text; an instruction that calls something is refused by its name."""
    old = b"(dp0\nS'entries'\np1\n(lp2\nsS'version'\np3\nS'2.9'\np4\ns."
    assert unpickle(old) == ({"entries": [], "version": "2.9"}, None)
    path = tmp_path / "trace_rank_0"
    path.write_bytes(b"(dp0\nVentries\np1\ncposix\nsystem\n(S'true'\ntRs.")
    with stored(path) as store:
        assert "GLOBAL" in rows(store, "SELECT note FROM source")[0][0]
