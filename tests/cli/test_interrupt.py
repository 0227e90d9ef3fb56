"""Ctrl-C in the middle of reading: one line, nothing left behind, and it is never lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from advisor.errors import EndedBySignalError
from advisor.ingest import ingest, pipeline
from advisor.ingest.readers import kineto
from advisor.store.running import was_stopped
from advisor.store.store import Store

_SCRIPT = """
import os, signal, sys, threading, time, weakref
from pathlib import Path
from advisor.cli import main
from advisor.ingest import pipeline

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

class Noisy:
    def __del__(self):  # what takes the interpreter apart would run this
        print("taken apart", file=sys.stderr)

class Slow:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

kept = Noisy()
weakref.finalize(pipeline.Store, Path(sys.argv[1]).touch)

def interrupted(context):
    threading.Thread(target=time.sleep, args=(200,)).start()
    if sys.argv[2] == "swallowed":
        one = Slow()
        del one
        time.sleep(200)
    os.kill(os.getpid(), signal.SIGINT)

pipeline.join_sources = interrupted
main(sys.argv[3:])
"""


def _interrupt(tmp_path: Path, fixtures_dir: Path, how: str) -> subprocess.CompletedProcess[str]:
    traces = str(fixtures_dir / "gpt2-tiny-ddp-2")
    output = str(tmp_path / "run.duckdb")
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT, tmp_path / "tidied", how, "ingest", traces, "-o", output],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,  # shorter than what the script would wait for
    )


@pytest.mark.slow
def test_the_process_ends_at_once_and_tidies_up(tmp_path: Path, fixtures_dir: Path) -> None:
    ended = _interrupt(tmp_path, fixtures_dir, "plain")
    assert (ended.returncode, ended.stderr.strip()) == (130, "advisor: interrupted")
    assert [path.name for path in tmp_path.iterdir()] == ["tidied"]


@pytest.mark.slow
def test_an_interrupt_that_an_object_swallows_comes_again(
    tmp_path: Path, fixtures_dir: Path
) -> None:
    ended = _interrupt(tmp_path, fixtures_dir, "swallowed")
    assert (ended.returncode, ended.stderr.strip()) == (130, "advisor: interrupted")


_WHILE_LOADING = """
import os, signal, sys

class Presses:  # Ctrl-C when the module is looked for
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
module, sys.argv[1:] = sys.argv[1], ["rules"]
sys.meta_path.insert(0, Presses())
from advisor.cli import main
main()
"""


@pytest.mark.parametrize("module", ["click", "difflib", "advisor.cli.rules"])
def test_an_interrupt_while_modules_load_shows_no_traceback(module: str) -> None:
    command = [sys.executable, "-c", _WHILE_LOADING, module]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert ended.returncode == 130
    assert ended.stderr.strip() in ("", "advisor: interrupted")


def test_what_was_interrupted_is_not_read_once_more(
    fixtures_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise RuntimeError("Query interrupted")  # as the database calls it

    monkeypatch.setattr(kineto, "read", interrupted)
    monkeypatch.setattr(pipeline, "find_broken", lambda *_: pytest.fail("read once more"))
    with Store.create() as store, pytest.raises(RuntimeError, match="Query interrupted"):
        ingest([fixtures_dir / "gpt2-tiny-ddp-2"], store)


def test_what_the_database_says_of_a_signal_within_it_is_that_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It calls Python itself, to import a library for example, and hides what is raised there."""
    monkeypatch.setattr(EndedBySignalError, "came", False)
    for said in ("KeyboardInterrupt: \n\nAt:\n  <frozen importlib>", "EndedBySignalError: 15"):
        assert was_stopped(duckdb.Error(said)), said
    assert not was_stopped(duckdb.Error("Catalog Error: KeyboardInterrupt: no such table"))


_HIDES = """
import os, signal, sys
from advisor.cli import main, rules
from advisor.errors import AdvisorError

def hides(**_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
    except KeyboardInterrupt as signalled:
        raise AdvisorError(f"cannot be written: {signalled}", where="store") from None

signal.signal(signal.SIGINT, signal.default_int_handler)
rules.command.callback = hides
sys.argv[1:] = ["rules"]
main()
"""


def test_an_error_that_a_signal_brought_about_is_that_signal() -> None:
    """GIVEN a library that words a signal as an error of its own THEN the signal is told."""
    ended = subprocess.run(
        [sys.executable, "-c", _HIDES], capture_output=True, text=True, check=False, timeout=150
    )
    assert (ended.returncode, ended.stderr.strip()) == (130, "advisor: interrupted")
