"""What one task does with files that hold other ranks than planned, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.ingest.ray_look import look_at
from advisor.ingest.ray_plan import Piece, list_inputs, pieces
from advisor.ingest.ray_task import Job, read_batch, read_together
from advisor.store.batches import clear_unfinished
from advisor.store.parquet import prepare_parquet
from advisor.store.store import SCHEMA_VERSION, Store
from tests.support.traces import event, kineto

_COUNTS = "SELECT rank, count(*) FROM event GROUP BY ALL ORDER BY ALL"


def _late(number: int) -> dict[str, Any]:
    """An event that tells its rank (1 or 2) behind 100 KB of others that tell none."""
    args = {"device": 0, "stream": 7, "more": "x" * 1000}
    return event(number, args=args if number < 100 else args | {"rank": 1 + number % 2})


@pytest.mark.slow
def test_a_trace_that_tells_several_ranks_late_is_read_with_what_needs_the_whole_run(
    tmp_path: Path,
) -> None:
    """GIVEN a merged trace that looks like one of rank 1 beside one of rank 0."""
    traces, folder = tmp_path / "traces", tmp_path / "set"
    traces.mkdir()
    (traces / "a.json").write_text(kineto([event(number) for number in range(5)]))
    merged = [_late(number) for number in range(200)]
    (traces / "b.json").write_text(kineto(merged, distributedInfo={}))
    prepare_parquet(folder, schema_version=SCHEMA_VERSION)
    apart, together = pieces(look_at(list_inputs([traces])))
    assert [piece.rank for piece in apart] == [0, 1]
    assert not together.items

    job = Job(folder, "run")
    done = read_batch(apart, job)
    assert (done.ranks, done.failed) == ((0,), ())
    assert [Path(item.place).name for item in done.later] == ["b.json"]
    rest = read_together(Piece(done.later), (), done.ranks, job)
    assert (rest.ranks, rest.failed) == ((1, 2), ())
    clear_unfinished(folder, "run", ranks={0, 1, 2}, names={"0-0-1", rest.batch})
    with Store.open(folder) as store:
        assert store.con.execute(_COUNTS).fetchall() == [(0, 5), (1, 150), (2, 50)]
        sources = store.con.execute("SELECT rank, note FROM source ORDER BY source_id").fetchall()
    assert sources == [(0, None), (None, "holds ranks 1, 2")]
