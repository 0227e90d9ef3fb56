"""What YAML files say is kept by the hash of their text, and made anew wherever that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.config import parsed as module
from advisor.config.loader import read_plain, read_yaml
from advisor.config.parsed import NotYamlError, compiled, parsed, what_fails
from advisor.config.paths import shipped
from advisor.errors import AdvisorError

TEXT = "a: 1e-4\non: [1, true, .inf, text, null]\n2: {b: 0x10}\n"
TRUTH = {"a": 1e-4, "on": [1, True, float("inf"), "text", None], "2": {"b": 16}}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of its own."""
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ADVISOR_NO_CACHE", raising=False)
    module._folder.cache_clear()
    yield tmp_path / "nccl-advisor" / "yaml"
    module._folder.cache_clear()


def test_the_second_time_says_the_same_without_parsing(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parsed(TEXT) == TRUTH
    monkeypatch.delattr(module, "_parse")
    assert parsed(TEXT) == TRUTH
    assert len([*kept.iterdir()]) == 1


def test_a_damaged_file_is_made_anew(kept: Path) -> None:
    parsed(TEXT)
    (file,) = kept.iterdir()
    file.write_text('{"a":')
    assert parsed(TEXT) == TRUTH
    assert json.loads(file.read_text()) == TRUTH


def test_what_json_does_not_hold_is_parsed_each_time(kept: Path) -> None:
    assert parsed("day: 2026-01-02")["day"].year == 2026
    assert not [*kept.iterdir()]


def test_without_a_folder_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    module._folder.cache_clear()
    assert parsed(TEXT) == TRUTH
    module._folder.cache_clear()


def test_old_files_go(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_FILES", 3)
    for number in range(5):
        parsed(f"a: {number}")
    assert len([*kept.iterdir()]) == 3


def test_no_yaml(kept: Path) -> None:
    with pytest.raises(NotYamlError):
        parsed("a: [1")
    assert not [*kept.iterdir()]


@pytest.mark.parametrize("value", ["9" * 5000, '!!float ""', '!!int ""'])
def test_a_value_that_python_cannot_convert_is_told_in_our_words(kept: Path, value: str) -> None:
    with pytest.raises(NotYamlError) as error:
        parsed(f"a: {value}")
    assert str(error.value) == what_fails(ValueError())
    path = kept / "a.yaml"
    path.write_text(f"a: {value}")
    with pytest.raises(AdvisorError) as told:
        read_yaml(path)
    assert what_fails(ValueError()) in told.value.message


@pytest.mark.slow
def test_a_wheel_holds_every_rule_parsed(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(shipped("rules").glob("*.yaml"))
    truth = [parsed(file.read_text(encoding="utf-8")) for file in files]
    in_wheel = json.loads(compiled(files))
    monkeypatch.setattr(module, "_shipped", lambda: in_wheel)
    monkeypatch.delattr(module, "_parse")
    for file in kept.iterdir():
        file.unlink()
    assert [parsed(file.read_text(encoding="utf-8")) for file in files] == truth


@pytest.mark.parametrize("digits", ["0x" + "f" * 9_000, "-0b" + "1" * 20_000, "1" * 4_000])
def test_a_number_that_no_setting_is_makes_no_yaml(kept: Path, digits: str, tmp_path: Path) -> None:
    """GIVEN digits of a base that Python reads at any length, and does not write out again THEN
    the file is refused with a reason."""
    place = tmp_path / "x.yaml"
    place.write_text(f"a: {digits}\n")
    with pytest.raises(AdvisorError, match=r"a whole number of .* bits, more than 64"):
        read_plain(place)
    assert parsed("a: -0x8000000000000000\nb: 18446744073709551615\n") == {
        "a": -(2**63), "b": 2**64 - 1,
    }  # fmt: skip
