"""GPT-2 (Radford et al. 2019), written for one device.

Shapes are Hugging Face's ``gpt2``, ``gpt2-medium``, ``gpt2-large`` and ``gpt2-xl``: learned
positions, pre-norm, one fused query-key-value projection, GELU (tanh), output tied to the token
embedding. The rows of the fused projection are ordered [head][query, key, value], not
[query][key][value], so that a contiguous shard of them holds whole heads (tensor parallelism).

Parameters: layers * (12 h^2 + 13 h) + (vocabulary + positions) * h + 2 h. For ``large`` that is
36 * 19,677,440 + 51,281 * 1,280 + 2,560 = 774,030,080. The figure 774,439,808 that some studies
print is not these shapes: its tail is that of GPT-2 small's 124,439,808.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from advisor.profile.models.decoder import Decoder, Head, Layer


@dataclass(frozen=True)
class Shape:
    """Sizes of a GPT-2."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int = 50257
    positions: int = 1024

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values: one per query head."""
        return self.heads


PRESETS = {
    "tiny": Shape(layers=4, hidden=256, heads=4, vocabulary=1024, positions=256),
    "small": Shape(layers=12, hidden=768, heads=12),
    "medium": Shape(layers=24, hidden=1024, heads=16),
    "large": Shape(layers=36, hidden=1280, heads=20),
    "xl": Shape(layers=48, hidden=1600, heads=25),
}

_INIT_STD = 0.02  # GPT-2's code: normal(0, 0.02), residual projections scaled by 1/sqrt(2 layers)


class Embedding(nn.Module):
    """Token plus position embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(shape.positions, shape.hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[batch, sequence] to [batch, sequence, hidden]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.tokens(tokens) + self.positions(positions)


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_size = shape.hidden // shape.heads
        self.query_key_value = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.output = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] to the same; heads are counted from the weights' width."""
        batch, sequence, _ = x.shape
        mixed = self.query_key_value(x).view(batch, sequence, -1, 3, self.head_size)
        query, key, value = mixed.permute(3, 0, 2, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(attended.transpose(1, 2).reshape(batch, sequence, -1))


class Mlp(nn.Module):
    """Two linear layers around a GELU, four times as wide inside."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.hidden, 4 * shape.hidden)
        self.down = nn.Linear(4 * shape.hidden, shape.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] to the same."""
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


def build(shape: Shape) -> Decoder:
    """A GPT-2 with freshly drawn weights, on torch's default device; the head's are the tokens'."""
    embedding = Embedding(shape)
    norm = partial(nn.LayerNorm, shape.hidden)
    head = Head(norm(), shape.hidden, shape.vocabulary)
    head.vocabulary.weight = embedding.tokens.weight
    layers = [Layer(norm, Attention(shape), Mlp(shape)) for _ in range(shape.layers)]
    model = Decoder(embedding, layers, head)
    _initialise(model, shape)
    return model


def _initialise(model: Decoder, shape: Shape) -> None:
    residual_std = _INIT_STD / (2 * shape.layers) ** 0.5
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            is_residual = name.endswith((".attention.output", ".mlp.down"))
            nn.init.normal_(module.weight, std=residual_std if is_residual else _INIT_STD)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
