"""A rank ends with the process that started it, also where that one was killed (SIGKILL)."""

import ctypes
import os
import signal
import sys

# The process that launches, for ranks that start while it ends.
LAUNCHER = "ADVISOR_LAUNCHER_PID"
_PR_SET_PDEATHSIG = 1


def killed_with_parent(number: signal.Signals = signal.SIGKILL) -> bool:
    """From here on this process gets signal ``number`` when its parent ends, also once it runs
    another program; False where that cannot be."""
    if not sys.platform.startswith("linux"):
        return False
    return not ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def end_with_parent() -> None:
    """As :func:`killed_with_parent`, for a rank; it ends now where its launcher has ended."""
    if not killed_with_parent():
        return  # not allowed here: it lives on, as it would without this
    launcher = os.environ.get(LAUNCHER)
    if launcher is not None and os.getppid() != int(launcher):
        sys.exit("the process that launched this rank has ended")
