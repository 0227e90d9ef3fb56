"""Inputs of a fuzzer in batches, each in a process of its own with a bound of memory and time.

Its temporary files are in a folder of the batch, which goes when it ends, however that is.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HANG_S = 20
"""Processor time that one input may take."""
MEMORY_BYTES = 2 << 30

Work = Callable[[Iterable[int], Callable[[tuple[int, str]], None]], None]
"""Tries inputs of these numbers and tells each failure, as number and traceback."""


@dataclass
class Cost:
    """The most that one input took, and the most that a process of a batch held."""

    slowest_s: float = 0.0
    """Of processor time, with the making of the input."""
    slowest: int = 0
    peak_bytes: int = 0

    def add(self, other: Cost) -> None:
        """What another batch cost."""
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)


def in_batches(
    work: Work, inputs: range, batch: int, wait_s: float, cost: Cost | None = None
) -> Iterator[tuple[int, str]]:
    """All failures; a batch that outlasts ``wait_s`` is killed and is one, as one that dies is.

    These two have the number of the input that was being tried. ``cost`` takes what it took.
    """
    context = multiprocessing.get_context("fork")
    for place in range(0, len(inputs), batch):
        found = context.SimpleQueue()
        numbers = inputs[place : place + batch]
        told = _Told(*(context.RawValue(kind, 0) for kind in "qdqq"))
        told.at.value = numbers.start
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            process = context.Process(target=_bounded, args=(work, numbers, found, told, folder))
            process.start()
            try:
                yield from _failures(process, found, told, wait_s)
            finally:  # whoever ends this ends the batch
                process.kill()
                process.join()
        if cost is not None:
            cost.add(Cost(told.slowest_s.value, told.slowest.value, told.peak_bytes.value))


def _failures(process: Any, found: Any, told: _Told, wait_s: float) -> Iterator[tuple[int, str]]:
    deadline = time.monotonic() + wait_s
    while process.is_alive() and time.monotonic() < deadline:
        process.join(0.05)
        # A full pipe would hold up who writes.
        while not found.empty():
            yield found.get()
    if process.is_alive():
        process.kill()
        process.join()
        yield told.at.value, "hang: the batch did not end"
    elif process.exitcode:
        yield told.at.value, f"the batch ended with {process.exitcode}"
    while not found.empty():
        yield found.get()


@dataclass(frozen=True)
class _Told:
    """Memory that a batch's process shares: it holds what was told when the process dies, too."""

    at: Any
    slowest_s: Any
    slowest: Any
    peak_bytes: Any

    def each(self, numbers: range) -> Iterator[int]:
        """The numbers; how long each took is known when the next one is asked for."""
        for number in numbers:
            self.at.value = number
            begun_s = time.process_time()
            yield number
            took_s = time.process_time() - begun_s
            if took_s > self.slowest_s.value:
                self.slowest_s.value, self.slowest.value = took_s, number
                self.peak_bytes.value = _peak_bytes()


def end_on_sigterm() -> None:
    """Asked to end, this process ends as on an error: its batch and the batch's files go too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _bounded(work: Work, numbers: range, found: Any, told: _Told, folder: str) -> None:
    # A test process of four GiB left a batch two, which a thread's stack was not to be had of.
    most = _virtual_bytes() + 3 * MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    tempfile.tempdir = folder
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    work(told.each(numbers), found.put)
    told.peak_bytes.value = peak = _peak_bytes()
    if peak > MEMORY_BYTES:
        found.put((numbers.start, f"memory: {peak / 2**30:.1f} GiB in this batch"))


def _virtual_bytes() -> int:
    """Address space of this process, which it has from whom it was forked from (proc(5))."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
