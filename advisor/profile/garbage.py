"""Ranges around full collections of Python's garbage, in which the host runs nothing else."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from advisor.profile import names
from advisor.profile.ranges import Range

_FULL = 2  # the generation that a collection of all objects has (docs.python.org, module gc)


@contextmanager
def collections_marked() -> Iterator[None]:
    """While the body runs, full collections are ranges; younger ones take microseconds.

    torch's own record_python_gc_info needs recorded stacks, which slow every call.
    """
    opened: list[Range] = []

    def mark(phase: str, about: dict[str, Any]) -> None:
        if opened:
            opened.pop().close()
        if phase == "start" and about["generation"] == _FULL:
            opened.append(Range(names.COLLECTION))

    gc.callbacks.append(mark)
    try:
        yield
    finally:
        gc.callbacks.remove(mark)
