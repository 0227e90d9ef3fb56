"""YAML files: the quick reading gives what the one with line numbers gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

import advisor
from advisor.config.loader import load_model, read_plain, read_yaml
from advisor.config.parsed import plain
from advisor.config.paths import shipped
from advisor.errors import AdvisorError
from tests.support.marks import thinned


class _Numbers(BaseModel):
    model_config = ConfigDict(extra="forbid")

    value: int
    why: str = Field(default="x" * 40, min_length=40)


def _files() -> list[Path]:
    folders = [shipped("rules"), shipped("workloads"), Path(advisor.__file__).parent]
    return sorted(path for folder in folders for path in folder.rglob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("part", thinned(range(4), 4))
def test_the_quick_reading_of_every_shipped_file_is_the_careful_one(part: int) -> None:
    files = _files()
    assert len(files) > 50
    for path in files[part::4]:
        # As text: 1 and 1.0 and True are equal otherwise. Keys sorted: what `<<` merges comes
        # before a mapping's own keys in one reader and after them in the other.
        quick, careful = (
            json.dumps(read, sort_keys=True) for read in (read_plain(path), plain(read_yaml(path)))
        )
        assert quick == careful, path


@pytest.mark.parametrize(
    "text",
    [
        "on: 1e-4", "a: yes", "a: 0o14", "a: 014", "a: 0x1F", "a: 1_000", "a: ~", "a: 1:30",
        "? a\n: b", "- &x 1\n- *x", "a: 0.10", "a: |\n  x\n  y\n", "a: >-\n  x\n  y\n", "a: .inf",
        "a: [a:b, c:1]", "a: 'on'", "", "a: !note text",
    ],
)  # fmt: skip
def test_it_reads_yaml_1_2(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    assert repr(read_plain(path)) == repr(plain(read_yaml(path)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("value: 1\nvalue: 2\n", r"\.yaml:2: not valid YAML: found duplicate key"),
        ("value: [1\n", r"\.yaml:2: not valid YAML"),
        ("\nvalue: x\n", r"\.yaml:2: value: write a whole number \(got 'x'\)"),
        ("value: 1\n\nother: 2\n", r"\.yaml:3: unknown setting 'other'"),
        ("- 1\n", r"\.yaml:1: expected a mapping"),
        ("value: 1\nwhy: no.\n", r"\.yaml:2: why: needs 40 or more characters \(got 'no\.'\)"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(AdvisorError, match=message):
        load_model(path, _Numbers)


class _Every(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = ""
    number: float = 0
    switch: bool = False
    names: list[str] = Field(default=[], max_length=2)
    inside: _Numbers | None = None
    kind: Literal["a", "b"] = "a"
    share: float = Field(default=0, ge=0, lt=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text: 7", "text: write a word or text (got 7)"),
        ("number: many", "number: write a number (got 'many')"),
        ("switch: perhaps", "switch: write true or false (got 'perhaps')"),
        ("names: x", "names: write a list: [a, b] (got 'x')"),
        ("names: [a, b, c]", "names: takes 2 or fewer of them"),
        ("inside: 3", "inside: write settings under it, as name: value (got 3)"),
        ("kind: c", "kind: write 'a' or 'b' (got 'c')"),
        ("share: -1", "share: must be 0 or more (got -1)"),
        ("share: 1.5", "share: must be less than 1 (got 1.5)"),
        ("text:", "text: write a word or text (got nothing)"),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_file(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(AdvisorError) as caught:
        load_model(path, _Every)
    assert caught.value.message == f"{path}:1: {message}"
