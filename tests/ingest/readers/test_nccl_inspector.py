# ruff: noqa: E501 (records as the plugin writes them)
"""NCCL Inspector records. Lines are written after inspector_json.cc and the README of the plugin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import advisor
from advisor.ingest.detect import detect
from advisor.ingest.readers import nccl_inspector
from advisor.ingest.readers.nccl_inspector.records import Member, Sample
from advisor.ingest.readers.nccl_inspector.write import global_ranks
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store
from benchmarks.fuzz import labelled


def envelope(
    rank: int, ranks: int = 8, comm: str = "0x7f8c", pid: int | None = None
) -> dict[str, Any]:
    return {
        "header": {"id": comm, "comm_name": "DP", "rank": rank, "n_ranks": ranks, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.2",
            "dump_timestamp_us": 1748030377748202,
            "hostname": "node1",
            "pid": pid if pid is not None else 100 + rank,
        },
    }


# The README's two examples: 17 GB all-reduce at 277.2 GB/s, and a reduce-scatter of 2 GB per rank
# whose 418.4 GB/s show that the message is counted per rank (8 x 2147483648 B / 41057 us).
ALL_REDUCE = {
    "coll": "AllReduce",
    "coll_algo": "RING",
    "coll_proto": "LL",
    "coll_sn": 1407,
    "coll_msg_size_bytes": 17179869184,
    "coll_exec_time_us": 61974,
    "coll_timing_source": "kernel_gpu",
    "coll_algobw_gbs": 277.210914,
    "coll_busbw_gbs": 485.119099,
}
REDUCE_SCATTER = {
    "coll": "ReduceScatter",
    "coll_algo": "RING",
    "coll_proto": "SIMPLE",
    "coll_sn": 1231,
    "coll_msg_size_bytes": 2147483648,
    "coll_exec_time_us": 41057,
    "coll_algobw_gbs": 418.439467,
    "coll_busbw_gbs": 366.134533,
    "event_trace_ts": {
        "coll_start_ts": 1752867229235059,
        "coll_stop_ts": 1752867229235064,
        "kernel_events": [
            {
                "channel_id": 0,
                "kernel_start_ts": 1752867229235181,
                "kernel_stop_ts": 1752867229275811,
            },
            {
                "channel_id": 1,
                "kernel_start_ts": 1752867229235180,
                "kernel_stop_ts": 1752867229275812,
            },
        ],
    },
}
SEND = {
    "p2p": "Send",
    "p2p_sn": 4,
    "p2p_peer": 3,
    "p2p_msg_size_bytes": 536870912,
    "p2p_exec_time_us": 1154,
    "p2p_algobw_gbs": 465.2,
    "p2p_busbw_gbs": 465.2,
    "event_trace_ts": {"p2p_start_ts": 1752867229300000, "p2p_stop_ts": 1752867229301154},
}


def stored(*paths: Path, traced: tuple[int, ...] = ()) -> Store:
    store = Store.create()
    for rank in traced:
        store.con.execute("INSERT INTO rank (run, rank) VALUES ('r', ?)", [rank])
    sources = [Source.of(path, number) for number, path in enumerate(paths)]
    nccl_inspector.read(sources, ReadContext(store, "r"))
    return store


def rows(store: Store, sql: str) -> list[Any]:
    return list(store.con.execute(sql).fetchall())


def lines(*items: dict[str, Any]) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def file(tmp_path: Path, text: str, name: str = "host-pid100.log") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_sums_keep_algorithm_protocol_and_the_true_size(tmp_path: Path) -> None:
    text = lines(
        *(
            {**envelope(rank), "coll_perf": perf}
            for rank in range(2)
            for perf in (ALL_REDUCE, REDUCE_SCATTER)
        )
    )
    path = file(tmp_path, text)
    assert detect(Source.of(path, 0)) is nccl_inspector
    with stored(path) as store:
        assert rows(
            store,
            "SELECT op, bytes, algorithm, protocol, time_us, calls, ranks FROM nccl_choice "
            "ORDER BY op",
        ) == [
            ("all_reduce", 17179869184, "RING", "LL", 61974.0, 2, 8),
            ("reduce_scatter", 2147483648, "RING", "SIMPLE", 41057.0, 2, 8),
        ]
        bench = rows(store, "SELECT tool, op, bytes, algbw_gbps, busbw_gbps FROM bench ORDER BY op")
        assert [row[:3] for row in bench] == [
            ("inspector", "all_reduce", 17179869184),
            ("inspector", "reduce_scatter", 8 * 2147483648),
        ]
        assert bench[0][3] == pytest.approx(277.210914, rel=1e-4)
        assert bench[1][4] == pytest.approx(366.134533, rel=1e-4)


def test_format_4_3_carries_the_communicator_in_a_marker(tmp_path: Path) -> None:
    marker = {**envelope(2), "dump_stats": {"coll_records": 1, "coll_dropped_since_last_dump": 512}}
    other = {**envelope(1, 4, "0xbeef", 102), "dump_stats": {"coll_records": 1}}
    text = lines(marker, {"coll_perf": ALL_REDUCE}, other, {"coll_perf": ALL_REDUCE})
    with stored(file(tmp_path, text)) as store:
        assert rows(store, "SELECT ranks, calls FROM nccl_choice ORDER BY 1") == [(4, 1), (8, 1)]
        assert json.loads(rows(store, "SELECT drop_reasons FROM source")[0][0]) == {
            "overwritten before the Inspector dumped it": 512
        }


def test_verbose_records_become_events_on_global_ranks(tmp_path: Path) -> None:
    """GIVEN rank 5 of 8 is rank 1 of a pair THEN its calls there are rank 5's."""
    text = lines(
        {**envelope(5), "coll_perf": ALL_REDUCE},
        {**envelope(1, 2, "0xpair", 105), "coll_perf": REDUCE_SCATTER},
        {**envelope(5), "p2p_perf": SEND},
    )
    with stored(file(tmp_path, text)) as store:
        assert rows(
            store,
            "SELECT rank, collective, start_ns, dur_ns, group_size, process_group, seq, dst_rank "
            "FROM event JOIN comm_event USING (run, rank, event_id) ORDER BY start_ns",
        ) == [
            (5, "_reduce_scatter_base", 1752867229235180000, 40632000, 2, "0xpair", 1231, None),
            (5, "send", 1752867229300000000, 1154000, 8, "0x7f8c", 4, 3),
        ]
        assert rows(store, "SELECT rank, world_size, host, events_read FROM rank") == [
            (5, 8, "node1", 2)
        ]


