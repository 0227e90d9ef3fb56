"""A mixture of experts like Mixtral (Jiang et al. 2024), written for one device.

LLaMA's layer with the MLP replaced by experts: a router picks ``top`` of them for every token, by
the softmax of its logits, and weighs their outputs by the picked probabilities, renormalised.

The load-balancing loss (Fedus et al. 2021, eq. 4) is experts * sum_i f_i P_i with f_i the share of
picks that went to expert i and P_i its mean probability. It enters through its gradient only: an
identity on the activations that adds the loss's gradient on the way back, so that it needs no path
of its own through wrappers and pipeline stages. The reported loss is the cross-entropy alone.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from advisor.profile.models import llama
from advisor.profile.models.decoder import Decoder


@dataclass(frozen=True)
class Shape(llama.Shape):
    """Sizes of a mixture of experts; ``mlp`` is the width of one expert."""

    experts: int = 8
    top: int = 2
    balance: float = 0.02  # router_aux_loss_coef in the config.json of Mixtral-8x7B-v0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top > self.experts:
            raise ValueError(f"top ({self.top}) must not exceed experts ({self.experts})")


PRESETS = {
    "tiny": Shape(4, 128, 4, 2, 256, vocabulary=1024, positions=256, experts=4),
    "8x7b": Shape(32, 4096, 32, 8, 14_336, positions=32_768, rotary_base=1e6),
}

_INIT_STD = 0.02


class _WithGradientOf(torch.autograd.Function):
    """Identity on ``x`` whose backward also gives the scalar ``loss`` the gradient ``scale``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, loss: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale, ctx.like = scale, loss
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return gradients[0], torch.full_like(ctx.like, ctx.scale), None


class Experts(nn.Module):
    """SwiGLU experts, their weights stacked; each works on its own rows."""

    def __init__(self, experts: int, hidden: int, width: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(experts, hidden, width))
        self.up = nn.Parameter(torch.empty(experts, hidden, width))
        self.down = nn.Parameter(torch.empty(experts, width, hidden))

    def forward(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """``rows`` [n, hidden] sorted by expert, ``counts`` [experts]; returns [n, hidden]."""
        done = [
            (functional.silu(own @ gate) * (own @ up)) @ down
            for own, gate, up, down in zip(
                rows.split(counts.tolist()), self.gate, self.up, self.down, strict=True
            )
        ]
        return torch.cat(done)


class SparseMlp(nn.Module):
    """Router and experts. ``balance_scale`` weighs the balance loss against the micro-batch's."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.top = shape.top
        self.balance = shape.balance
        self.balance_scale = 1.0
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.experts: nn.Module = Experts(shape.experts, shape.hidden, shape.mlp)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] to the same."""
        tokens = x.flatten(0, 1)
        probabilities = self.router(tokens).float().softmax(dim=-1)
        weights, picks = probabilities.topk(self.top, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        counts = picks.flatten().bincount(minlength=probabilities.shape[1])

        by_expert = picks.flatten().argsort(stable=True)
        token_of = by_expert // self.top
        answers = self.experts(tokens[token_of], counts)
        weighed = answers * weights.flatten()[by_expert, None].to(answers.dtype)
        mixed = torch.zeros_like(tokens).index_add(0, token_of, weighed.to(tokens.dtype))

        loss = self.balance * balance_loss(probabilities, counts)
        mixed = _WithGradientOf.apply(mixed, loss, self.balance_scale)
        return mixed.view_as(x)


def balance_loss(probabilities: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """1 when picks and probabilities are even over the experts, up to ``experts`` when not.

    ``probabilities`` [tokens, experts], ``counts`` of picks [experts].
    """
    shares = counts / counts.sum()
    return len(counts) * (shares * probabilities.mean(dim=0)).sum()


def build(shape: Shape) -> Decoder:
    """A mixture of experts with freshly drawn weights, on torch's default device."""
    model = llama.assemble(shape, SparseMlp)
    for module in model.modules():
        if isinstance(module, Experts):
            for weight in module.parameters():
                nn.init.normal_(weight, std=_INIT_STD)
    return model
