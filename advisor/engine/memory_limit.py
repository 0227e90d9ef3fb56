"""A limit on how much memory a query may take that no function of it goes around.

DuckDB counts what its operators hold, and not what one call makes of nothing: at a limit of 4 GB
`range(1000000000)` took 22. So the whole process may grow by so much only while the query runs.
What does not fit then is an error of the query.
"""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock

try:
    import resource
except ImportError:  # a system without limits
    resource = None  # type: ignore[assignment]

_STATM = Path("/proc/self/statm")


def address_space_bytes() -> int:
    """What this process has; 0 where the system does not say. Freed memory may stay in it."""
    try:
        return int(_STATM.read_bytes().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


class MemoryLimit:
    """The process may take ``most_bytes`` more of address space within: ``with limit: ...``.

    Where several run at once the first one's limit holds until the last has ended. Without effect
    where the system does not say how much the process has.
    """

    _lock = Lock()
    _inside = 0
    _before = (-1, -1)

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes

    def __enter__(self) -> "MemoryLimit":
        with MemoryLimit._lock:
            MemoryLimit._inside += 1
            if MemoryLimit._inside == 1 and resource is not None:
                MemoryLimit._before = resource.getrlimit(resource.RLIMIT_AS)
                self._set(MemoryLimit._before)
        return self

    def __exit__(self, *_: object) -> None:
        with MemoryLimit._lock:
            MemoryLimit._inside -= 1
            if MemoryLimit._inside == 0 and resource is not None:
                resource.setrlimit(resource.RLIMIT_AS, MemoryLimit._before)

    def _set(self, before: tuple[int, int]) -> None:
        soft, hard = before
        own = address_space_bytes()
        most = own + self.most_bytes
        if own and (soft in (-1, resource.RLIM_INFINITY) or most < soft):
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_AS, (most, hard))