def test_ranks_with_a_trace_get_no_second_set_of_events(tmp_path: Path) -> None:
    path = file(tmp_path, lines({**envelope(5), "coll_perf": REDUCE_SCATTER}))
    with stored(path, traced=(5,)) as store:
        assert rows(store, "SELECT count(*) FROM event") == [(0,)]
        assert rows(store, "SELECT calls FROM nccl_choice") == [(1,)]


def test_a_rank_out_of_range_costs_its_record(tmp_path: Path) -> None:
    good = envelope(0) | {"coll_perf": REDUCE_SCATTER}
    bad = envelope(2**40, ranks=2**41) | {"coll_perf": REDUCE_SCATTER}
    store = stored(file(tmp_path, lines(good, bad)))
    assert rows(store, "SELECT rank, world_size FROM rank") == [(0, 8)]


@pytest.mark.parametrize("rank", [1.6, "x", None, -1])
def test_a_record_of_an_unusable_rank_is_not_the_one_befores(tmp_path: Path, rank: Any) -> None:
    odd = envelope(1)
    odd["header"]["rank"] = rank
    text = lines({**envelope(0), "coll_perf": ALL_REDUCE}, {**odd, "coll_perf": REDUCE_SCATTER})
    with stored(file(tmp_path, text)) as store:
        assert rows(store, "SELECT op FROM nccl_choice") == [("all_reduce",)]
        assert json.loads(rows(store, "SELECT drop_reasons FROM source")[0][0]) == {
            "record without a usable rank": 1
        }


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        *(("header", "n_ranks", 2**40), ("header", "id", 7), ("coll_perf", "coll", 10**40)),
        ("coll_perf", "coll_exec_time_us", -1),
    ],
)
def test_a_dropped_record_is_counted_with_its_field(
    tmp_path: Path, part: str, key: str, value: Any
) -> None:
    record = envelope(0) | {"coll_perf": {**ALL_REDUCE}}
    record[part][key] = value
    good = {**envelope(0), "coll_perf": ALL_REDUCE}
    with stored(file(tmp_path, lines(good, record))) as store:
        assert json.loads(rows(store, "SELECT drop_reasons FROM source")[0][0]) == {
            f"record without a usable {key}": 1
        }


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        *(("coll_perf", "coll_sn", "²"), ("coll_perf", "coll_algobw_gbs", "much")),
        *(("coll_perf", "coll_busbw_gbs", [1]), ("coll_perf", "coll_algo", 7)),
        *(("coll_perf", "coll_proto", "x" * 300), ("coll_perf", "coll_timing_source", {"a": 1})),
        ("coll_perf", "event_trace_ts", 7),
        ("coll_perf", "event_trace_ts", {"coll_start_ts": 9, "coll_stop_ts": 2**70}),
        *(("header", "comm_name", 7), ("metadata", "pid", "x"), ("metadata", "hostname", [1])),
        ("metadata", "dump_timestamp_us", "never"),
    ],
)
def test_a_field_that_cannot_be_used_is_counted_by_its_name(
    tmp_path: Path, part: str, key: str, value: Any
) -> None:
    good = {**envelope(0), "coll_perf": {**ALL_REDUCE}}
    record = {**envelope(0), "coll_perf": {**ALL_REDUCE}}
    record[part][key] = value
    with stored(file(tmp_path, lines(good, record))) as store:
        assert rows(store, "SELECT events_read, note FROM source") == [
            (2, f"records without a usable {key}: 1")
        ]


