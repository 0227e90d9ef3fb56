"""Op tables: what becomes of their rows, and that the labelled straggler is named."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from advisor.engine import diagnose
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.ingest.readers.op_table import write
from advisor.metrics import derive
from advisor.store.store import Store

ORDER = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration")
Row = tuple[Any, ...]


def table_of(path: Path, rows: list[Row], **kinds: pa.DataType) -> Path:
    """A table of ``rows`` in :data:`ORDER`; ``kinds`` are columns' types other than inferred."""
    columns = {
        name: pa.array([row[place] for row in rows], type=kinds.get(name))
        for place, name in enumerate(ORDER)
    }
    pq.write_table(pa.table(columns), path)
    return path


def job(
    stages: int, replicas: int, slices: int, steps: tuple[int, ...], names: tuple[str, ...]
) -> list[Row]:
    """One operation of each name per rank and step, one after the other, 10 ms each."""
    rows = []
    for step in steps:
        for stage in range(stages):
            for replica in range(replicas):
                for piece in range(slices):
                    rank = (stage * replicas + replica) * slices + piece
                    rows += [
                        (replica, stage, rank, step, name, 0.5 + 0.01 * place, 0.01)
                        for place, name in enumerate(names)
                    ]
    return rows


def read(*paths: Path) -> Store:
    store = Store.create()
    ingest([str(path) for path in paths], store)
    return store


def rows(store: Store, sql: str) -> list[Row]:
    found: list[Row] = store.con.execute(sql).fetchall()
    return found


def test_steps_follow_one_another_and_keep_their_numbers(tmp_path: Path) -> None:
    path = table_of(tmp_path / "t", job(2, 1, 1, (3, 7), ("forward-compute", "forward-send")))
    store = read(path)
    assert rows(
        store,
        "SELECT name, category, class, start_ns, dur_ns FROM event WHERE rank = 1 "
        "ORDER BY start_ns, dur_ns DESC",
    ) == [
        ("ProfilerStep#3", "user_annotation", "annotation", 0, 20_000_000),
        ("forward-compute", "kernel", "compute", 0, 10_000_000),
        ("forward-send", "kernel", "comm", 10_000_000, 10_000_000),
        ("ProfilerStep#7", "user_annotation", "annotation", 20_000_000, 20_000_000),
        ("forward-compute", "kernel", "compute", 20_000_000, 10_000_000),
        ("forward-send", "kernel", "comm", 30_000_000, 10_000_000),
    ]
    derive(store)
    assert rows(store, "SELECT step, complete, end_ns - start_ns FROM step WHERE rank = 0") == [
        (3, True, 20_000_000),
        (7, True, 20_000_000),
    ]


def test_groups_and_partners_follow_from_stage_and_replica(tmp_path: Path) -> None:
    names = (
        *("params-all-gather", "forward-send", "forward-recv", "embedding-grads-all-reduce"),
        *("layernorm-grads-all-reduce", "optimizer-clip-main-grad"),
    )
    store = read(table_of(tmp_path / "t", job(3, 2, 2, (0,), names)))
    # rank = (stage * 2 + replica) * 2 + tensor rank
    assert rows(store, "SELECT process_group, ranks FROM process_group ORDER BY len(ranks), 1") == [
        ("data parallel, stage 0, tensor rank 0", [0, 2]),
        ("data parallel, stage 0, tensor rank 1", [1, 3]),
        ("data parallel, stage 1, tensor rank 0", [4, 6]),
        ("data parallel, stage 1, tensor rank 1", [5, 7]),
        ("data parallel, stage 2, tensor rank 0", [8, 10]),
        ("data parallel, stage 2, tensor rank 1", [9, 11]),
        ("embedding, replica 0, tensor rank 0", [0, 8]),
        ("embedding, replica 0, tensor rank 1", [1, 9]),
        ("embedding, replica 1, tensor rank 0", [2, 10]),
        ("embedding, replica 1, tensor rank 1", [3, 11]),
        ("tensor parallel, replica 0, stage 0", [0, 1]),
        ("tensor parallel, replica 0, stage 1", [4, 5]),
        ("tensor parallel, replica 0, stage 2", [8, 9]),
        ("tensor parallel, replica 1, stage 0", [2, 3]),
        ("tensor parallel, replica 1, stage 1", [6, 7]),
        ("tensor parallel, replica 1, stage 2", [10, 11]),
        ("world", list(range(12))),
    ]
    # Interleaved schedules send from the last stage to the first.
    assert rows(
        store,
        "SELECT rank, collective, src_rank, dst_rank FROM comm_event "
        "WHERE collective IN ('send', 'recv') AND rank IN (3, 7, 11) ORDER BY 1, 2 DESC",
    ) == [
        (3, "send", 3, 7),
        (3, "recv", 11, 3),
        (7, "send", 7, 11),
        (7, "recv", 3, 7),
        (11, "send", 11, 3),
        (11, "recv", 7, 11),
    ]


