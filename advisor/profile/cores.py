"""Who keeps a rank's cores busy: everything on its host, and what the rank itself runs (Linux).

A thread that is ready and gets no core waits for its own job's threads or for other programs; the
kernel counts both kinds of time (proc(5): /proc/stat by core, /proc/PID/stat by process).
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

_PROC = Path("/proc")
_IDLE = (3, 4)  # of a core's line: idle, iowait; those from the eighth on are in others already
_COUNTED = 8
_LEAST_NS = 500_000_000  # the kernel counts in ticks, of 10 ms mostly: 2 % of a core then


class CoresUsed(NamedTuple):
    """Since some time in the past: ns that the ``cpus`` were busy, and that the rank's processes
    (its loaders' workers too) ran; ``at_ns`` of the monotonic clock."""

    at_ns: int
    cpus: list[int]
    busy_ns: int
    own_ns: int


def used() -> CoresUsed | None:
    """As of now; None where the kernel does not say."""
    try:
        cpus = sorted(os.sched_getaffinity(0))
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        names = {f"cpu{cpu}" for cpu in cpus}
        lines = (_PROC / "stat").read_text(encoding="ascii").splitlines()
        busy = sum(_busy(line.split()[1:]) for line in lines if line.split(" ", 1)[0] in names)
        own = _of_tree(os.getpid())
    except (AttributeError, OSError, ValueError, IndexError):
        return None
    return CoresUsed(time.monotonic_ns(), cpus, busy * tick_ns, own * tick_ns)


def kept_busy(begin: CoresUsed | None, end: CoresUsed | None, threads: int) -> dict[str, Any]:
    """What a recording says of the time between, and the ``threads`` that the rank computes with.

    {} where that time is short, or the cores changed.
    """
    if begin is None or end is None or begin.cpus != end.cpus:
        return {}
    if end.at_ns - begin.at_ns < _LEAST_NS:
        return {}
    return {
        "cores": {
            "cpus": end.cpus,
            "window_ns": end.at_ns - begin.at_ns,
            "busy_ns": end.busy_ns - begin.busy_ns,
            "own_ns": end.own_ns - begin.own_ns,
            "threads": threads,
        }
    }


def _busy(ticks: list[str]) -> int:
    return sum(int(n) for place, n in enumerate(ticks[:_COUNTED]) if place not in _IDLE)


def _of_tree(pid: int) -> int:
    """Ticks of a process, of the children that it has waited for, and of those that live."""
    # pid (name, which may hold anything) state ...: utime is the 14th field, cstime the 17th
    fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    own = sum(int(field) for field in fields[11:15])
    for children in (_PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread, a child ended
            own += sum(_of_tree(int(child)) for child in children.read_text("ascii").split())
    return own
