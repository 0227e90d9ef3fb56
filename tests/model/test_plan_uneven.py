"""Pipelines of uneven stages, and reasons that agree with the row that they stand under."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from advisor.cli.nccl_model import command as nccl_model
from advisor.cli.plan import command
from advisor.model.plan import Plan, Row, make_plan
from advisor.model.plan_tried import Own
from advisor.model.presets import preset


def _rows(plan: Plan) -> dict[str, Row]:
    return {row.estimate.layout.strategy: row for row in plan.rows}


def test_layers_that_no_power_of_two_divides_are_planned_in_uneven_stages() -> None:
    # GIVEN a model of 126 layers and the same one of 128
    shape = preset("llama3-405b")
    own = Own(pipeline=16)
    odd = make_plan(shape, "h100-tcp", 128, own=own)
    even = make_plan(replace(shape, layers=128), "h100-tcp", 128, own=own)
    assert odd.recommended is not None
    assert even.recommended is not None
    mine, other = odd.recommended.estimate, even.recommended.estimate
    # THEN the same layout is chosen, and its largest stage (8 of both) sets the pace
    assert mine.layout == other.layout
    assert mine.layout.pipeline == 16
    assert mine.step_s == pytest.approx(other.step_s, rel=0.001)
    # AND its first stage, which keeps most micro-batches, has a layer less
    assert 0.85 * other.memory_bytes < mine.memory_bytes < other.memory_bytes
    assert mine.mfu < other.mfu
    said = [reason for reason in odd.recommended.reasons if "stage_layers" in reason]
    assert said == [
        "126 layers over 16 stages: 14 of 8, 2 of 7 (stage_layers); the largest sets the time"
    ]
    assert not any("stage_layers" in reason for row in even.rows for reason in row.reasons)
    assert odd.to_dict()["recommended"]["largest_stage_layers"] == 8


def test_a_step_whose_communication_is_hidden_is_not_called_bound_by_it() -> None:
    plan = make_plan(preset("gpt3-175b"), "dgx-a100", 256)
    assert plan.recommended is not None
    found = plan.recommended.estimate
    assert found.exposed_s < 0.1 * found.step_s
    assert not any("communication-bound" in reason for reason in plan.recommended.reasons)


@pytest.mark.parametrize("gpus", [256, 1024])
def test_the_memory_that_is_left_is_told_in_figures(gpus: int) -> None:
    rows = _rows(make_plan(preset("gpt3-175b"), "aws-p4d", gpus)).values()
    fitting = [row for row in rows if row.estimate.fits]
    assert fitting
    for row in fitting:
        share = row.estimate.memory_bytes / row.estimate.capacity_bytes
        said = "; ".join(row.reasons)
        assert ("little memory is free" in said) == (share > 0.9)
        assert ("less than a quarter of the memory free" not in said) or share > 0.75


def test_one_gpu_is_one_and_an_early_collnet_has_its_own_name() -> None:
    done = CliRunner().invoke(command, ["gpt2", "dgx-h100", "--gpus", "1"])
    assert "\n1 GPU on 1 node, " in done.output
    line = ["--hardware", "dgx-h100", "--op", "allreduce", "--bytes", "1M", "--nccl"]
    early = CliRunner().invoke(nccl_model, [*line, "2.8.4"]).output
    assert "\nCollNet  " in early
    assert "CollNetDirect" not in early
    assert "\nCollNetDirect  " in CliRunner().invoke(nccl_model, [*line, "2.14.3"]).output
