"""Ranges around the pickling that collectives of Python objects do, which no operator shows."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from advisor.profile import names
from advisor.profile.ranges import named


@contextmanager
def pickling_marked() -> Iterator[None]:
    """While the body runs, torch's pickling and unpickling for collectives are ranges.

    Both functions are private to torch: one that a release lacks is left out.
    """
    c10d: Any = dist.distributed_c10d if dist.is_available() else None
    found = {name: getattr(c10d, name) for name in names.PICKLING if hasattr(c10d, name)}
    for name, function in found.items():
        setattr(c10d, name, _in_range(name, function))
    try:
        yield
    finally:
        for name, function in found.items():
            setattr(c10d, name, function)


def _in_range(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        with named(name):
            return function(*args, **kwargs)

    return marked
