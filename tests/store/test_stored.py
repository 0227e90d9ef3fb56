"""A store's file may be damaged, or made by somebody else to be opened."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest

import advisor
from advisor.cli._main import main
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.store.store import Store


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, fixtures_dir: Path) -> Path:
    place = tmp_path_factory.mktemp("stored") / "run.duckdb"
    with Store.create(place) as store:
        ingest([fixtures_dir / "flight-gloo-desync"], store)
        store.save()
    return place


@pytest.fixture
def changed(whole: Path, tmp_path: Path) -> Callable[[Sequence[str]], Path]:
    def change(statements: Sequence[str]) -> Path:
        place = tmp_path / "run.duckdb"
        shutil.copy(whole, place)
        with duckdb.connect(str(place)) as con:
            for statement in statements:
                con.execute(statement)
        return place

    return change


def test_a_view_that_reads_a_file_is_refused_unread(
    changed: Callable[[Sequence[str]], Path], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("x")
    place = changed(
        [
            "ALTER TABLE meta RENAME TO kept",
            "CREATE VIEW meta AS SELECT kept.* FROM kept,"
            f" (SELECT error(content) FROM read_text('{tmp_path / 'secret'}'))",
        ]
    )
    with pytest.raises(AdvisorError, match="view 'meta'"):
        advisor.load(place)


def test_a_computed_column_is_refused(changed: Callable[[Sequence[str]], Path]) -> None:
    place = changed(["CREATE TABLE more (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1))"])
    with pytest.raises(AdvisorError, match="computed column 'b'"):
        advisor.load(place)


def test_a_store_reaches_no_file(whole: Path) -> None:
    with Store.open(whole) as store, pytest.raises(duckdb.PermissionException):
        store.con.execute("SELECT * FROM read_text('/etc/hostname')")


@pytest.mark.parametrize("draw", range(6))
def test_damage_of_a_store_is_called_damage(
    draw: int, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GIVEN a store with changed or missing bytes THEN it is read whole, or called damaged."""
    rng = random.Random(draw)
    data = bytearray(whole.read_bytes())
    if draw % 3 == 0:
        del data[rng.randrange(20_000, len(data)) :]
    for _ in range(4):
        at = rng.randrange(4096, len(data))
        data[at] ^= 1 + rng.randrange(255)
    place = tmp_path / "run.duckdb"
    place.write_bytes(data)
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", str(place)])
    said = capsys.readouterr().err
    assert ended.value.code == 0 or "is damaged" in said
    assert "internal error" not in said


@pytest.mark.parametrize("draw", range(4))
def test_damaged_files_of_events_are_called_damaged(
    draw: int, tmp_path: Path, fixtures_dir: Path
) -> None:
    """GIVEN a Parquet store of which a file of events is garbled THEN it is refused as damaged."""
    with Store.create() as store:
        ingest([fixtures_dir / "flight-gloo-desync"], store)
        store.write_folder(tmp_path / "set")
    files = sorted((tmp_path / "set" / "comm_event").rglob("*.parquet"))
    place = files[draw % len(files)]
    data = bytearray(place.read_bytes())
    middle = range(4, len(data) - 8) if draw < 2 else range(len(data) - 400, len(data) - 8)
    for at in middle[::5]:
        data[at] ^= 0x5A
    place.write_bytes(data)
    with pytest.raises(AdvisorError, match=r"damaged|cannot be read"):
        advisor.load(tmp_path / "set").findings()
