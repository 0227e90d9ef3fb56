"""A limit on how long a query may run that a busy machine does not use up."""

import math
import threading
import time
from collections.abc import Callable

# On a machine whose processors many share, a query gets this part of the time at least.
_WALL_TIMES = 15
_LONGEST_LOOK_S = 0.1

Clock = Callable[[], float]


class TimeLimit:
    """Calls ``stop`` while a block runs on that has used its time: ``with limit: ...``, many times.

    The limit is ``cpu_s`` seconds of the process's processor time, all threads together: a query on
    a busy machine is not slower for it. What uses no processor is stopped after fifteen times as
    long. ``stop`` is called from another thread, which runs until :meth:`close`.
    """

    def __init__(
        self,
        cpu_s: float,
        stop: Callable[[], object],
        *,
        cpu: Clock = time.process_time,
        wall: Clock = time.monotonic,
    ) -> None:
        self.until_s = math.inf
        """On the processor time's clock: blocks that begin have no longer than that together."""
        self.allowed_s = cpu_s
        """Processor time of the block that runs, or ran last."""
        self._cpu_s = cpu_s
        self._stop = stop
        self._clocks = (cpu, wall)
        self._began: tuple[float, float] | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None

    def exceeded(self) -> bool:
        """Whether the block that runs has used its time up."""
        if self._began is None:
            return False
        used, passed = (
            clock() - began for clock, began in zip(self._clocks, self._began, strict=True)
        )
        return used > self.allowed_s or passed > _WALL_TIMES * self.allowed_s

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _look(self) -> None:
        every = min(_LONGEST_LOOK_S, self._cpu_s / 4)
        while not self._closed.wait(every):
            with self._lock:  # else a late call of ``stop`` would hit what runs next
                if self.exceeded():
                    # Again until the block ends: a query that only just begins takes no notice.
                    self._stop()

    def __enter__(self) -> "TimeLimit":
        now = self._clocks[0]()
        self.allowed_s = max(0.0, min(self._cpu_s, self.until_s - now))
        self._began = (now, self._clocks[1]())
        if self._watch is None:
            self._watch = threading.Thread(target=self._look, daemon=True)
            self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._began = None
