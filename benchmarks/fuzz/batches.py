"""Inputs of a fuzzer in batches, each in a process of its own with a bound of memory and time."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

HANG_S = 20
"""Processor time that one input may take."""
MEMORY_BYTES = 2 << 30

Work = Callable[[range, Callable[[tuple[int, str]], None]], None]
"""Tries inputs of these numbers and tells each failure, as number and traceback."""


def in_batches(work: Work, inputs: range, batch: int, wait_s: float) -> Iterator[tuple[int, str]]:
    """All failures; a batch that outlasts ``wait_s`` is killed and is one, as one that dies is."""
    context = multiprocessing.get_context("fork")
    for start in inputs[::batch]:
        found = context.SimpleQueue()
        numbers = range(start, min(inputs.stop, start + batch))
        process = context.Process(target=_bounded, args=(work, numbers, found))
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
            yield start, "hang: the batch did not end"
        elif process.exitcode:
            yield start, f"the batch ended with {process.exitcode}"
        while not found.empty():
            yield found.get()


def _bounded(work: Work, numbers: range, found: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (3 * MEMORY_BYTES, 3 * MEMORY_BYTES))
    work(numbers, found.put)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > MEMORY_BYTES:
        found.put((numbers.start, f"memory: {peak / 2**30:.1f} GiB in this batch"))
