"""Racing: a trial that is clearly slower than the best so far ends before its last timed step.

Between chunks of timed steps every rank writes the lower bound of its median step into the process
group's store; rank 0 compares the slowest rank's with the limit and writes the verdict, which all
read. So all ranks stop at the same step, and no collective is added to the job that is measured.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

# Timed steps before the first look, and between two looks.
STEPS_BETWEEN_LOOKS = 5
# The median's standard error is 1.2533 times that of a mean; 1.4826 turns a median deviation into
# a standard deviation (both for normal noise). Two of these below the median is "clearly".
_SIGMAS = 2.0 * 1.2533 * 1.4826


class Store(Protocol):
    """What is needed of a ``torch.distributed.Store``: ``get`` waits until the key is set."""

    def set(self, key: str, value: str, /) -> None: ...

    def get(self, key: str, /) -> bytes: ...


def surely_at_least_ns(step_ns: Sequence[int]) -> float:
    """Lower bound of the median step, ns: two standard errors below it."""
    steps = np.asarray(step_ns, dtype=float)
    middle = float(np.median(steps))
    deviation = float(np.median(np.abs(steps - middle)))
    return middle - _SIGMAS * deviation / float(np.sqrt(len(steps)))


class Race:
    """One rank's side of the agreement. ``limit_ns``: steps surely longer than this lose."""

    def __init__(self, store: Store, rank: int, ranks: int, limit_ns: float) -> None:
        self.store = store
        self.rank = rank
        self.ranks = ranks
        self.limit_ns = limit_ns
        self._looks = 0

    def is_lost(self, step_ns: Sequence[int]) -> bool:
        """Whether to stop, the same on every rank. All ranks must call it equally often."""
        look, self._looks = self._looks, self._looks + 1
        self.store.set(f"{look}/{self.rank}", repr(surely_at_least_ns(step_ns)))
        if self.rank == 0:
            slowest = max(float(self.store.get(f"{look}/{rank}")) for rank in range(self.ranks))
            self.store.set(f"{look}/verdict", "stop" if slowest > self.limit_ns else "go on")
        return bytes(self.store.get(f"{look}/verdict")) == b"stop"
