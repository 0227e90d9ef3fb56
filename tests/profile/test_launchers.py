"""What launchers are asked to hand on, and how ranks that did not get it are found."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from advisor.errors import AdvisorError
from advisor.profile import own
from advisor.profile.failures import LaunchError
from advisor.profile.hook.order import VARIABLE, Order
from advisor.profile.launchers import exporting

NAMES = {"PYTHONPATH", VARIABLE}


@pytest.mark.parametrize(
    ("asked", "handed"),
    [
        (["-n2"], ["-n2"]),
        (["--export=ALL,LR=1"], ["--export=ALL,LR=1"]),
        (["-n2", "--export=PATH,LR=1"], [f"--export=PATH,LR=1,PYTHONPATH,{VARIABLE}", "-n2"]),
        (["--export=PYTHONPATH"], [f"--export=PYTHONPATH,{VARIABLE}"]),
    ],
)
def test_srun_with_a_list_is_asked_for_the_hooks_variables_too(
    asked: list[str], handed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_EXPORT_ENV", raising=False)
    assert exporting(["srun", *asked, "train"], NAMES) == ["srun", *handed, "train"]


@pytest.mark.parametrize(("given", "variable"), [(["--export=NONE"], ""), ([], "NONE")])
def test_srun_that_hands_on_nothing_is_refused_at_once(
    given: list[str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_EXPORT_ENV", raising=False)
    if variable:
        monkeypatch.setenv("SLURM_EXPORT_ENV", variable)
    with pytest.raises(AdvisorError, match="hands no variable on") as error:
        exporting(["srun", *given, "python", "train.py"], NAMES)
    assert "--export=ALL" in str(error.value.hint)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ranks_that_run_without_the_hook_are_said_long_before_the_limit(tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    code = "import torch, time; time.sleep(300)"
    script.write_text(f"#!/bin/sh\nunset {VARIABLE}\n{sys.executable} -c '{code}' & wait\n")
    started = time.monotonic()
    with pytest.raises(LaunchError, match="did not load the recorder"):
        own.run(["sh", str(script)], Order(str(tmp_path / "out"), steps=2, ends=True),
                {"PATH": "/usr/bin:/bin"}, timeout_s=600)  # fmt: skip
    assert time.monotonic() - started < 120
    left = subprocess.run(["pgrep", "-f", code], capture_output=True, check=False).stdout
    assert not left
