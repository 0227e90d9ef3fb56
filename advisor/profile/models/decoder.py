"""The frame that all our language models share: embedding, a list of layers, a head.

Parallelism is applied from outside (advisor.profile.strategies), so the frame only promises what
strategies need: ``embedding`` turns tokens [batch, sequence] into activations [batch, sequence,
hidden], every layer maps activations to activations, ``head`` turns them into logits
[batch, sequence, vocabulary]. A pipeline stage is the same frame with some parts missing.
"""

from collections.abc import Callable, Iterable

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


class Layer(nn.Module):
    """Pre-norm attention and MLP, each added to the residual stream."""

    def __init__(self, norm: Callable[[], nn.Module], attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.attention_norm, self.attention = norm(), attention
        self.mlp_norm, self.mlp = norm(), mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] to the same."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Head(nn.Module):
    """Final norm and the projection to the vocabulary."""

    def __init__(self, norm: nn.Module, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.norm = norm
        self.vocabulary = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] to logits [batch, sequence, vocabulary]."""
        return self.vocabulary(self.norm(x))


def next_token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over all tokens, in float32: a scalar."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
