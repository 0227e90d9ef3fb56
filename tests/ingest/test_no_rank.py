"""JSON beside the traces is no rank: a rank has events, or says its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.ingest.readers import kineto as reader
from advisor.ingest.source import Source
from advisor.store.store import Store
from tests.support.traces import bare, event, kineto, read

_NO_TRACE = {
    "empty list": "[]",
    "blank list": "[ ]",
    "no phase": '[{"name":"x","ts":1}]',
    "metadata only": '[{"ph":"M","name":"process_name","pid":1,"ts":0,"args":{"name":"x"}}]',
    "empty trace": '{"traceEvents":[]}',
    "log of a training": '[{"ph":"train","loss":3}]',
}


def _folder(place: Path, *, stated: bool) -> Path:
    place.mkdir()
    for rank in (0, 1):
        events = [event(number) for number in range(9)]
        text = kineto(events, distributedInfo=_info(rank)) if stated else bare(events)
        (place / f"trace_{'ab'[rank]}.json").write_text(text)
    return place


def _info(rank: Any) -> dict[str, Any]:
    return {"backend": "nccl", "rank": rank, "world_size": 2}


def _ranks(store: Store) -> list[tuple[Any, ...]]:
    return store.con.execute(
        "SELECT rank, events_read, complete FROM rank ORDER BY rank"
    ).fetchall()


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("kind", _NO_TRACE)
def test_a_file_without_events_is_no_rank(tmp_path: Path, kind: str, *, stated: bool) -> None:
    """GIVEN such a file, first in order of names THEN the ranks are those without it."""
    folder = _folder(tmp_path / "run", stated=stated)
    (folder / "metrics.json").write_text(_NO_TRACE[kind])
    with Store.create() as store:
        ingest([folder], store)
        assert _ranks(store) == [(0, 9, True), (1, 9, True)]
        assert store.con.execute(
            "SELECT DISTINCT rank FROM event UNION ALL SELECT DISTINCT rank FROM event ORDER BY 1"
        ).fetchall() == [(0,), (0,), (1,), (1,)]
        ((rank, events, note),) = store.con.execute(
            "SELECT rank, events_read, note FROM source WHERE path LIKE '%metrics.json'"
        ).fetchall()
    assert (rank, events) == (None, 0)
    assert (
        note == "holds no event that can be used, and does not say its rank: it counts as no rank"
    )


def test_a_cluster_reads_a_file_without_events_after_the_ranks(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text("[]")
    assert reader.rank_hint(Source.of(path, 0)).several
    named = tmp_path / "rank1.json"
    named.write_text("[]")
    assert not reader.rank_hint(Source.of(named, 0)).several


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rank1.json", '{"traceEvents":[]}'),
        ("other.json", json.dumps({"distributedInfo": _info(1), "traceEvents": []})),
    ],
)
def test_a_rank_that_says_its_number_stays_one_and_is_incomplete(
    tmp_path: Path, name: str, text: str
) -> None:
    folder = _folder(tmp_path / "run", stated=True)
    (folder / "trace_b.json").unlink()
    (folder / name).write_text(text)
    with Store.create() as store:
        ingest([folder], store)
        assert _ranks(store) == [(0, 9, True), (1, 0, False)]


def test_no_number_is_guessed_beyond_the_size_of_the_job(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "run", stated=True)
    extra = folder / "server.json"
    extra.write_text(bare([event(1)]))
    with Store.create() as store:
        ingest([folder], store)
        assert _ranks(store) == [(0, 9, True), (1, 9, True)]
        assert store.con.execute("SELECT count(*) FROM event").fetchall() == [(18,)]
        assert store.con.execute(
            "SELECT rank, note FROM source WHERE path LIKE '%server.json'"
        ).fetchall() == [
            (None, "does not say its rank, and other files are all of the job's ranks (2)")
        ]
    with Store.create() as store, pytest.raises(AdvisorError, match="all of the job's ranks"):
        ingest([folder / "trace_a.json", folder / "trace_b.json", extra], store)


def test_half_a_rank_is_none(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(kineto([event(1)], distributedInfo=_info(1.5)))
    store = read(path)
    assert _ranks(store) == [(0, 1, True)]
    ((note,),) = store.con.execute("SELECT note FROM source").fetchall()
    assert note == "the trace says no rank that can be used: taken as rank 0"


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["trace_04.json"], [0]),
        (["run_12.pt.trace.json"], [0]),
        (["rank4.json"], [4]),
        (["trace_04.json", "trace_05.json"], [4, 5]),
    ],
)
def test_a_bare_number_in_the_only_name_is_no_rank(
    tmp_path: Path, names: list[str], ranks: list[int]
) -> None:
    for name in names:
        (tmp_path / name).write_text(bare([event(number) for number in range(9)]))
    with Store.create() as store:
        ingest([tmp_path], store)
        assert [rank for rank, *_ in _ranks(store)] == ranks
