"""Commands that are printed to be pasted stay whole where a path has spaces or quotes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from advisor.cli._profile_run import How, run_one
from advisor.cli.compare import _instead
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.store.store import Store

NAME = "out em'x"


def test_what_follows_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = pytest.importorskip("advisor.profile.launch")
    folder = tmp_path / NAME
    figures = {"step_ns": {"median": 1e6, "mad": 1e3}, "tokens_per_second": 1.0}

    def record(workload: Workload, folder: Path, _how: Any) -> None:
        (folder / "profile.json").write_text(json.dumps(figures))

    monkeypatch.setattr(launch, "launch", record)
    run_one(Workload.model_validate({}), folder, How())
    printed = "".join(capsys.readouterr())
    (line,) = [one for one in printed.splitlines() if one.startswith("Next: ")]
    assert shlex.split(line) == ["Next:", "advisor", "diagnose", str(folder)]


def test_what_compare_is_given_instead(tmp_path: Path) -> None:
    folder = tmp_path / NAME
    for name in ("a b", "single"):
        (folder / name).mkdir(parents=True)
    alone = _instead(folder)
    assert shlex.split(alone.split("; ")[0]) == ["advisor", "compare", str(folder), "OTHER"]
    for name in ("a b", "single"):
        (folder / name / "rank0.json").touch()
    _, _, command = _instead(folder).partition(": ")
    expected = [str(folder / name) for name in ("single", "a b")]
    assert shlex.split(command) == ["advisor", "compare", *expected]


def test_how_a_folder_becomes_a_store(tmp_path: Path) -> None:
    folder = tmp_path / NAME
    folder.mkdir()
    with pytest.raises(AdvisorError) as error:
        Store.open(folder)
    command = shlex.split(error.value.hint.partition(": ")[2])
    assert command == ["advisor", "ingest", str(folder), "-o", "run.duckdb"]
