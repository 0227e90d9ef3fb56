"""Synthetic tokens: the same for the same seed, step and micro-batch, on any number of ranks.

Micro-batch ``index`` counts over the whole global batch, so that two strategies that cut the
global batch differently still train on the same data (which is how their losses are compared).
"""

import torch


def tokens(
    *, seed: int, step: int, index: int, micro_batch: int, sequence_length: int, vocabulary: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels, each [micro_batch, sequence_length], int64, on the CPU.

    Half of the tokens follow from their predecessor, so that there is something to learn and the
    loss moves away from log(vocabulary).
    """
    generator = torch.Generator().manual_seed(((seed * 1_000_003) + step) * 1_000_003 + index)
    shape = (micro_batch, sequence_length + 1)
    drawn = torch.randint(vocabulary, shape, generator=generator)
    follows = torch.rand(shape, generator=generator) < 0.5
    successor = (drawn.roll(1, dims=1) * 7 + 3) % vocabulary
    text = torch.where(follows, successor, drawn)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()
