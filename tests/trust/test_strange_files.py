"""Files that a stranger may have: names that are no UTF-8, recordings in which nothing lasts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import advisor
from advisor.cli._main import main
from advisor.errors import AdvisorError
from benchmarks.fuzz import documents
from tests.support.traces import LAYOUTS, event

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.parametrize("form", ["kineto", "nccl_log", "nsys", "op_table", "flight_recorder"])
def test_a_name_that_is_no_utf8(form: str, tmp_path: Path) -> None:
    """GIVEN a folder with a name in Latin-1 THEN its files are read, or refused for that."""
    write, sound = documents.FORMATS[form]
    (tmp_path / "made").mkdir()
    write(sound(), tmp_path / "made")
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 'x'"))
    (tmp_path / "made").rename(strange)
    if form == "op_table":
        with pytest.raises(AdvisorError, match="not UTF-8"):
            advisor.load(strange)
        return
    with advisor.load(strange) as run:
        ((path, read),) = run.store.con.execute(
            "SELECT any_value(path), sum(events_read) FROM source"
        ).fetchall()
        assert read > 0
        assert "caf? 'x'" in path
        assert "caf" in run.render("html")


@pytest.mark.parametrize("layout", ["kineto", "compact"])
def test_a_recording_in_which_nothing_lasts(layout: str, tmp_path: Path) -> None:
    """GIVEN events without a duration THEN there is no step, and no internal error."""
    events = [{**event(n, args={"device": 0, "stream": 7}), "dur": 0} for n in range(4)]
    (tmp_path / "rank0.json").write_text(LAYOUTS[layout](events))
    with advisor.load(tmp_path) as run:
        assert run.store.con.execute("SELECT count(*) FROM step").fetchall() == [(0,)]
        run.render("html")


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", "a" * 5000],
        ["open", "9" * 5000, "FLIGHT"],
        ["ingest", "FLIGHT", "-o", "OUT/\udcff.duckdb"],
        ["ingest", "FLIGHT", "-o", "OUT/\udcff/"],
        ["--config", "/dev/zero", "explain", "steps"],
        ["--config", "/", "explain", "steps"],
        ["--config", "OUT/deep.toml", "explain", "steps"],
        ["--config", "OUT/long.toml", "explain", "steps"],
    ],
    ids=lambda words: " ".join(words)[:40].encode(errors="replace").decode(),
)
def test_names_and_settings_that_cannot_be_are_one_error(
    words: list[str], tmp_path: Path, fixtures_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000)
    (tmp_path / "long.toml").write_text("a = " + "9" * 5000)
    places = {"FLIGHT": str(fixtures_dir / "flight-gloo-desync"), "OUT": str(tmp_path)}
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("advisor: ")
    assert "internal error" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep.toml", "long.toml"]
