"""Inputs of a fuzzer in batches, each in a process of its own with a bound of memory and time."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

HANG_S = 20
"""Processor time that one input may take."""
MEMORY_BYTES = 2 << 30

Work = Callable[[Iterable[int], Callable[[tuple[int, str]], None]], None]
"""Tries inputs of these numbers and tells each failure, as number and traceback."""


def in_batches(work: Work, inputs: range, batch: int, wait_s: float) -> Iterator[tuple[int, str]]:
    """All failures; a batch that outlasts ``wait_s`` is killed and is one, as one that dies is.

    These two have the number of the input that was being tried.
    """
    context = multiprocessing.get_context("fork")
    for place in range(0, len(inputs), batch):
        found = context.SimpleQueue()
        numbers = inputs[place : place + batch]
        at = context.Value("q", numbers.start)
        process = context.Process(target=_bounded, args=(work, numbers, found, at))
        process.start()
        deadline = time.monotonic() + wait_s
        while process.is_alive() and time.monotonic() < deadline:
            process.join(0.05)
            # A full pipe would hold up who writes.
            while not found.empty():
                yield found.get()
        if process.is_alive():
            process.kill()
            process.join()
            yield at.value, "hang: the batch did not end"
        elif process.exitcode:
            yield at.value, f"the batch ended with {process.exitcode}"
        while not found.empty():
            yield found.get()


def _bounded(work: Work, numbers: range, found: Any, at: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (3 * MEMORY_BYTES, 3 * MEMORY_BYTES))
    work(_told(numbers, at), found.put)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > MEMORY_BYTES:
        found.put((numbers.start, f"memory: {peak / 2**30:.1f} GiB in this batch"))


def _told(numbers: range, at: Any) -> Iterator[int]:
    for number in numbers:
        at.value = number
        yield number
