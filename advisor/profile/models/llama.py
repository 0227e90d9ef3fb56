"""LLaMA (Touvron et al. 2023), written for one device.

Pre-norm with RMSNorm, rotary positions, SwiGLU, and grouped-query attention where a preset has
fewer key-value heads than query heads. Shapes: ``1b`` is Llama 3.2 1B (its rotary scaling for long
contexts is left out: it changes no size and no time), ``7b`` and ``13b`` LLaMA, ``70b`` Llama 2.

Parameters: layers * (2 h^2 + 2 h h_kv + 3 h f + 2 h) + vocabulary * h * (1 or 2) + h, with h_kv
the width of the keys, f that of the MLP, and the vocabulary once when the head is tied to the
embedding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from advisor.profile.models.decoder import Decoder, Head, Layer


@dataclass(frozen=True)
class Shape:
    """Sizes of a LLaMA."""

    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    mlp: int
    vocabulary: int = 32000
    positions: int = 4096
    rotary_base: float = 10_000.0
    norm_epsilon: float = 1e-5
    is_tied: bool = False

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"heads ({self.heads}) must be a multiple of key_value_heads "
                f"({self.key_value_heads})"
            )

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads


PRESETS = {
    "tiny": Shape(4, 256, 4, 2, 512, vocabulary=1024, positions=256),
    "1b": Shape(
        16, 2048, 32, 8, 8192, vocabulary=128_256, positions=131_072,
        rotary_base=500_000.0, is_tied=True,
    ),
    "7b": Shape(32, 4096, 32, 32, 11_008),
    "13b": Shape(40, 5120, 40, 40, 13_824),
    "70b": Shape(80, 8192, 64, 8, 28_672),
}  # fmt: skip

_INIT_STD = 0.02  # as in GPT-2; LLaMA's paper does not give its own


class Attention(nn.Module):
    """Causal grouped-query self-attention with rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_size = shape.head_size
        self.rotary_base = shape.rotary_base
        key_value_width = shape.key_value_heads * shape.head_size
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.key = nn.Linear(shape.hidden, key_value_width, bias=False)
        self.value = nn.Linear(shape.hidden, key_value_width, bias=False)
        self.output = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] to the same; heads are counted from the weights' widths."""
        query, key, value = (self._heads(part(x)) for part in (self.query, self.key, self.value))
        sequence = query.shape[2]
        cosine, sine = rotation(sequence, self.head_size, self.rotary_base, query.device)
        attended = functional.scaled_dot_product_attention(
            rotate(query, cosine, sine),
            rotate(key, cosine, sine),
            value,
            is_causal=True,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return self.output(attended.transpose(1, 2).flatten(2))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (-1, self.head_size)).transpose(1, 2)


class Mlp(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] to the same."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Embedding(nn.Module):
    """Token embedding; positions enter in the attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[batch, sequence] to [batch, sequence, hidden]."""
        return self.tokens(tokens)


def build(shape: Shape) -> Decoder:
    """A LLaMA with freshly drawn weights, on torch's default device."""
    return assemble(shape, Mlp)


def assemble(shape: Shape, mlp: Callable[[Any], nn.Module]) -> Decoder:
    """A LLaMA whose layers have an ``mlp`` of the shape, weights drawn."""
    norm = partial(nn.RMSNorm, shape.hidden, eps=shape.norm_epsilon)
    layers = [Layer(norm, Attention(shape), mlp(shape)) for _ in range(shape.layers)]
    embedding, head = Embedding(shape), Head(norm(), shape.hidden, shape.vocabulary)
    if shape.is_tied:
        head.vocabulary.weight = embedding.tokens.weight
    model = Decoder(embedding, layers, head)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=_INIT_STD)
    return model


@lru_cache(maxsize=4)
def rotation(
    sequence: int, head_size: int, base: float, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [sequence, head_size] in float32 (Su et al. 2021, halves not pairs).

    Cached and not a buffer: DDP would broadcast a buffer in every step.
    """
    halves = torch.arange(0, head_size, 2, device=device, dtype=torch.float32)
    frequencies = base ** (-halves / head_size)
    positions = torch.arange(sequence, device=device, dtype=torch.float32)
    angles = torch.outer(positions, frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Turn [batch, heads, sequence, head_size] by its positions."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x * cosine + turned * sine).to(x.dtype)
