"""Two runs on one recording give the same report, in whatever order its rows were stored."""

from __future__ import annotations

import pytest

from advisor.engine import diagnose
from advisor.report import render
from advisor.store.store import Store
from tests.report.support import make_store


def stored_anew(store: Store, seed: float) -> None:
    """Write the rows of all tables again in another order, as threads that end in turn do."""
    store.con.execute("SELECT setseed(?)", [seed])
    tables = store.con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND NOT temporary"
    ).fetchall()
    for (table,) in tables:
        store.con.execute(f'CREATE TEMP TABLE other AS SELECT * FROM "{table}" ORDER BY random()')
        store.con.execute(f'DELETE FROM "{table}"')
        store.con.execute(f'INSERT INTO "{table}" SELECT * FROM other')
        store.con.execute("DROP TABLE other")


@pytest.mark.long
@pytest.mark.slow
def test_the_report_does_not_depend_on_the_order_of_rows() -> None:
    """All steps of this straggler are alike: whichever waits longest is a tie."""
    with make_store(late_rank=2, steps=12) as store:
        seen = []
        for number in range(4):
            if number:
                stored_anew(store, number / 10)
            report = diagnose(store, command="advisor diagnose x")
            seen.append((report.model_dump_json(), render(report, store, "html")))
    assert report.findings[0].rule == "straggler-rank"
    assert report.findings[0].evidence.window is not None
    for other in seen[1:]:
        assert other == seen[0]
