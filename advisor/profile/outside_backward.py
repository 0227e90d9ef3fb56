"""Runs what may not run inside a backward pass at its end.

An optimizer may step in a gradient's hook. Autograd keeps the profiler's state for each pass: one
that is started or stopped inside of it ends the process at its next call.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

_passes: list[None] = []  # that run, one inside another where activations are recomputed
_waiting: list[Callable[[], None]] = []


@functools.cache
def watch() -> None:
    """From here on backward passes are known; a second call does nothing."""
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def watched(*args: Any, **kwargs: Any) -> Any:
        _passes.append(None)
        try:
            result = backward(*args, **kwargs)
        finally:
            _passes.pop()
        while not _passes and _waiting:
            _waiting.pop(0)()
        return result

    torch.autograd.backward = watched


def run(act: Callable[[], None]) -> None:
    """``act`` now, or when the backward pass that runs has ended."""
    if _passes:
        _waiting.append(act)
    else:
        act()
