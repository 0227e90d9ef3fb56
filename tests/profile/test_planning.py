"""Plans on the meta device against closed formulas: published counts, 16 bytes per parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from click.testing import CliRunner

from advisor.cli.profile import command
from advisor.config.paths import shipped
from advisor.config.workload import Workload
from advisor.profile import planning

LLAMA_70B = 68_976_648_192  # the released checkpoint's tensors
MIXTRAL = 46_702_792_704
MIXTRAL_EXPERTS = 32 * 8 * 3 * 4096 * 14336


def needs(strategy: str, ranks: int, **settings: Any) -> planning.Needs:
    document = {"strategy": strategy, "world_size": ranks, "micro_batch": 1, **settings}
    return planning.needs(Workload.model_validate(document))


def test_the_largest_preset_fits_into_a_plan() -> None:
    found = needs("fsdp2", 64, model={"family": "llama", "preset": "70b"}, sequence_length=4096)
    assert found.parameters == LLAMA_70B
    assert found.state_bytes == pytest.approx(16 * LLAMA_70B / 64)
    assert found.tokens_per_step == 64 * 4096


@pytest.mark.parametrize(
    ("strategy", "ranks", "state"),
    [("single", 1, 16.0), ("ddp", 4, 16.0), ("zero1", 4, 8 + 8 / 4), ("fsdp2-zero2", 4, 4 + 12 / 4),
     ("fsdp1-full", 4, 16 / 4), ("fsdp2", 4, 16 / 4), ("hsdp", 4, 16 / 2)],
)  # fmt: skip
def test_state_is_what_the_zero_stage_leaves(strategy: str, ranks: int, state: float) -> None:
    parameters = 3_487_232  # gpt2 tiny
    found = needs(strategy, ranks)
    assert found.parameters == parameters
    assert found.state_bytes == pytest.approx(state * parameters)
    if strategy == "ddp":
        assert found.sent_bytes == pytest.approx(2 * 3 / 4 * 4 * parameters)


def test_the_model_is_really_cut() -> None:
    # Two heads' worth of every matrix and its column biases; norms, row biases and ends stay whole.
    hidden, layers, ends = 256, 4, (1024 + 256) * 256 + 2 * 256
    cut = layers * (12 * hidden**2 + 3 * hidden + 4 * hidden)
    whole = layers * (2 * hidden + 4 * hidden) + ends
    assert needs("tp", 2).parameters == cut // 2 + whole
    # The first stage of two has the embedding, the last a copy of its weight.
    layer = 12 * hidden**2 + 13 * hidden
    in_stages = needs("pp", 2, gradient_accumulation=2).parameters
    assert in_stages == layers // 2 * layer + (1024 + 256) * hidden


@pytest.mark.parametrize(("precision", "width"), [("bf16", 1), ("fp32", 2)])
def test_activations_are_those_of_fused_attention(precision: str, width: int) -> None:
    # Selective recomputation and fused kernels keep no scores: 34 sbh per layer, growing with s.
    hidden, layers, vocabulary, sequence, batch = 256, 4, 1024, 128, 3
    found = needs("single", 1, micro_batch=batch, sequence_length=sequence, precision=precision)
    unit = sequence * batch
    head = 4 * unit * (hidden + vocabulary)
    assert found.activation_bytes == pytest.approx(layers * width * 34 * unit * hidden + head)


def test_experts_are_spread() -> None:
    found = needs("ep", 8, model={"family": "moe", "preset": "8x7b"})
    assert found.parameters == MIXTRAL - MIXTRAL_EXPERTS + MIXTRAL_EXPERTS // 8


def test_the_command_prints_a_row_per_strategy_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(shipped("workloads") / "gpt2.yaml")
    done = CliRunner().invoke(
        command, [file, "--device", "meta", "--strategy", "single,ddp,fsdp2"],
        standalone_mode=False, catch_exceptions=False,
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    assert "gpt2 tiny: 3,487,232 parameters" in done.output
    rows = [line.split()[0] for line in done.output.splitlines() if "3,487,232  " in line]
    assert rows == ["single", "ddp", "fsdp2"]
