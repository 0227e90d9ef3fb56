"""Named ranges: one call opens an NVTX range and a profiler annotation of the same name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nvtx
import torch
from torch import nn

from advisor.profile import names


class Range:
    """A range that is opened and closed by hand, on one thread, in nesting order."""

    def __init__(self, name: str) -> None:
        self._annotation = torch.profiler.record_function(name)
        self._annotation.__enter__()
        nvtx.push_range(name, domain=names.NVTX_DOMAIN)

    def close(self) -> None:
        """End the range."""
        nvtx.pop_range(domain=names.NVTX_DOMAIN)
        self._annotation.__exit__(None, None, None)


@contextmanager
def named(name: str) -> Iterator[None]:
    """The body as a range."""
    opened = Range(name)
    try:
        yield
    finally:
        opened.close()


class LayerRanges:
    """Ranges around every layer, in the forward pass by module hooks, in the backward by tensors'.

    The backward pass of layer N lies between the gradient of its output and that of its input.
    Hooks on these two tensors change nothing that autograd computes. The output of layer N-1 is the
    input of layer N, so a start closes the range before it: at most one is open.
    """

    def __init__(self) -> None:
        self._forward: list[Range] = []
        self._backward: Range | None = None

    def attach(self, number: int, layer: nn.Module) -> None:
        """Mark this layer's passes as ``## layer number ##``."""
        name = names.layer(number)

        def before(_module: nn.Module, _inputs: Any) -> None:
            self._forward.append(Range(name))

        def after(_module: nn.Module, inputs: Any, output: Any) -> None:
            self._forward.pop().close()
            if not (torch.is_grad_enabled() and isinstance(output, torch.Tensor)):
                return
            if output.requires_grad:
                output.register_hook(lambda _gradient: self._start_backward(name))
            first = inputs[0] if inputs else None
            if isinstance(first, torch.Tensor) and first.requires_grad:
                first.register_hook(lambda _gradient: self._end_backward(name))

        layer.register_forward_pre_hook(before, prepend=True)
        layer.register_forward_hook(after, always_call=False)

    def close(self) -> None:
        """Close what is still open: called at the end of the backward pass."""
        if self._backward is not None:
            self._backward.close()
            self._backward = None
            self._open_name = ""

    _open_name = ""

    def _start_backward(self, name: str) -> None:
        self.close()
        self._backward, self._open_name = Range(name), name

    def _end_backward(self, name: str) -> None:
        if self._open_name == name:
            self.close()
