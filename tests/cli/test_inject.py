"""``--inject``: listed by --help, and refused before anything runs where it could not strike."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor.cli._main import _root
from advisor.errors import AdvisorError
from advisor.profile.inject import KINDS


@pytest.mark.parametrize("name", ["demo", "profile"])
def test_help_lists_every_fault_with_an_example(name: str) -> None:
    shown = "".join(CliRunner().invoke(_root, [name, "--help"]).output.split())
    for example, does in KINDS.values():
        assert example in shown
        assert does.replace(" ", "") in shown


@pytest.mark.parametrize(
    ("fault", "says"),
    [("sleep:rank=7,ms=10", "ranks 0 to 1"), ("nap:rank=1", "unknown fault 'nap'")],
)
@pytest.mark.parametrize("name", ["demo", "profile"])
def test_a_fault_that_cannot_strike_is_refused_before_anything_runs(
    tmp_path: Path, name: str, fault: str, says: str
) -> None:
    pytest.importorskip("torch", reason="needs the [profile] extra")
    pytest.importorskip("nvtx", reason="needs the [profile] extra")
    folder = tmp_path / "run"
    arguments = {
        "demo": ["demo"],
        "profile": ["profile", "workloads/gpt2.yaml", "--nproc", "2", "--strategy", "ddp"],
    }[name]
    done = CliRunner().invoke(_root, [*arguments, "-o", str(folder), "--inject", fault])
    assert isinstance(done.exception, AdvisorError)
    assert says in str(done.exception)
    assert "Profiling" not in done.output
    assert not folder.exists()
