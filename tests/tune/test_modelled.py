"""NCCL's settings where they cannot be measured: ranked by its model, never called measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import duckdb
import pytest
from click.testing import CliRunner, Result

from advisor.cli.tune import command
from advisor.config.sweep import Axis
from advisor.errors import AdvisorError
from advisor.tune import run as engine
from advisor.tune.modelled import NcclModel
from advisor.tune.trial import TrialResult

SPACE = """\
axes:
  - setting: env.NCCL_ALGO
    values: [null, "allreduce:ring", "allreduce:nvls"]
  - setting: env.NCCL_PROTO
    values: ["allreduce:LL", "allreduce:LL128"]
  - setting: env.NCCL_MAX_CTAS
    values: [4]
"""
NCCL = (2, 29, 7)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, fixtures_dir: Path) -> list[str]:
    """Trials that run nothing: each leaves a recorded trace. The list is of their purposes."""
    ran: list[str] = []

    def run_trial(_workload: Any, configuration: Any, folder: Path, **values: Any) -> TrialResult:
        ran.append(values["purpose"])
        shutil.copytree(fixtures_dir / "gpt2-tiny-ddp-2", folder)
        return TrialResult(
            number=values["number"], configuration=configuration, purpose=values["purpose"],
            is_baseline=values["is_baseline"], status="ok", step_ns=[100_000_000] * 15,
            tokens_per_step=512, folder=folder.name, seconds=1.0,
        )  # fmt: skip

    monkeypatch.setattr(engine, "run_trial", run_trial)
    return ran


def run(folder: Path, space: str, *arguments: str) -> Result:
    (folder / "space.yaml").write_text(space)
    return CliRunner().invoke(
        command,
        ["--sweep", "--space", str(folder / "space.yaml"), "-o", str(folder / "sweep"), *arguments],
        catch_exceptions=False,
        standalone_mode=False,
    )


@pytest.mark.slow
def test_a_space_of_nccl_alone_is_ranked_by_the_model_and_nothing_is_called_measured(
    tmp_path: Path, trials: list[str]
) -> None:
    result = run(tmp_path, SPACE, "--topology", "dgx-h100", "--nodes", "4")
    # THEN the present settings ran once, for their calls
    assert trials == ["baseline"]
    lines = result.stdout.splitlines()
    assert lines[0].startswith("RESULT   No setting was measured: gloo ignores")
    assert "MODELLED NCCL 2.29.7 on 4 x dgx-h100, this job's calls; not measured" in lines
    # AND the space's values are ranked, and no others
    ranked = [line.split("  ")[-2:] for line in lines if " us  " in line or " fails  " in line]
    names = " ".join(part for parts in ranked for part in parts)
    assert "NCCL_ALGO=allreduce:ring" in names and "NCCL_PROTO=allreduce:LL" in names
    assert "breaks AllReduce" in next(line for line in lines if "allreduce:nvls" in line)
    assert "tree" not in names and "LL128" not in names and "MAX_CTAS" not in names
    assert any("LL128: not ranked, forcing LL128 can corrupt data" in line for line in lines)
    # AND the files say the same
    document = json.loads((tmp_path / "sweep" / "recommendation.json").read_text())
    assert (document["recommended"], document["confidence"]) == (False, "modelled")
    assert "gloo ignores NCCL_MAX_CTAS: not swept" in document["not_tried"]
    algo = "gloo ignores NCCL_ALGO: not swept (modelled on 4 x dgx-h100)"
    assert algo in document["not_tried"]
    with duckdb.connect(str(tmp_path / "sweep" / "sweep.duckdb"), read_only=True) as con:
        origins = con.execute(
            "SELECT origin, count(*) FROM trial GROUP BY origin ORDER BY origin"
        ).fetchall()
    assert origins == [("measured", 1), ("modelled", 4)]
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert "No setting was measured" in page and "Modelled, not measured" in page
    assert "between two runs of the present settings" not in page
    assert '<p class="state">Modelled, not measured</p>' in page
    assert "communication per step</th>" in page


def test_without_a_machine_the_space_is_refused_and_what_to_give_is_said(
    tmp_path: Path, trials: list[str]
) -> None:
    with pytest.raises(AdvisorError, match="give --topology MACHINE"):
        run(tmp_path, SPACE)
    # AND what the model does not know is not sent to it
    with pytest.raises(AdvisorError, match="NCCL's model ranks NCCL_ALGO and NCCL_PROTO"):
        run(tmp_path, "axes: [{setting: env.NCCL_MAX_CTAS, values: [4]}]", "--topology", "dgx-h100")
    assert not trials


def test_nodes_of_no_machine_are_refused(tmp_path: Path, trials: list[str]) -> None:
    with pytest.raises(click.UsageError, match="--nodes has no effect without --topology"):
        run(tmp_path, SPACE, "--nodes", "3")
    assert not trials


def test_a_check_of_the_environment_takes_no_machine(tmp_path: Path, trials: list[str]) -> None:
    for name, value in (("topology", "dgx-h100"), ("calibration", "c.yaml"), ("nodes", "2")):
        with pytest.raises(click.UsageError, match=f"--{name} has no effect with --check-env"):
            run(tmp_path, SPACE, "--check-env", f"--{name}", value)
    assert not trials


@pytest.mark.parametrize(
    ("arguments", "space", "said"),
    [
        (["--topology", "dgx-h10"], SPACE, "unknown hardware 'dgx-h10'"),
        (["--topology", "mi300x-roce"], SPACE, "does not cover RCCL 2.29.7"),
        (["--topology", "dgx-h100", "--nccl", "new"], SPACE, "'new' is not an NCCL version"),
        (["--topology", "dgx-h100"], SPACE.replace("ring", "rign"), "'rign' is unknown"),
    ],
)
def test_a_mistake_about_the_model_is_said_before_any_trial(
    tmp_path: Path, trials: list[str], arguments: list[str], space: str, said: str
) -> None:
    with pytest.raises(AdvisorError, match=said):
        run(tmp_path, space, *arguments)
    assert not trials
    assert not (tmp_path / "sweep").exists()


def test_a_job_without_such_calls_has_no_ranking() -> None:
    axes = [Axis(setting="env.NCCL_ALGO", values=["allreduce:ring"])]
    assert NcclModel.of("dgx-h100", 1, NCCL, axes).rank([]) == []


def test_a_setting_under_which_no_job_starts_is_refused_with_the_reason() -> None:
    # GIVEN lists for all collectives: from 2.24 nothing is left for Broadcast under these
    axes = [Axis(setting="env.NCCL_ALGO", values=["Tree", "^ring", "allreduce:tree", "Ring"])]
    found = NcclModel.of("dgx-h100", 4, NCCL, axes)
    # THEN they are not ranked as if the step's all-reduces were all that the job calls
    assert found.settings == (("NCCL_ALGO", "allreduce:tree"), ("NCCL_ALGO", "Ring"))
    tree, exclusion = found.left_out
    assert tree == (
        "NCCL_ALGO=Tree: refused, Broadcast, Reduce, AllGather, ReduceScatter fail with it from "
        "2.24 on, and DDP broadcasts when it is made; name the collective: allreduce:tree"
    )
    assert "Broadcast" in exclusion and "name the collective" not in exclusion
    # AND an earlier release, which falls back to rings, ranks them
    assert len(NcclModel.of("dgx-h100", 4, (2, 23, 4), axes[:1]).left_out) == 0


@pytest.mark.long
@pytest.mark.slow
def test_variables_that_the_model_has_no_term_for_are_said_to_get_no_figure(
    tmp_path: Path, trials: list[str]
) -> None:
    space = f"{SPACE}  - {{setting: env.NCCL_NTHREADS, values: [256]}}\n"
    done = run(tmp_path, space, "--topology", "dgx-h100")
    assert trials == ["baseline"]
    said = "NCCL_MAX_CTAS, NCCL_NTHREADS: not modelled, NCCL's cost model has no term for it"
    assert f"         {said}" in done.stdout
    written = json.loads((tmp_path / "sweep" / "recommendation.json").read_text())
    assert [line for line in written["not_tried"] if line.startswith(said)]
