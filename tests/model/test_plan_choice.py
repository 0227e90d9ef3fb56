"""What a plan recommends and says for it: no recomputation without need, no false reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.model.plan import make_plan
from advisor.model.plan_estimate import estimate
from advisor.model.presets import preset


@pytest.mark.parametrize(
    ("model", "gpus", "precision"),
    [
        ("gpt2", 512, "mixed"),
        ("gpt2", 512, "bf16"),
        ("gpt2-large", 512, "mixed"),
        ("gpt2-large", 1024, "mixed"),
        ("llama2-70b", 64, "mixed"),
    ],
)
def test_nothing_is_recomputed_that_fits_without(model: str, gpus: int, precision: Any) -> None:
    plan = make_plan(preset(model), "dgx-h100", gpus, precision=precision)
    assert plan.recommended is not None
    for row in plan.rows:
        item = row.estimate
        plain = estimate(
            plan.shape,
            plan.cluster,
            item.layout,
            replace(item.settings, checkpointing=False),
            sequence=plan.sequence,
            efficiency=plan.efficiency,
            peak_flops=plan.peak_flops,
        )
        assert item.settings.checkpointing != plain.fits, item.layout
        said = any("only with activation checkpointing" in reason for reason in row.reasons)
        assert said == (item.fits and not plain.fits)


def test_the_change_back_from_checkpointing_is_described_as_itself() -> None:
    plan = make_plan(preset("llama-7b"), "pcie-rtx4090", 16)
    assert plan.recommended is not None
    assert plan.recommended.estimate.settings.checkpointing
    assert "a micro-batch of 8 fits only with activation checkpointing: a third more compute" in (
        plan.recommended.reasons
    )
    option = next(o for o in plan.options if o.option == "no activation checkpointing")
    assert option.memory_delta_bytes > 0 > option.step_delta_s
    assert option.note == "all activations kept, a quarter of the compute saved"
    plain = make_plan(preset("gpt2"), "dgx-h100", 8)
    option = next(o for o in plain.options if o.option == "activation checkpointing")
    assert option.note.startswith("a third of the compute again")
