"""GIVEN real traces WHEN they are ingested THEN every event equals an independent reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.ingest import ingest
from advisor.store.store import Store
from tests.support import reference_loader

pytestmark = pytest.mark.usefixtures("both_paths")

_FOLDERS = [
    "dlrm_8xV100",
    "ddp_2xA100_metadata",
    "ddp_8xMI300",
    "cuda_sync_alexnet",
    "cpu_only_rank34",
]


def stored_events(store: Store, rank: int) -> list[dict[str, object]]:
    """The rows of one rank, in file order, with the reference's columns."""
    names = list(reference_loader.COLUMNS)
    rows = store.con.execute(
        f"SELECT {', '.join(names)} FROM event LEFT JOIN comm_event USING (run, rank, event_id) "
        "WHERE rank = ? ORDER BY event_id",
        [rank],
    ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("folder", _FOLDERS)
def test_every_event_equals_the_reference(shared_data: Path, folder: str) -> None:
    paths = sorted((shared_data / folder).glob("*.json.gz"))
    with Store.create() as store:
        ingest(paths, store)
        assert store.con.execute("SELECT sum(events_dropped) FROM rank").fetchall() == [(0,)]
        for path in paths:
            trace = reference_loader.load(path)
            rank = reference_loader.rank_of(trace)
            assert rank is not None
            expected = reference_loader.events(trace)
            assert stored_events(store, rank) == expected
            assert store.con.execute(
                "SELECT events_read, complete FROM rank WHERE rank = ?", [rank]
            ).fetchall() == [(len(expected), True)]


def test_known_totals(shared_data: Path) -> None:
    """Totals that other tools report for these traces (shared data's README)."""
    expected = {
        "ddp_2xA100_metadata": (21, 46_876_493),
        "ddp_8xMI300": (17, 71_516_523),
    }
    for folder, (calls, busy_ns) in expected.items():
        with Store.create() as store:
            ingest([shared_data / folder], store)
            row = store.con.execute(
                "SELECT count(*), sum(dur_ns) FROM event WHERE class = 'comm'"
            ).fetchall()
            assert row == [(calls, busy_ns)]