def test_a_collective_of_one_rank_is_no_communication(tmp_path: Path) -> None:
    names = ("layernorm-grads-all-reduce", "grads-reduce-scatter", "gc", "something-new")
    store = read(table_of(tmp_path / "t", job(2, 1, 1, (0,), names)))
    assert rows(store, "SELECT DISTINCT class FROM event WHERE device IS NOT NULL") == [("other",)]
    assert rows(store, "SELECT * FROM comm_event") == []


def test_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    good = job(2, 1, 1, (0, 1), ("forward-compute",))
    bad = [
        (0, 0, None, 0, "forward-compute", 0.0, 1.0),
        (0, -1, 0, 0, "forward-compute", 0.0, 1.0),
        (None, 0, 0, 0, "forward-compute", 0.0, 1.0),
        (0, 0, 0, None, "forward-compute", 0.0, 1.0),
        (0, 0, 0, 0, None, 0.0, 1.0),
        (0, 0, 0, -4, "forward-compute", 0.0, 1.0),
        (0, 0, 0, 0, "forward-compute", math.nan, 1.0),
        (0, 0, 0, 0, "forward-compute", 0.0, math.inf),
        (0, 0, 0, 0, "forward-compute", 0.0, -1.0),
        (0, 0, 0, 0, "forward-compute", 1e300, 1.0),
        (0, 0, 0, 0, "forward-compute", None, None),
        (0, 0, 2**40, 0, "forward-compute", 0.0, 1.0),
        (0, 2**20, 0, 0, "forward-compute", 0.0, 1.0),
    ]
    store = read(table_of(tmp_path / "t", [*good, *bad]))
    ((kept, dropped, reasons),) = rows(
        store, "SELECT events_read, events_dropped, drop_reasons FROM source"
    )
    assert (kept, dropped) == (len(good), len(bad))
    assert json.loads(reasons) == {
        "no usable rank": 2,
        "no usable dp_rank": 1,
        "no usable stage": 2,
        "no usable step": 2,
        "no optype": 1,
        "no usable time": 5,
    }
    # Eleven of them name their rank; the other two count at the first.
    ((lost, by_reason),) = rows(
        store, "SELECT events_dropped, drop_reasons FROM rank WHERE rank = 0"
    )
    assert lost == 13
    assert json.loads(by_reason) == {
        "no usable rank (of all ranks together)": 2,
        "no usable dp_rank": 1,
        "no usable stage": 2,
        "no usable step": 2,
        "no optype": 1,
        "no usable time": 5,
    }
    assert rows(store, "SELECT events_dropped, complete FROM rank WHERE rank = 1") == [(0, True)]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [2**31, 9], ids=["of no rank", "of a rank without other rows"])
