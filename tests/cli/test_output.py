"""Where results go is decided before any work starts, and a file never turns into a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advisor.cli._output import plan_outputs, use_color
from advisor.errors import AdvisorError
from tests.support.command import advisor
from tests.support.marks import long


def planned(formats: str | None, output: str | None) -> dict[str, str | None]:
    outputs = plan_outputs(formats, output, force=False)
    return {item.format: item.path and str(item.path) for item in outputs}


@pytest.mark.parametrize(
    ("formats", "output", "expected"),
    [
        ("text", None, {"text": None}),
        ("text", "a.txt", {"text": "a.txt"}),
        ("json", None, {"json": None}),
        (None, None, {"text": None}),
        (None, "x.html", {"html": "x.html"}),
        (None, "x.JSON", {"json": "x.JSON"}),
        (None, "junit.xml", {"junit": "junit.xml"}),
        (None, "x.log", {"text": "x.log"}),
        (None, "new/", {"text": "new/report.txt"}),
        ("html", None, {"html": "report.html"}),
        ("html", "x.html", {"html": "x.html"}),
        ("html", "new/", {"html": "new/report.html"}),
        ("text,html", None, {"text": None, "html": "report.html"}),
        ("text,json", None, {"text": None, "json": "findings.json"}),
        ("text,html", "x.html", {"text": None, "html": "x.html"}),
        ("html,text,html", "x.html", {"text": None, "html": "x.html"}),
        ("text,html", "new", {"text": None, "html": "new/report.html"}),
        ("text,html", "new/", {"text": None, "html": "new/report.html"}),
        ("text,html,json", "new", {"text": None, "html": "new/report.html",
                                   "json": "new/findings.json"}),
        ("html,junit", "new/", {"html": "new/report.html", "junit": "new/junit.xml"}),
    ],
)  # fmt: skip
def test_each_format_has_its_place(
    formats: str | None,
    output: str | None,
    expected: dict[str, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert planned(formats, output) == expected


def test_a_folder_that_exists_takes_any_format(tmp_path: Path) -> None:
    assert planned("text,html", str(tmp_path)) == {
        "text": None,
        "html": str(tmp_path / "report.html"),
    }


@pytest.mark.parametrize("exists", [False, True])
def test_several_formats_do_not_go_into_one_file(exists: bool, tmp_path: Path) -> None:
    place = tmp_path / ("report" if exists else "report.html")
    if exists:
        place.touch()
    with pytest.raises(AdvisorError, match=r"(?s)html, json: .*-o FOLDER/"):
        plan_outputs("text,html,json", str(place), force=False)


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    place = tmp_path / "x.html"
    place.touch()
    with pytest.raises(AdvisorError, match="--force"):
        plan_outputs("text,html", str(place), force=False)
    assert plan_outputs("text,html", str(place), force=True)[1].path == place


@pytest.mark.parametrize("formats", ["", "pdf", "text,pdf"])
def test_unknown_formats_are_refused_with_the_known_ones(formats: str) -> None:
    with pytest.raises(AdvisorError, match="html"):
        plan_outputs(formats, None, force=False)


def test_a_command_with_names_of_its_own_may_write_text_as_well(tmp_path: Path) -> None:
    names = {"text": "comparison.txt", "json": "comparison.json"}
    places = {
        item.format: item.path
        for item in plan_outputs(
            "text,json", str(tmp_path), force=False, file_names=names, text_in_folder=True
        )
    }
    assert places == {name: tmp_path / file for name, file in names.items()}
    with pytest.raises(AdvisorError, match="unknown format 'html'"):
        plan_outputs("html", None, force=False, file_names=names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "to_file", "coloured"),
    [("always", False, True), *long(("always", True, True), ("auto", False, False)),
     *long(("auto", True, False)), ("never", False, False)],
)  # fmt: skip
def test_colour_goes_where_it_is_asked_for(
    choice: str, to_file: bool, coloured: bool, fixtures_dir: Path, tmp_path: Path
) -> None:
    """GIVEN a pipe or a file THEN there are escapes in it only with --color always."""
    report = tmp_path / "report.txt"
    recording = fixtures_dir / "gpt2-tiny-ddp-2-slow-rank"
    place = ["-o", report] if to_file else []
    done = advisor("diagnose", "-q", "--color", choice, recording, *place, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = report.read_text(encoding="utf-8") if to_file else done.stdout
    assert "VERDICT" in text
    assert ("\x1b[" in text) == coloured


def test_colour_is_for_a_terminal_and_not_for_a_file_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert (use_color("auto"), use_color("auto", to_file=True)) == (True, False)
