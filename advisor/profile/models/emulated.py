"""A model whose layers wait instead of computing (``compute: emulated``); the rest is real."""

from dataclasses import dataclass

from torch import nn

from advisor.config.workload import Emulated
from advisor.profile.emulate import EmulatedLayer, set_precise_timers
from advisor.profile.models.decoder import Decoder, Head

_HIDDEN = 64
_VOCABULARY = 64
_BYTES_PER_ELEMENT = 4


@dataclass(frozen=True)
class Shape:
    """Sizes and times of an emulated model; embedding and head are small and real."""

    layers: int
    forward_ns: int
    backward_ns: int
    gradient_elements: int
    hidden: int = _HIDDEN
    heads: int = 1
    key_value_heads: int = 1
    vocabulary: int = _VOCABULARY
    positions: int = 1 << 20


def shape_of(settings: Emulated) -> Shape:
    """The shape for a workload's ``emulated`` section."""
    return Shape(
        layers=settings.layers,
        forward_ns=round(settings.forward_ms * 1e6),
        backward_ns=round(settings.backward_ms * 1e6),
        gradient_elements=max(1, round(settings.gradient_mb * (1 << 20) / _BYTES_PER_ELEMENT)),
    )


def build(shape: Shape) -> Decoder:
    """Embedding, emulated layers, head."""
    set_precise_timers()
    layers = [
        EmulatedLayer(
            [shape.gradient_elements], forward_ns=shape.forward_ns, backward_ns=shape.backward_ns
        )
        for _ in range(shape.layers)
    ]
    embedding = nn.Embedding(shape.vocabulary, shape.hidden)
    return Decoder(embedding, layers, Head(nn.Identity(), shape.hidden, shape.vocabulary))
