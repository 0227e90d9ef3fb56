"""Shapes against published parameter counts, FLOPs, state and activation sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError
from advisor.model.memory import (
    activation_bytes,
    layer_activation_bytes,
    output_activation_bytes,
    state_bytes,
)
from advisor.model.presets import preset, presets
from advisor.model.transformer import (
    TransformerShape,
    flops_per_token,
    layer_parameters,
    matmul_parameters,
    parameters,
)

# Counts of the released checkpoints (sum of tensor sizes on their model cards).
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-70b": 68_976_648_192,
    "llama3.2-1b": 1_235_814_400,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameter_counts_are_the_published_ones(name: str, count: int) -> None:
    assert parameters(preset(name)).total == count


def test_gpt3_count_is_the_papers_174_6_billion() -> None:
    assert parameters(preset("gpt3-175b")).total == pytest.approx(174.6e9, rel=1e-4)


def test_bloom_has_what_its_card_counts_but_for_the_norm_behind_the_embedding() -> None:
    assert parameters(preset("bloom")).total == 176_247_271_424 - 2 * 14336


def test_untying_the_head_adds_one_embedding() -> None:
    tied = presets()["gpt2-large"]
    untied = TransformerShape(**{**vars(tied), "tied_embeddings": False})
    extra = parameters(untied).total - parameters(tied).total
    assert extra == 50257 * 1280
    assert parameters(untied).total == 838_359_040
    assert matmul_parameters(untied) == matmul_parameters(tied)


def test_mixtral_uses_12_9_billion_parameters_per_token() -> None:
    # "each token only uses 13B active parameters" (arXiv:2401.04088, abstract)
    count = parameters(preset("mixtral-8x7b"))
    assert count.active == 12_879_925_248
    assert count.expert == 32 * 8 * 3 * 4096 * 14336


def test_layers_and_the_rest_sum_to_the_whole() -> None:
    for shape in presets().values():
        count = parameters(shape)
        rest = count.token_embedding + count.position_embedding + count.output_head
        final_norm = shape.norm_tensors * shape.hidden
        mean = shape.layers * layer_parameters(shape)
        if shape.dense_layers:  # the mean of unlike layers is cut to a whole number
            assert mean + rest + final_norm == pytest.approx(count.total, abs=shape.layers)
        else:
            assert mean + rest + final_norm == count.total


def test_a_gpt2_layer_has_12h2_plus_13h_parameters() -> None:
    assert layer_parameters(preset("gpt2-large")) == 12 * 1280**2 + 13 * 1280


@given(
    layers=st.integers(1, 100),
    heads=st.integers(1, 64),
    head_dim=st.sampled_from([32, 64, 128]),
    vocab=st.integers(100, 200_000),
    sequence=st.integers(1, 8192),
)
def test_flops_equal_megatrons_formula(
    layers: int, heads: int, head_dim: int, vocab: int, sequence: int
) -> None:
    # 72·L·h²·(1 + s/(6h) + V/(12·L·h)) per token (arXiv:2104.04473 without recomputation)
    hidden = heads * head_dim
    shape = TransformerShape(
        name="gpt",
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn_hidden=4 * hidden,
        vocab=vocab,
        sequence=sequence,
        bias=True,
        norm_tensors=2,
        tied_embeddings=True,
        learned_positions=True,
    )
    formula = 72 * layers * hidden**2 + 12 * layers * hidden * sequence + 6 * vocab * hidden
    assert flops_per_token(shape) == formula


def test_experts_cost_the_active_parameters_only() -> None:
    mixtral = preset("mixtral-8x7b")
    assert flops_per_token(mixtral, 0) < 6 * parameters(mixtral).active
    assert flops_per_token(mixtral, 0) > 6 * 12.5e9


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_state_matches_figure_1_of_the_zero_paper(stage: int, gigabytes: float) -> None:
    # arXiv:1910.02054 figure 1: 7.5 B parameters, 64-way data parallel
    assert state_bytes(7.5e9, stage, 64).total / 1e9 == pytest.approx(gigabytes, abs=0.05)


@given(
    count=st.integers(1, 10**12),
    stage=st.integers(0, 3),
    shards=st.integers(1, 4096),
    precision=st.sampled_from(["mixed", "fp32", "bf16"]),
)
def test_more_sharding_never_needs_more(count: int, stage: int, shards: int, precision) -> None:  # type: ignore[no-untyped-def]
    here = state_bytes(count, stage, shards, precision=precision).total
    assert state_bytes(count, stage, shards + 1, precision=precision).total <= here
    if stage < 3:
        assert state_bytes(count, stage + 1, shards, precision=precision).total <= here
    assert here >= state_bytes(count, 3, shards, precision=precision).total


def test_state_rejects_nonsense() -> None:
    with pytest.raises(ValueError, match="zero_stage is 4"):
        state_bytes(1, 4)
    with pytest.raises(ValueError, match="shards is 0"):
        state_bytes(1, 1, 0)


def test_gpt3_activations_are_275_gb_per_sample() -> None:
    shape = preset("gpt3-175b")
    assert activation_bytes(shape, 1) / 1e9 == pytest.approx(275.4, abs=0.05)
    # arXiv:2205.05198 section 4.2: 5as/h = 80 for GPT-3
    scores = layer_activation_bytes(shape, 1) - layer_activation_bytes(
        shape, 1, recompute="selective"
    )
    assert scores == 80 * 2048 * 12288


def test_tensor_and_sequence_parallel_activations_follow_table_2() -> None:
    # arXiv:2205.05198 table 2, in units of s·b·h: rows of one transformer layer
    shape, unit = preset("gpt3-175b"), 2048 * 12288
    per_layer = [
        (layer_activation_bytes(shape, 1), 34 + 80),
        (layer_activation_bytes(shape, 1, tensor_parallel=8), 10 + 24 / 8 + 80 / 8),
        (
            layer_activation_bytes(shape, 1, tensor_parallel=8, sequence_parallel=True),
            34 / 8 + 80 / 8,
        ),
        (
            layer_activation_bytes(
                shape, 1, tensor_parallel=8, sequence_parallel=True, recompute="selective"
            ),
            34 / 8,
        ),
        (layer_activation_bytes(shape, 1, recompute="full"), 2),
    ]
    for value, units in per_layer:
        assert value == pytest.approx(units * unit)


def test_other_shapes_keep_what_their_parts_give() -> None:
    shape = preset("llama3-8b")  # inputs 8 h; queries, attention 4 h; keys, values h; 6 x 3.5 h
    unit = 8192 * 4096
    assert layer_activation_bytes(shape, 1, flash_attention=True) == (8 + 4 + 1 + 21) * unit
    held = output_activation_bytes(shape, 1, loss="torch")
    assert held == 4 * 8192 * (4096 + 3 * 128256)


def test_full_recomputation_keeps_inputs_and_one_working_layer() -> None:
    shape = preset("gpt2-large")
    unit = 1024 * 8 * 1280
    scores = 5 * 20 * 1024 / 1280
    expected = 36 * 2 * unit + (34 + scores) * unit
    assert activation_bytes(shape, 8, recompute="full") == pytest.approx(expected)


def test_logits_dominate_the_output_of_a_small_model() -> None:
    logits = 4 * 1024 * 8 * 50257
    assert output_activation_bytes(preset("gpt2"), 8) == logits + 4 * 1024 * 8 * 768


def test_a_misspelt_preset_suggests_the_right_one() -> None:
    with pytest.raises(AdvisorError) as caught:
        preset("gpt2-lrage")
    assert "gpt2-large" in caught.value.hint
    assert preset("GPT2_Large") is presets()["gpt2-large"]


def test_shapes_that_cannot_exist_say_which_settings_clash() -> None:
    base = vars(presets()["gpt2"]) | {"head_dim": 0}
    with pytest.raises(ValueError, match=r"hidden=770.*heads=12"):
        TransformerShape(**{**base, "hidden": 770})
    with pytest.raises(ValueError, match=r"kv_heads=5"):
        TransformerShape(**{**base, "kv_heads": 5})
    with pytest.raises(ValueError, match="experts_per_token"):
        TransformerShape(**{**base, "experts_per_token": 2})


def test_deepseek_v3_has_671_billion_parameters_of_which_37_are_active() -> None:
    # DeepSeek-AI 2024, section 4.2: 671 B in all, 37 B per token
    count = parameters(preset("deepseek-v3"))
    assert count.total == pytest.approx(671e9, rel=0.001)
    assert count.active == pytest.approx(37e9, rel=0.02)
    assert count.expert == 58 * 256 * 3 * 7168 * 2048
