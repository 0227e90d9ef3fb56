"""The frame that all our language models share: embedding, a list of layers, a head.

Parallelism is applied from outside (advisor.profile.strategies), so the frame only promises what
strategies need: ``embedding`` turns tokens [batch, sequence] into activations [batch, sequence,
hidden], every layer maps activations to activations, ``head`` turns them into logits
[batch, sequence, vocabulary]. A pipeline stage is the same frame with some parts missing.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional


class Decoder(nn.Module):
    """Embedding, layers, head; ``None`` for a part that another pipeline stage holds."""

    def __init__(
        self, embedding: nn.Module | None, layers: Iterable[nn.Module], head: nn.Module | None
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.head = head

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Tokens (or the previous stage's activations) to logits (or activations)."""
        activations = inputs if self.embedding is None else self.embedding(inputs)
        for layer in self.layers:
            activations = layer(activations)
        return activations if self.head is None else self.head(activations)


def next_token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over all tokens, in float32: a scalar."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