def test_a_loss_that_is_no_number_is_counted_by_its_field(tmp_path: Path) -> None:
    lost = "p2p_dropped_since_last_dump"
    text = lines({**envelope(2), "dump_stats": {lost: "x"}}, {"coll_perf": ALL_REDUCE})
    with stored(file(tmp_path, text)) as store:
        assert rows(store, "SELECT note FROM source") == [(f"records without a usable {lost}: 1",)]


def test_records_after_a_damaged_marker_are_nobodys(tmp_path: Path) -> None:
    text = lines({**envelope(2), "dump_stats": {}}, {"coll_perf": ALL_REDUCE})
    with stored(file(tmp_path, text + text.replace("}", "", 1))) as store:
        assert rows(store, "SELECT sum(calls) FROM nccl_choice") == [(1,)]


def test_groups_without_a_world_have_no_global_ranks() -> None:
    members = {
        Member("n", pid, comm, rank, 2)
        for comm, first in (("a", 0), ("b", 10))
        for rank, pid in enumerate((first, first + 1))
    }
    assert global_ranks(members) == {}
    assert global_ranks({m for m in members if m.comm == "a"}) == {("n", 0): 0, ("n", 1): 1}


def test_damage_is_counted_and_the_rest_kept(tmp_path: Path) -> None:
    good = lines({**envelope(0), "coll_perf": ALL_REDUCE})
    bad = lines({**envelope(0), "coll_perf": {**ALL_REDUCE, "coll_msg_size_bytes": "much"}})
    text = good + "garbage\n" + bad + good + good[:50]
    with stored(file(tmp_path, text)) as store:
        assert rows(store, "SELECT events_read, events_dropped FROM source") == [(2, 3)]
        assert json.loads(rows(store, "SELECT drop_reasons FROM source")[0][0]) == {
            "line that is no JSON object": 1,
            "record without a usable coll_msg_size_bytes": 1,
            "last line cut": 1,
        }


def test_a_record_of_calls_alone_is_no_trace_that_lacks_its_device(tmp_path: Path) -> None:
    """THEN no note says that something else was recorded in the device's place."""
    labelled.write_inspector(labelled.inspector_lines(), tmp_path)
    with advisor.load(tmp_path) as run:
        assert "no-device-events" not in {
            note.code for one in run.report.runs for note in one.caveats
        }


@given(st.integers(1, 60_000))
def test_samples_stay_bounded_and_even(count: int) -> None:
    sample = Sample()
    for value in range(count):
        sample.add(float(value))
    assert sample.count == count
    assert len(sample.values) <= 8192
    steps = {b - a for a, b in zip(sample.values, sample.values[1:], strict=False)}
    assert len(steps) <= 1


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@pytest.mark.slow
@given(
    st.sampled_from([*REDUCE_SCATTER, "header", "metadata", "coll_perf", "dump_stats"]),
    values,
)
def test_fields_of_any_type_are_survived(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    item = {**envelope(0), "coll_perf": dict(REDUCE_SCATTER)}
    (item["coll_perf"] if key in REDUCE_SCATTER else item)[key] = value
    path = tmp_path_factory.mktemp("inspector") / "x.log"
    path.write_text(lines(item))
    with stored(path) as store:
        assert rows(store, "SELECT count(*) FROM source") == [(1,)]
