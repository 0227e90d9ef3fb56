"""Parameter counts against published checkpoints, on the meta device; layers against formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.model import presets
from advisor.model.transformer import parameters
from advisor.profile import models, sizes
from advisor.profile.models import llama, moe
from advisor.profile.models.decoder import next_token_loss

# Released checkpoints: the sum of their tensors' sizes.
PUBLISHED = {
    ("gpt2", "small"): 124_439_808,
    ("gpt2", "medium"): 354_823_168,
    ("gpt2", "large"): 774_030_080,
    ("gpt2", "xl"): 1_557_611_200,
    ("llama", "1b"): 1_235_814_400,
    ("llama", "7b"): 6_738_415_616,
    ("llama", "13b"): 13_015_864_320,
    ("llama", "70b"): 68_976_648_192,
    ("moe", "8x7b"): 46_702_792_704,
}
PLANNED = {
    ("gpt2", "large"): "gpt2-large",
    ("llama", "7b"): "llama-7b",
    ("llama", "13b"): "llama-13b",
    ("llama", "70b"): "llama2-70b",
    ("moe", "8x7b"): "mixtral-8x7b",
}


def build(family: str, preset: str, **settings: Any) -> Any:
    model = {"family": family, "preset": preset, **settings}
    return models.build(Workload.model_validate({"model": model}))


def count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_parameter_counts_are_the_published_ones(name: tuple[str, str], published: int) -> None:
    with torch.device("meta"):
        assert count(build(*name)) == published


@pytest.mark.parametrize(("name", "planned"), PLANNED.items())
def test_models_are_the_shapes_that_planning_counts(name: tuple[str, str], planned: str) -> None:
    with torch.device("meta"):
        assert count(build(*name)) == parameters(presets.preset(planned)).total


def test_the_study_s_count_of_gpt2_large_is_no_count_of_it() -> None:
    printed, hidden = 774_439_808, 1280
    with torch.device("meta"):
        large, small = count(build("gpt2", "large")), count(build("gpt2", "small"))
    terms = 36 * (12 * hidden**2 + 13 * hidden) + (50_257 + 1_024) * hidden + 2 * hidden
    assert large == terms == 774_030_080
    # Padding the vocabulary or the positions would add whole rows.
    assert (printed - large, (printed - large) % hidden != 0) == (409_728, True)
    assert printed % 10**6 == small % 10**6 == 439_808
    for place in ("docs/strategies.md", "workloads/gpt2-large-2xh100.yaml"):
        text = (Path(__file__).parents[2] / place).read_text(encoding="utf-8")
        for number in (large, printed, printed - large, small):
            assert f"{number:,}" in text, f"{number:,} in {place}"


def test_fewer_layers_take_away_their_parameters() -> None:
    # 12 h^2 + 13 h per layer: attention 4 h^2 + 4 h, MLP 8 h^2 + 5 h, two norms 4 h.
    with torch.device("meta"):
        difference = count(build("gpt2", "large")) - count(build("gpt2", "large", layers=35))
    assert difference == 12 * 1280**2 + 13 * 1280


@pytest.mark.parametrize("family", ["gpt2", "llama", "moe"])
def test_an_untrained_model_knows_nothing(family: str) -> None:
    torch.manual_seed(0)
    model = build(family, "tiny")
    tokens = torch.randint(1024, (2, 33))
    loss = next_token_loss(model(tokens[:, :-1]), tokens[:, 1:])
    assert loss.item() == pytest.approx(torch.log(torch.tensor(1024.0)).item(), abs=0.2)


@pytest.mark.parametrize("family", ["gpt2", "llama", "moe"])
def test_a_token_does_not_see_the_ones_after_it(family: str) -> None:
    torch.manual_seed(0)
    model = build(family, "tiny")
    tokens = torch.randint(1024, (1, 16))
    changed = tokens.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % 1024
    before, after = model(tokens), model(changed)
    assert torch.allclose(before[0, :10], after[0, :10], atol=1e-5)
    assert not torch.allclose(before[0, 10:], after[0, 10:], atol=1e-3)


def test_rotary_attention_depends_on_distances_only() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    cosine, sine = llama.rotation(16, 8, 10_000.0, torch.device("cpu"))

    def score(position: int, other: int) -> float:
        turned = llama.rotate(query, cosine[position], sine[position])
        return float((turned * llama.rotate(key, cosine[other], sine[other])).sum())

    assert score(3, 1) == pytest.approx(score(12, 10), abs=1e-5)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)


def test_balance_loss_is_one_when_even_and_the_number_of_experts_when_not() -> None:
    even = moe.balance_loss(torch.full((8, 4), 0.25), torch.tensor([4, 4, 4, 4]))
    one = torch.zeros(8, 4)
    one[:, 2] = 1.0
    assert float(even) == pytest.approx(1.0)
    assert float(moe.balance_loss(one, torch.tensor([0, 0, 16, 0]))) == pytest.approx(4.0)


def test_experts_give_what_a_plain_sum_over_picks_gives() -> None:
    torch.manual_seed(0)
    shape = moe.PRESETS["tiny"]
    sparse = moe.SparseMlp(shape)
    for weight in sparse.experts.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    x = torch.randn(1, 5, shape.hidden)
    found = sparse(x)
    for token in range(5):
        row = x[0, token]
        weights, picks = sparse.router(row).softmax(-1).topk(shape.top)
        weights = weights / weights.sum()
        expected = torch.zeros_like(row)
        for weight, pick in zip(weights, picks, strict=True):
            experts = sparse.experts
            gated = torch.nn.functional.silu(row @ experts.gate[pick]) * (row @ experts.up[pick])
            expected = expected + weight * (gated @ experts.down[pick])
        assert torch.allclose(found[0, token], expected, atol=1e-5)


def test_the_balance_loss_reaches_the_router_with_its_scale() -> None:
    torch.manual_seed(0)
    sparse = moe.SparseMlp(moe.PRESETS["tiny"])
    for weight in sparse.experts.parameters():
        torch.nn.init.zeros_(weight)  # then the answer, and its gradient to the router, is zero
    x = torch.randn(1, 64, 128)
    gradients = []
    for scale in (1.0, 0.5):
        sparse.router.weight.grad = None
        sparse.balance_scale = scale
        sparse(x).sum().backward()
        gradients.append(sparse.router.weight.grad.clone())
    assert gradients[0].abs().max() > 0
    assert torch.allclose(gradients[0], 2 * gradients[1])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"family": "gpt2", "preset": "huge"}, "known: tiny, small"),
        ({"family": "gpt2", "hidden": 30, "heads": 4}, "hidden (30) must be a multiple of heads"),
        ({"family": "llama", "heads": 3, "hidden": 48}, "heads (3) must be a multiple of key"),
    ],
)
def test_impossible_shapes_are_refused(model: dict[str, Any], said: str) -> None:
    with pytest.raises(AdvisorError) as refused:
        models.shape_of(Workload.model_validate({"model": model}))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("family", "preset"),
    [("gpt2", "tiny"), ("gpt2", "large"), ("llama", "1b"), ("llama", "70b"), ("moe", "8x7b")],
)
def test_the_recorded_shape_counts_the_same_parameters(family: str, preset: str) -> None:
    workload = Workload.model_validate({"model": {"family": family, "preset": preset}})
    shape = sizes.transformer(workload, models.shape_of(workload))
    with torch.device("meta"):
        model = models.build(workload)
    assert shape is not None
    assert parameters(shape).total == sum(p.numel() for p in model.parameters())
