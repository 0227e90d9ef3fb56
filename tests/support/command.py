"""The command line as a user types it, in the tests' own process: it has imported everything."""

from __future__ import annotations

import io
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def advisor(*words: str | Path, cwd: Path) -> Done:
    """Run the command with these words in that folder."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())