def test_a_dropped_row_is_told_once_by_its_rank_or_the_first(tmp_path: Path, rank: int) -> None:
    table = job(2, 2, 1, (0, 1), ("forward-compute", "backward-compute"))
    table[0] = (*table[0][:5], -1e9, 0.01)
    stray = (0, 0, rank, 0, "forward-compute", 1e9, 0.01)
    store = read(table_of(tmp_path / "t", [*table, stray]))
    derive(store)
    told = {note.code: note.values["lost"] for note in diagnose(store).runs[0].notes
            if "lost" in note.values}  # fmt: skip
    of_nobody = "no usable time" if rank == 9 else "no usable rank"
    assert told == {
        "events-lost": {
            "missing row": 1,
            "no usable time": 1,
            f"{of_nobody} (of all ranks together)": 1,
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("rank", [2**40, -1], ids=["too large", "negative"])
def test_a_table_whose_ranks_are_mostly_impossible_is_damaged(tmp_path: Path, rank: int) -> None:
    """GIVEN four ranks, of which the last can be read."""
    whole = job(2, 2, 1, (0, 1, 2), ("forward-compute", "backward-compute"))
    table = [(*row[:2], rank if row[2] != 3 else 3, *row[3:]) for row in whole]
    store = read(table_of(tmp_path / "t", table))
    derive(store)
    verdict = diagnose(store).verdict
    assert verdict.reason == "damaged"
    assert verdict.values["lost"] == pytest.approx(3 / 4)


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.decimal128(9, 2)])
@pytest.mark.parametrize(
    ("place", "field"), [(0, "dp_rank"), (1, "stage"), (2, "rank"), (3, "step")]
)
def test_a_number_that_is_not_whole_is_no_other_ranks(
    tmp_path: Path, place: int, field: str, kind: pa.DataType
) -> None:
    table = job(2, 2, 1, (0, 1), ("forward-compute", "backward-compute"))
    damaged = [list(map(float, row[:4])) + list(row[4:]) for row in table]
    damaged[0][place] += 0.6  # the cast of the database would make it the next number
    path = table_of(tmp_path / "t", [tuple(row) for row in table])
    cells = pa.array([row[place] for row in damaged]).cast(kind)
    whole = pq.read_table(path)
    pq.write_table(whole.set_column(whole.schema.get_field_index(field), field, cells), path)
    store = read(path)
    ((kept, reasons),) = rows(store, "SELECT events_read, drop_reasons FROM source")
    assert kept == len(table) - 1
    assert json.loads(reasons) == {f"no usable {field}": 1, "missing row": 1}


def test_names_and_columns_of_other_types_stay_data(tmp_path: Path) -> None:
    name = "'); DROP TABLE event; --<script>"
    path = table_of(
        tmp_path / "t",
        [("0", "0", "0", "5", name, "0.25", "1e-3")],
        rank=pa.string(),
        start_ts=pa.string(),
    )
    store = read(path)
    assert rows(store, "SELECT name, dur_ns FROM event WHERE device IS NOT NULL") == [
        (name, 1_000_000)
    ]


def test_a_second_table_is_counted_as_dropped(tmp_path: Path) -> None:
    one = table_of(tmp_path / "a.parquet", job(2, 1, 1, (0,), ("forward-compute",)))
    two = table_of(tmp_path / "b.parquet", job(2, 1, 1, (0,), ("forward-compute",)))
    store = read(one, two)
    assert rows(store, "SELECT events_read, events_dropped FROM source ORDER BY source_id") == [
        (2, 0),
        (0, 2),
    ]


@pytest.mark.parametrize("damage", ["cut", "torn", "other columns", "gzip", "nothing usable"])
def test_what_is_no_op_table_is_refused_with_a_reason(tmp_path: Path, damage: str) -> None:
    path = table_of(tmp_path / "t.parquet", job(2, 2, 1, tuple(range(50)), ("forward-compute",)))
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "torn":
        path.write_bytes(data[:4] + b"\xff" * 400 + data[404:])
    elif damage == "other columns":
        pq.write_table(pa.table({"a": [1]}), path)
    elif damage == "gzip":
        path.write_bytes(gzip.compress(data))
    else:
        table_of(path, [(0, 0, -1, 0, "forward-compute", 0.0, 1.0)])
    with pytest.raises(AdvisorError) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.fixture(scope="module")
def published(shared_data: Path) -> tuple[Store, dict[str, Any]]:
    """The table labelled ``ST`` (stage partitioning), and what its authors computed of it."""
    folder = shared_data / "straggler_op_table"
    store = read(folder / "trace-ST.parquet")
    derive(store)
    return store, json.loads((folder / "result-ST.json").read_text())


def test_published_table_is_matched_whole_and_its_steps_have_their_length(
    published: tuple[Store, dict[str, Any]],
) -> None:
    store, truth = published
    assert rows(store, "FROM unmatched") == []
    assert rows(store, "SELECT DISTINCT stages, micro_batches FROM pipeline_stage") == [(4, 4)]
    found = dict(rows(store, "SELECT step, max(window_ns) FROM step_breakdown GROUP BY step"))
    theirs = {int(step): seconds * 1e9 for step, seconds in truth["step_t_base"].items()}
    assert statistics.mean(found.values()) == pytest.approx(
        statistics.mean(theirs.values()), rel=0.003
    )
    for step, length in theirs.items():
        # A window ends with the rank's own first event of the next step, theirs with the last.
        assert found[step] == pytest.approx(length, rel=0.02), step


