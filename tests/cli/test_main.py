"""The command line as such: help, settings file, completion, internal errors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from advisor.cli import _main
from advisor.cli._main import _root
from advisor.errors import AdvisorError
from advisor.ingest import scanner_library as library
from advisor.store.store import Store
from tests.support.command import advisor

CONTEXT = click.Context(_root, info_name="advisor")
COMMANDS = _root.list_commands(CONTEXT)  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "-1", "1e400"])
def test_a_fraction_without_end_or_below_nothing_is_refused_by_every_option(given: str) -> None:
    commands = [_root.get_command(CONTEXT, name) for name in COMMANDS]  # type: ignore[attr-defined]
    options = [one for command in commands for one in command.params]
    fractions = [one for one in options if one.type.name.startswith("float")]
    assert fractions
    for one in fractions:
        with pytest.raises(click.BadParameter):
            one.type.convert(given, one, CONTEXT)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(name: str) -> None:
    command = _root.get_command(CONTEXT, name)  # type: ignore[attr-defined]
    assert command.help
    assert command.epilog
    example = re.search(r"advisor .*", command.epilog)
    assert example, "an example line"
    assert name in example[0]


def test_the_list_of_commands_cuts_no_sentence() -> None:
    shown = " ".join(CliRunner().invoke(_root, ["--help"]).output.split())
    shown = shown.replace("- ", "-")  # a line may end at a hyphen
    for name in COMMANDS:
        command = _root.get_command(CONTEXT, name)  # type: ignore[attr-defined]
        first = " ".join(re.split(r"\.\s|\n\n", command.help, maxsplit=1)[0].split())
        assert first.rstrip(".") in shown, name


def test_the_changelog_and_the_shell_know_every_command() -> None:
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    listed = re.search(r"## 0\.1\.0 .*?\n\n- (.*?)\n- ", text, re.DOTALL)
    assert listed
    known = set(re.findall(r"[a-z][a-z-]+", listed[1]))
    assert set(COMMANDS) <= known


def test_version_does_not_blame_the_compiler_in_a_copy_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nothing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(library, "LIBRARY", tmp_path / "none.so")
    monkeypatch.setattr(metadata, "distribution", nothing)
    assert library._loaded.__wrapped__()[1] == (
        "not built: this copy of advisor is not installed (pip install -e .)"
    )
    monkeypatch.undo()
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "none.so")
    monkeypatch.setattr(metadata, "distribution", lambda name: name)
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "gcc" else None)
    assert "this copy of advisor was not installed with gcc" in str(
        library._loaded.__wrapped__()[1]
    )
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "no C compiler" in str(library._loaded.__wrapped__()[1])


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom advisor.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'duckdb', 'numpy', 'pandas', 'pyarrow', 'pydantic', 'torch', 'rich', 'jinja2'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("library", ["duckdb", "numpy"])
def test_a_library_that_is_missing_is_one_error(library: str, tmp_path: Path) -> None:
    code = (
        f"import sys\nsys.modules[{library!r}] = None\n"
        "from advisor.cli import main\nmain(['diagnose', 'none'])"
    )
    (tmp_path / "none").write_text("[]")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"cannot be loaded: import of {library} halted" in done.stderr


@pytest.mark.slow
def test_settings_file_gives_defaults_and_flags_beat_it(tmp_path: Path, fixtures_dir: Path) -> None:
    (tmp_path / "advisor.toml").write_text('[diagnose]\nformat = "json"\nquiet = true\n')
    run = fixtures_dir / "gpt2-tiny-ddp-2"

    def diagnose(*flags: str) -> str:
        done = advisor("diagnose", run, *flags, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "schema_version" in json.loads(diagnose())
    assert "VERDICT" in diagnose("--format", "text")


def test_mistakes_in_the_settings_file_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[diagnose]\nformatt = "json"\n[diagnoze]\nx = 1\n')
    with pytest.raises(AdvisorError) as error:
        CliRunner().invoke(
            _root, ["--config", str(path), "rules"], standalone_mode=False, catch_exceptions=False
        )
    assert "did you mean 'format'" in str(error.value)
    assert "diagnoze" in str(error.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('ignore = "jitter"', '[diagnose] ignore must be a list: ignore = ["jitter"]'),
        ('format = ["json"]', '[diagnose] format must be one value, not a list: format = "json"'),
    ],
)
def test_a_setting_of_the_wrong_form_names_the_file_and_the_right_one(
    tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f"[diagnose]\n{line}\n")
    with pytest.raises(AdvisorError) as error:
        CliRunner().invoke(
            _root, ["--config", str(path), "rules"], standalone_mode=False, catch_exceptions=False
        )
    assert said in str(error.value)
    assert "a.toml" in str(error.value)


def test_the_list_of_rules_fits_a_terminal_of_80_columns() -> None:
    lines = CliRunner().invoke(_root, ["rules"]).output.splitlines()
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    done = CliRunner().invoke(_root, ["completion", shell])
    assert done.exit_code == 0
    assert "_ADVISOR_COMPLETE" in done.output


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("advisor explain straggler-r", "plain,straggler-rank"),
        ("advisor rules small-b", "plain,small-buckets"),
        ("advisor sql run.duckdb --rule small-b", "plain,small-buckets"),
        ("advisor schema coll", "plain,collective"),
        ("advisor schema rank event run_b", "plain,run_breakdown"),
        ("advisor schema ./run.d", "file,./run.d"),
        *(
            (f"advisor {command} fix", "file,fix")
            for command in ("diagnose", "compare", "whatif", "open 1", "diagnose --nccl-log")
        ),
    ],
)
def test_the_tab_key_offers_rules_and_paths(
    words: str, offered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    completion = BashComplete(_root, {}, "advisor", "_ADVISOR_COMPLETE")
    assert completion.complete() == offered


def test_an_internal_error_is_one_line_and_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(_main._root, "main", broken)
    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)
    with pytest.raises(SystemExit) as status:
        _main.main([])
    assert status.value.code == 2
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err
    monkeypatch.setenv("ADVISOR_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        _main.main([])


_INTERRUPTED = """
import os, signal, sys, threading
from advisor.cli import main
from advisor.ingest import pipeline

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

def interrupted(context):
    if sys.argv[1] == "query":
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
        context.con.execute("SELECT sum(range) FROM range(1_000_000_000_000)")
    os.kill(os.getpid(), signal.SIGINT)

pipeline.join_sources = interrupted
main(sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["query", "python"])
@pytest.mark.parametrize("command", ["ingest", "diagnose"])
def test_ctrl_c_leaves_the_old_store_and_nothing_else(
    tmp_path: Path, fixtures_dir: Path, where: str, command: str
) -> None:
    """GIVEN a store WHEN replacing it is interrupted, in the database or outside THEN 130."""
    place = tmp_path / "run.duckdb"
    with Store.create(place) as store:
        store.save()
    old = place.read_bytes()
    traces = str(fixtures_dir / "lab-pp-few-micro-batches")
    output = "-o" if command == "ingest" else "--store"
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, where, command, traces, output, place, "--force"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 130, ended.stderr
    assert ended.stderr.strip() == "advisor: interrupted"
    assert ended.stdout == ""
    assert place.read_bytes() == old
    assert list(tmp_path.iterdir()) == [place]
