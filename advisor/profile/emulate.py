"""``compute: emulated``: layers whose arithmetic is a timed wait, for more ranks than cores.

One machine can then hold many ranks: parameters, gradients, activations and every byte of
communication are real, only the time of a layer's arithmetic comes from the workload. The wait is
the custom operator ``advisor::emulated_compute``: it sleeps to an absolute deadline, without the
interpreter lock, so that communication threads run meanwhile; the profiler records it as an
operator like any other, in forward and in backward.
"""

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

OPERATOR = "advisor::emulated_compute"
PR_SET_TIMERSLACK = 29


def set_precise_timers() -> bool:
    """Ask the kernel to wake this thread's sleeps within 1 µs of their end (default 50 µs).

    Threads started later inherit it. Returns whether the kernel agreed (Linux only).
    """
    try:
        return int(ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)) == 0
    except (AttributeError, OSError):
        return False


def wait_until(deadline_ns: int) -> None:
    """Sleep until ``time.monotonic_ns()`` reaches ``deadline_ns``, never less."""
    while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)


@torch.library.custom_op(OPERATOR, mutates_args=())
def emulated_compute(x: torch.Tensor, duration_ns: int) -> torch.Tensor:
    """A copy of ``x``, ``duration_ns`` after the call."""
    deadline_ns = time.monotonic_ns() + duration_ns
    result = x.clone()
    wait_until(deadline_ns)
    return result


@emulated_compute.register_fake
def _(x: torch.Tensor, duration_ns: int) -> torch.Tensor:
    return torch.empty_like(x)


class _EmulatedFunction(torch.autograd.Function):
    """Takes ``forward_ns`` forward and ``backward_ns`` backward; gradients for x and weights.

    The gradient of a weight is the weight scaled by the mean of the incoming gradient: real
    data of the right size, so that training neither diverges nor sends constants.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, forward_ns: int, backward_ns: int, *weights: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(*weights)
        ctx.backward_ns = backward_ns
        result: torch.Tensor = emulated_compute(x, forward_ns)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        deadline_ns = time.monotonic_ns() + ctx.backward_ns
        scale = gradient.flatten()[0].to(torch.float32)
        of_weights = [weight * scale.to(weight.dtype) for weight in ctx.saved_tensors]
        left_ns = max(0, deadline_ns - time.monotonic_ns())
        return emulated_compute(gradient, left_ns), None, None, *of_weights


class EmulatedLayer(nn.Module):
    """One layer: real parameters, emulated time.

    ``weight_elements``: elements of each of its parameters. ``forward_ns`` and ``backward_ns``
    may be changed between steps; ``time_scale`` multiplies both (a slow rank, more work).
    """

    def __init__(
        self, weight_elements: Sequence[int], *, forward_ns: int, backward_ns: int
    ) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.Parameter(torch.full((elements,), 1e-2)) for elements in weight_elements
        )
        self.forward_ns = forward_ns
        self.backward_ns = backward_ns
        self.time_scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of any shape; the result has the same."""
        result: torch.Tensor = _EmulatedFunction.apply(
            x,
            int(self.forward_ns * self.time_scale),
            int(self.backward_ns * self.time_scale),
            *self.weights,
        )
        return result