def test_the_labelled_stage_is_named_and_its_cost_is_theirs(
    published: tuple[Store, dict[str, Any]],
) -> None:
    """Their simulation: stage 3 (ranks 6, 7) slows the job by 1.18; all even, a step gains that."""
    store, truth = published
    report = diagnose(store)
    by_stage = truth["blocking_decompose_by_stage"]
    assert max(by_stage, key=by_stage.get) == "3"
    urgent = [finding for finding in report.findings if finding.severity != "info"]
    # Four micro-batches over four stages idle three slots of seven by design: not their question.
    assert {finding.rule for finding in urgent} == {"imbalanced-pipeline-stages", "pipeline-bubble"}
    (uneven,) = [finding for finding in urgent if finding.rule == "imbalanced-pipeline-stages"]
    assert uneven.ranks == [6, 7]
    gain_s = statistics.mean(truth["step_t_nodelay"].values()) - statistics.mean(
        truth["step_t_noblk"].values()
    )
    assert uneven.savings_low_ns is not None and uneven.savings_high_ns is not None
    assert uneven.savings_low_ns < gain_s * 1e9 < uneven.savings_high_ns


def test_a_step_that_lost_rows_is_no_step_of_its_rank_and_copies_count_once(
    tmp_path: Path,
) -> None:
    """GIVEN a rank without some rows of one step, and rows of another twice."""
    whole = job(1, 2, 1, (1, 2, 3), ("forward-compute", "backward-compute", "optimizer"))
    lost = [row for row in whole if (row[2], row[3]) == (0, 2)][:2]
    twice = [row for row in whole if (row[2], row[3]) == (1, 3)]
    store = read(table_of(tmp_path / "t.parquet", [r for r in whole if r not in lost] + twice))
    reasons = "SELECT rank, drop_reasons, complete FROM rank ORDER BY rank"
    assert [(rank, json.loads(why), whole) for rank, why, whole in rows(store, reasons)] == [
        (0, {"missing row": 2}, False),
        (1, {"repeated row": 3}, False),
    ]
    marks = "SELECT rank, list(name ORDER BY name) FROM event WHERE class = 'annotation' GROUP BY 1"
    assert {rank: len(names) for rank, names in rows(store, marks)} == {0: 2, 1: 3}


def test_of_a_long_table_steps_from_all_over_it_are_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN five times the rows that are read, each fifth step with a pause, some rows damaged."""
    monkeypatch.setattr(write, "MOST_ROWS", 6 * 200 // 5)
    names = ("forward-compute", "backward-compute", "optimizer")
    table = job(1, 2, 1, tuple(range(0, 400, 2)), names)
    table = [(*row[:6], row[6] * (3 if row[3] % 10 == 0 else 1)) for row in table]
    stepless = [(0, 0, 0, None, "forward-compute", 0.0, 1.0)] * 100
    store = read(table_of(tmp_path / "t.parquet", [*table, *stepless]))
    kept = [
        step
        for (step,) in rows(
            store,
            "SELECT DISTINCT substr(name, 14)::INT FROM event "
            "WHERE class = 'annotation' ORDER BY 1",
        )
    ]
    shares = [step // 2 // 6 for step in kept]  # 1,300 rows: every sixth step
    assert shares == list(range(len(kept))) and len(kept) in (33, 34)
    assert 5 <= sum(step % 10 == 0 for step in kept) <= 8  # a fifth of them, as of all
    ((read_events, reasons, note),) = rows(
        store, "SELECT events_read, drop_reasons, note FROM source"
    )
    assert read_events == 6 * len(kept)
    assert json.loads(reasons)["no usable step"] in (16, 17)
    assert note.startswith(f"{len(kept)} of its 200 steps were read, spread over all of them")


def test_a_table_whose_steps_are_wide_keeps_twenty_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "MOST_ROWS", 1)
    store = read(table_of(tmp_path / "t.parquet", job(1, 4, 1, tuple(range(60)), ("optimizer",))))
    assert rows(store, "SELECT events_read, events_dropped FROM source") == [(20 * 4, 0)]
