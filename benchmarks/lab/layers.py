"""The lab's layers: emulated or real arithmetic, with the communication that TP and EP put inside.

``compute: emulated`` waits (:mod:`advisor.profile.emulate`); ``compute: real`` multiplies matrices
for about the same time on a free core, so that a CPU quota really slows it down.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from advisor.profile.emulate import EmulatedLayer
from benchmarks.lab.config import RunConfig

FLOAT_BYTES = 4
MATRIX = 192
EXPERT_SHARE = 0.5


class EmulatedModel(nn.Module):
    """A stack of :class:`EmulatedLayer`, annotated ``## layer N ##`` in the profile."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``: micro-batch of activations, e.g. (samples, hidden)."""
        for number, layer in enumerate(self.layers):
            with torch.profiler.record_function(f"## layer {number} ##"):
                x = layer(x)
        return x


def make_model(
    config: RunConfig,
    rank: int,
    *,
    layers: int | None = None,
    layer: Callable[[], nn.Module] | None = None,
) -> EmulatedModel:
    """The stack of layers of one rank."""
    factory = layer or (lambda: make_layer(config, rank))
    count = config.layers if layers is None else layers
    return EmulatedModel([factory() for _ in range(count)])


def make_layer(config: RunConfig, rank: int, *, share: float = 1.0) -> nn.Module:
    """One layer, or a part of it (``share`` of its parameters and time)."""
    elements = int(config.layer_bytes * share) // FLOAT_BYTES
    scale = share * config.time_scale.get(rank, 1.0) * config.work_scale.get(rank, 1.0)
    forward_ns = int(config.forward_ms * 1e6 * scale)
    backward_ns = int(config.backward_ms * 1e6 * scale)
    weights = (elements - elements // 3, elements // 3)
    if config.compute == "real":
        return RealLayer(weights, forward_ns=forward_ns, backward_ns=backward_ns)
    return EmulatedLayer(weights, forward_ns=forward_ns, backward_ns=backward_ns)


@functools.cache
def product_ns() -> float:
    """Time of one MATRIX² product on a free core: the best of many. Ask before forking."""
    matrix = torch.ones(MATRIX, MATRIX)
    best = float("inf")
    for _ in range(200):
        began = time.perf_counter_ns()
        matrix.mm(matrix)
        best = min(best, time.perf_counter_ns() - began)
    return best


def _multiply(products: int) -> None:
    matrix = torch.ones(MATRIX, MATRIX)
    for _ in range(products):
        matrix.mm(matrix)


class _RealFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, forward: int, backward: int, *weights: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(*weights)
        ctx.products = backward
        _multiply(forward)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        _multiply(ctx.products)
        return gradient, None, None, *(weight * 1e-3 for weight in ctx.saved_tensors)


class RealLayer(nn.Module):
    """Matrix products, as many as took ``forward_ns`` and ``backward_ns`` on a free core."""

    def __init__(
        self, weight_elements: tuple[int, ...], *, forward_ns: int, backward_ns: int
    ) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.Parameter(torch.full((elements,), 1e-2)) for elements in weight_elements
        )
        self.forward_products = max(1, round(forward_ns / product_ns()))
        self.backward_products = max(1, round(backward_ns / product_ns()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _RealFunction.apply(
            x, self.forward_products, self.backward_products, *self.weights
        )
        return result


class _CopyToGroup(torch.autograd.Function):
    """Megatron's f: identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient = gradients[0].contiguous().clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _ReduceFromGroup(torch.autograd.Function):
    """Megatron's g: all-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        result = x.contiguous().clone()
        dist.all_reduce(result, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return gradients[0], None


class TensorParallelLayer(nn.Module):
    """Attention and MLP halves, each between Megatron's f and g: 4 all-reduces per step."""

    def __init__(self, config: RunConfig, rank: int, group: Any) -> None:
        super().__init__()
        # Each half of the layer is split over the pair: a quarter of its weights here. The time
        # per rank is the layer's own: it is given per rank.
        self.halves = nn.ModuleList(
            make_layer(config.but(layer_bytes=config.layer_bytes // 2), rank, share=0.5)
            for _ in range(2)
        )
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for half in self.halves:
            x = _ReduceFromGroup.apply(half(_CopyToGroup.apply(x, self.group)), self.group)
        return x


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, output_splits: list[int], input_splits: list[int]
    ) -> torch.Tensor:
        ctx.splits = (output_splits, input_splits)
        return _all_to_all(x, output_splits, input_splits)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        output_splits, input_splits = ctx.splits
        return _all_to_all(gradients[0], input_splits, output_splits), None, None


def _all_to_all(x: torch.Tensor, output_splits: list[int], input_splits: list[int]) -> torch.Tensor:
    result = x.new_empty((sum(output_splits), *x.shape[1:]))
    dist.all_to_all_single(result, x.contiguous(), output_splits, input_splits)
    return result


class ExpertLayer(nn.Module):
    """A dense half, then dispatch, this rank's expert, combine: 4 all-to-alls per step."""

    def __init__(self, config: RunConfig, rank: int) -> None:
        super().__init__()
        self.dense = make_layer(config, rank, share=1 - EXPERT_SHARE)
        self.expert = make_layer(config, rank, share=EXPERT_SHARE)
        ranks = config.ranks
        tokens = config.activation_elements // TOKEN_ELEMENTS
        # Every rank sends the same: its fair part to each expert, and the skew to expert 0.
        to_first = round(tokens * (1 / ranks + config.expert_skew * (1 - 1 / ranks)))
        rest = (tokens - to_first) // (ranks - 1)
        self.send = [tokens - rest * (ranks - 1)] + [rest] * (ranks - 1)
        self.receive = [self.send[rank]] * ranks
        if isinstance(self.expert, EmulatedLayer):
            self.expert.time_scale = sum(self.receive) / tokens

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dense(x)
        tokens = x.reshape(-1, TOKEN_ELEMENTS)
        routed = _AllToAll.apply(tokens, self.receive, self.send)
        combined = _AllToAll.apply(self.expert(routed), self.send, self.receive)
        return combined.reshape(x.shape)


TOKEN_ELEMENTS = 64
