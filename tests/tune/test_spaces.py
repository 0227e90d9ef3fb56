"""What a user's own space may name: known settings, and only variables that the backend reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor.cli.tune import command
from advisor.config.own import OwnSpace
from advisor.config.sweep import Axis, Space, load_space
from advisor.errors import AdvisorError


@pytest.mark.parametrize("backends", [[], ["gloo"], ["gloo", "nccl"]])
@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_MAX_CTAS", "TORCH_NCCL_BLOCKING_WAIT"])
def test_nccls_variables_are_nccls_whatever_the_space_says(name: str, backends: list[str]) -> None:
    axis = Axis(setting=f"env.{name}", values=[None, "1"], backends=backends)
    assert not axis.applies("gloo", "ddp")
    assert axis.applies("nccl", "ddp")
    assert Space(axes=[axis]).for_job("gloo", "ddp") == ([], [axis])


def test_gloos_variables_are_gloos_and_others_are_anybodys() -> None:
    gloo = Axis(setting="env.GLOO_SOCKET_IFNAME", values=["lo"])
    assert gloo.applies("gloo", "ddp") and not gloo.applies("nccl", "ddp")
    threads = Axis(setting="env.OMP_NUM_THREADS", values=["1"])
    assert threads.applies("gloo", "ddp") and threads.applies("nccl", "ddp")
    limited = Axis(setting="bucket_cap_mb", values=[1], backends=["nccl"])
    assert not limited.applies("gloo", "ddp")


def test_only_what_the_model_knows_is_sent_to_the_model() -> None:
    algo = Axis(setting="env.NCCL_ALGO", values=["allreduce:ring"])
    assert algo.why_ignored("gloo", "ddp") == (
        "gloo ignores NCCL_ALGO: not swept (use --topology for the modelled figure)"
    )
    ctas = Axis(setting="env.NCCL_MAX_CTAS", values=["4"])
    assert ctas.why_ignored("gloo", "ddp") == "gloo ignores NCCL_MAX_CTAS: not swept"
    wrap = Axis(setting="wrap_layers", values=[1], strategies=["fsdp2"])
    assert wrap.why_ignored("gloo", "ddp") == "ddp ignores wrap_layers: not swept"


def test_a_space_of_nccl_alone_runs_no_trial_on_gloo(tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text('axes: [{setting: env.NCCL_ALGO, values: [null, "allreduce:ring"]}]\n')
    folder = tmp_path / "sweep"
    with pytest.raises(AdvisorError, match="gloo ignores NCCL_ALGO: not swept"):
        CliRunner().invoke(
            command,
            ["--sweep", "--space", str(space), "-o", str(folder)],
            catch_exceptions=False,
            standalone_mode=False,
        )
    assert not folder.exists()


@pytest.mark.parametrize("wrong", ["bucket_cap", "bucket_capmb"])
def test_an_unknown_setting_is_refused_with_its_line_and_the_nearest(
    tmp_path: Path, wrong: str
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        "axes:\n  - setting: strategy\n    values: [ddp]\n"
        f"  - setting: {wrong}\n    values: [1, 5]\n"
    )
    with pytest.raises(AdvisorError) as error:
        load_space(space)
    assert f"{space}:4: " in str(error.value)
    assert f"unknown setting '{wrong}'; did you mean 'bucket_cap_mb'?" in str(error.value)


@pytest.mark.parametrize("setting", ["emulated.forward_ms", "model.layers", "model", "compute"])
def test_what_makes_another_job_is_no_axis(setting: str) -> None:
    """GIVEN less work per step THEN no sweep may find it faster."""
    with pytest.raises(ValueError, match=f"{setting} is no axis: it changes the job's work"):
        Axis(setting=setting, values=[2])


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("bucket_cap_mb", '"big"', "bucket_cap_mb: write a number (got 'big')"),
        ("bucket_cap_mb", "-3", "bucket_cap_mb: must be more than 0 (got -3)"),
        ("bucket_cap_mb", "null", "bucket_cap_mb: write a number (got nothing)"),
        ("static_graph", "maybe", "static_graph: write true or false (got 'maybe')"),
        ("micro_batch", "2.5", "micro_batch: write a whole number (got 2.5)"),
        ("gradient_accumulation", "0", "gradient_accumulation: must be 1 or more (got 0)"),
        ("precision", "fp8", "precision: write 'fp32' or 'bf16' (got 'fp8')"),
        ("env.NCCL_ALGO", "true", "env.NCCL_ALGO: write text or a number, or null for not set"),
        ("env.NCCL_ALGO", '"a\\0b"', "env.NCCL_ALGO: no variable can hold a zero byte"),
        ("strategy", "dpp", "strategy: unknown strategy 'dpp'"),
        ("strategy", "fsdp2+ddp", "strategy: strategies fsdp2 and ddp are both data parallelism"),
    ],
)
def test_a_value_that_a_setting_cannot_take_is_one_error_before_any_trial(
    tmp_path: Path, setting: str, value: str, said: str
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        "axes:\n  - setting: wrap_layers\n    values: [1]\n"
        f"  - setting: {setting}\n    values:\n      - {value}\n"
    )
    folder = tmp_path / "sweep"
    with pytest.raises(AdvisorError) as error:
        CliRunner().invoke(
            command,
            ["--sweep", "--space", str(space), "-o", str(folder)],
            catch_exceptions=False,
            standalone_mode=False,
        )
    assert f"{space}:6: {said}" in str(error.value)
    assert not folder.exists()


def test_every_value_that_is_wrong_is_named(tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("axes: [{setting: bucket_cap_mb, values: [big, 5, small]}]\n")
    with pytest.raises(AdvisorError, match=r"(?s)'big'.*'small'.*2 mistakes"):
        load_space(space)


def test_a_variables_number_is_the_text_that_the_environment_holds() -> None:
    assert Axis(setting="env.NCCL_MAX_CTAS", values=[None, 4, "8"]).values == [None, "4", "8"]
    with pytest.raises(ValueError, match="lists a value twice"):
        Axis(setting="env.NCCL_MAX_CTAS", values=[8, "8"])
    assert Axis(setting="wrap_layers", values=[1, 2]).values == [1, 2]


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_limit_that_ends_every_trial_is_refused(limit: str) -> None:
    result = CliRunner().invoke(command, ["--sweep", "--timeout", limit])
    assert result.exit_code == 2
    assert "--timeout" in result.output


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("name", "other", "it changes nothing in the job"),
        ("world_size", "4", r"other numbers of ranks do not compare; sweep each by itself"),
        ("device", "cuda", "another backend heeds other settings"),
        ("timed_steps", "30", "it is how trials are measured"),
        ("record_shapes", "false", "it is what is recorded after the timed steps"),
    ],
)
def test_what_no_sweep_can_compare_is_refused_with_its_line_and_the_reason(
    tmp_path: Path, setting: str, value: str, why: str
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(f"axes:\n  - setting: {setting}\n    values: [{value}]\n")
    with pytest.raises(AdvisorError, match=f"{setting} is no axis: {why}") as error:
        load_space(space)
    assert f"{space}:2: " in str(error.value)


def test_what_changes_the_numbers_is_known_whoever_lists_it(tmp_path: Path) -> None:
    """Nobody has to write ``changes_training`` for a hook that sends fp16."""
    space = tmp_path / "space.yaml"
    lines = (
        "- {setting: comm_hook, values: [none, fp16]}",
        "- {setting: bucket_cap_mb, values: [1]}",
    )
    space.write_text("\n".join(["axes:", *lines, ""]))
    read = load_space(space, OwnSpace)
    assert [axis.changes_training for axis in read.axes] == [True, False]
    # what else changes the training is for its author to say
    assert Axis(setting="micro_batch", values=[1], changes_training=True).changes_training
