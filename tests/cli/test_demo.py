"""`advisor demo`: what it changes in the workload, and what it says of the machine beforehand."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisor.cli import _profile_run, demo
from advisor.config.paths import shipped
from advisor.config.workload import load_workload
from tests.report.support import make_report


def test_a_healthy_step_computes_longer_for_the_same_call() -> None:
    """The call stays as long: more sequences hide it, and what else runs for a moment."""
    workload = load_workload(shipped("workloads") / "gpt2.yaml")
    faulty, healthy = (
        workload.with_settings(demo.settings(2, healthy=flag)) for flag in (False, True)
    )
    assert healthy.micro_batch >= 4 * faulty.micro_batch
    assert healthy.steps == faulty.steps >= 10
    assert healthy.world_size == 2


@pytest.mark.parametrize(("load", "is_said"), [(0.1, False), (7.7, True)])
def test_a_busy_machine_is_said_before_its_waiting_is_found(
    load: float, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert bool(demo.busy_machine()) == is_said


def test_the_finding_that_names_the_fault_is_said_where_the_machine_s_load_leads() -> None:
    """On a busy machine most of a step waits for a core: true, and not what was injected."""
    report = make_report()
    late = report.findings[0].model_copy(update={"ranks": [1]})
    load = late.model_copy(update={"id": "no-free-core", "rule": "no-free-core", "ranks": [0, 1]})
    busy = report.model_copy(update={"findings": [load, late]})
    chosen = [demo.DEFAULT_FAULT]
    assert f"Finding 2 names it: {late.title}." in demo.injected_line(chosen, {1}, busy)
    for findings, ranks in (([late, load], {1}), ([load], {1}), ([load, late], {0})):
        other = busy.model_copy(update={"findings": findings})
        assert "Finding" not in demo.injected_line(chosen, ranks, other)
    assert demo.injected_line([], set(), busy) == ""


@pytest.mark.slow
def test_the_fault_and_a_busy_machine_are_said_once_above_the_verdict(
    fixtures_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(workload: object, folder: Path, how: Any) -> None:
        shutil.copytree(fixtures_dir / "gpt2-tiny-ddp-2-slow-rank", folder)

    monkeypatch.setattr(_profile_run, "run_one", recorded)
    monkeypatch.setattr(demo, "busy_machine", lambda: "busy")
    done = CliRunner().invoke(demo.command, ["-o", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()  # both streams, as a terminal shows them
    faults = [number for number, line in enumerate(lines) if demo.DEFAULT_FAULT in line]
    assert len(faults) == 1
    assert lines[faults[0] + 1] == "busy"
    assert lines[faults[0] + 2].startswith("VERDICT")
    assert lines.count("busy") == 1
