"""Exports that were cut or damaged: every row of a page that is there arrives, the rest is told."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.ingest.readers import nsys
from advisor.ingest.readers.nsys.open import opened
from advisor.ingest.readers.nsys.pages import Losses, Pages
from advisor.ingest.readers.nsys.salvage import TABLES, salvage
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store
from tests.ingest.readers.test_nsys import export, global_id, rows

pytestmark = pytest.mark.slow

_PAGE = 4096
_KERNELS = "SELECT count(*), sum(dur_ns) FROM event WHERE category = 'kernel' AND stream = 9"


def long_export(path: Path, kernels: int = 4_000) -> Path:
    """The export of two ranks with so many kernels that their table is a tree of pages."""
    export(path)
    con = sqlite3.connect(path)
    con.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 9, ?, ?, 1, 1)",
        [(10_000 + n * 10, 10_005 + n * 10, 1000 + n, global_id(100)) for n in range(kernels)],
    )
    con.commit()
    con.close()
    return path


def stored(path: Path) -> Store:
    store = Store.create()
    nsys.read([Source.of(path, 0)], ReadContext(store, "r"))
    return store


def _cut(path: Path, size: int) -> Path:
    target = path.with_name("cut.sqlite")
    target.write_bytes(path.read_bytes()[:size])
    return target


def test_what_is_copied_is_what_sqlite_reads(tmp_path: Path) -> None:
    """GIVEN a whole file with deep trees, long values and all types THEN nothing differs."""
    path = long_export(tmp_path / "a.sqlite")
    con = sqlite3.connect(path)
    con.executemany(
        "INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
        [
            *((f"n{n}", "x" * n) for n in (0, 60, 4_000, 4_061, 4_062, 9_000, 70_000)),
            *(("v", value) for value in (None, -1, 127, -(1 << 23), 1 << 40, 1 << 62, 0, 1, 2.5)),
            ("ü", b"\x00\xff"),
        ],
    )
    con.execute("ALTER TABLE StringIds ADD COLUMN later TEXT")
    con.execute("INSERT INTO StringIds VALUES (-7, 'before', 'all')")
    con.commit()
    con.execute("VACUUM")
    target = tmp_path / "b.sqlite"
    found = salvage(path, target)
    assert found.lost == {}
    copied = sqlite3.connect(target)
    tables = [name for (name,) in copied.execute("SELECT name FROM sqlite_master")]
    assert len(tables) >= 8
    for name in tables:
        sql = f"SELECT * FROM {name} ORDER BY rowid"
        assert copied.execute(sql).fetchall() == con.execute(sql).fetchall(), name
    with Pages(path) as pages:
        (root,) = con.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'META_DATA_EXPORT'"
        ).fetchone()
        losses = Losses()
        direct = [tuple(values) for _, values in pages.rows(root, losses)]
        assert losses == Losses()
    assert direct == con.execute("SELECT * FROM META_DATA_EXPORT ORDER BY rowid").fetchall()


@pytest.mark.parametrize("missing", [1, 100, _PAGE, 5 * _PAGE, 5 * _PAGE + 1_000])
def test_a_cut_export_keeps_every_row_that_is_there(tmp_path: Path, missing: int) -> None:
    path = long_export(tmp_path / "a.sqlite")
    data = path.read_bytes()
    cut = _cut(path, len(data) - missing)
    before = cut.read_bytes()
    with stored(cut) as store:
        kept = rows(store, _KERNELS)[0][0]
        ((dropped, note),) = rows(store, "SELECT events_dropped, note FROM source")
        assert rows(store, "SELECT bool_or(complete) FROM rank") == [(False,)]
        # The last kernels stand in the last pages; the ones before are all there, in order.
        starts = rows(store, "SELECT start_ns FROM event WHERE stream = 9 ORDER BY event_id")
        assert starts == sorted(starts)
        assert len(set(starts)) == kept
    pages = -(-missing // _PAGE)
    assert re.search(rf"cut: {pages} of its [\d,]+ pages (is|are) missing", note)
    per_page = 4_000 / (len(data) // _PAGE - 15)
    assert 4_000 - (pages + 1) * per_page * 1.5 < kept < 4_000
    assert dropped >= 4_000 - kept - per_page * 1.5
    assert cut.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.sqlite", "cut.sqlite"]


@pytest.mark.long
def test_no_row_is_made_up_where_a_page_breaks_off(tmp_path: Path) -> None:
    """sqlite takes the bytes behind the end for zeros, and would give rows of them."""
    path = long_export(tmp_path / "a.sqlite")
    truth = set(sqlite3.connect(path).execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"))
    size = len(path.read_bytes())
    for missing in range(0, _PAGE, 97):
        with opened(Source.of(_cut(path, size - missing), 0)) as database:
            for row in database.rows("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"):
                assert row in truth


def test_a_damaged_page_in_the_middle_costs_its_own_rows_only(tmp_path: Path) -> None:
    path = long_export(tmp_path / "a.sqlite")
    data = bytearray(path.read_bytes())
    place = len(data) // _PAGE // 2 * _PAGE
    assert data[place] == 13  # a leaf of the kernels' table
    cells = int.from_bytes(data[place + 3 : place + 5], "big")
    data[place : place + _PAGE] = bytes(_PAGE)
    path.write_bytes(data)
    with stored(path) as store:
        assert rows(store, _KERNELS) == [(4_000 - cells, (4_000 - cells) * 5)]
        ((dropped, reasons, note),) = rows(
            store, "SELECT events_dropped, drop_reasons, note FROM source"
        )
        assert rows(store, "SELECT sum(events_dropped) FROM rank") == [(dropped,)]
        assert rows(store, "SELECT drop_reasons FROM rank ORDER BY rank")[0][0] == (
            '{"range without an end": 1, '
            f'"row in a missing or damaged page (of ranks 3, 5 together)": {cells}}}'
        )
    assert f'"row in a missing or damaged page": {cells}' in reasons
    assert dropped == cells + 2  # and the two ranges that never ended
    assert f"1 page of CUPTI_ACTIVITY_KIND_KERNEL lost, with {cells} rows" in note


def test_a_cut_list_of_tables_is_no_lost_event(tmp_path: Path) -> None:
    """GIVEN the list of tables goes on in the last page, which is cut off."""
    path = tmp_path / "a.sqlite"
    con = sqlite3.connect(export(path))
    con.executescript(";".join(f"CREATE VIEW v{n} AS SELECT '{'x' * 900}'" for n in range(9)))
    con.close()
    data = path.read_bytes()
    with stored(_cut(path, len(data) - _PAGE)) as store:
        ((dropped, note),) = rows(store, "SELECT events_dropped, note FROM source")
        assert rows(store, "SELECT count(*) FROM event") == [(20,)]
        assert rows(store, "SELECT bool_or(complete) FROM rank") == [(False,)]
    assert dropped == 2  # the two ranges that never ended
    assert "the list of tables is cut or damaged itself" in note


def test_keys_that_are_damaged_claim_no_more_rows_than_a_page_holds(tmp_path: Path) -> None:
    path = long_export(tmp_path / "a.sqlite")
    data = bytearray(path.read_bytes())
    (root,) = (
        sqlite3.connect(path)
        .execute("SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'")
        .fetchone()
    )
    page = (root - 1) * _PAGE
    second = page + int.from_bytes(data[page + 14 : page + 16], "big")
    data[second : second + 4] = bytes(4)  # the second page of rows is nowhere
    data[second + 4] |= 0xC0  # and its largest row id is far too large
    path.write_bytes(data)
    with stored(path) as store:
        (kept,) = rows(store, "SELECT count(*) FROM event WHERE stream = 9")[0]
        (dropped,) = rows(store, "SELECT events_dropped FROM source")[0]
    assert 3_500 < kept < 4_000
    assert 4_000 - kept <= dropped < 500


def test_the_names_table_is_cut_and_the_events_stay(tmp_path: Path) -> None:
    """GIVEN the page of StringIds is gone THEN events stay, nameless, and the note says of what."""
    path = long_export(tmp_path / "a.sqlite")
    (root,) = (
        sqlite3.connect(path)
        .execute("SELECT rootpage FROM sqlite_master WHERE name = 'StringIds'")
        .fetchone()
    )
    data = bytearray(path.read_bytes())
    data[(root - 1) * _PAGE : root * _PAGE] = bytes(_PAGE)
    path.write_bytes(data)
    with stored(path) as store:
        assert rows(store, _KERNELS) == [(4_000, 20_000)]
        assert "of StringIds lost" in rows(store, "SELECT note FROM source")[0][0]


def test_trees_that_bite_their_tails_end(tmp_path: Path) -> None:
    path = long_export(tmp_path / "a.sqlite")
    data = bytearray(path.read_bytes())
    (root,) = (
        sqlite3.connect(path)
        .execute("SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'")
        .fetchone()
    )
    page = (root - 1) * _PAGE
    assert data[page] == 5
    data[page + 8 : page + 12] = root.to_bytes(4, "big")
    path.write_bytes(data[: len(data) - 1])
    with stored(path) as store:
        ((count, _),) = rows(store, _KERNELS)
        assert 3_500 < count < 4_000


def test_diagnose_says_what_is_missing(tmp_path: Path) -> None:
    path = long_export(tmp_path / "a.sqlite")
    with advisor.load(_cut(path, len(path.read_bytes()) - 1)) as run:
        notes = run.diagnose().runs[0].notes
    assert any("cut.sqlite: the file is cut: 1 of its" in note.text for note in notes)
    assert any(note.code == "ranks-cut" for note in notes)


def test_every_table_that_the_reader_asks_for_is_salvaged() -> None:
    named: set[Any] = set()
    for file in Path(nsys.__file__).parent.glob("*.py"):
        named |= set(
            re.findall(
                r"\b(CUPTI_ACTIVITY_KIND_[A-Z]+|NVTX_EVENTS|NVTX_PAYLOAD_SCHEMA[A-Z_]+|StringIds|TARGET_INFO_[A-Z_]+"
                r"|ANALYSIS_DETAILS|META_DATA_CAPTURE|ENUM_CUPTI_SYNC_TYPE)\b",
                file.read_text(),
            )
        )
    assert named == set(TABLES)
