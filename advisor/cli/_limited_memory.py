"""Where memory is limited (``ulimit -v``) a child does the work, as a library may end it at once.

Without room the database, NumPy and the loader end the process by a signal, which nothing in it
can answer. The parent holds nothing, lives on and says what happened.
"""

import contextlib
import ctypes
import importlib
import os
import signal
import sys

from advisor.profile.orphans import killed_with_parent

try:
    import resource
except ImportError:  # a system without limits
    resource = None  # type: ignore[assignment]

NO_MEMORY = (
    "advisor: there is not enough memory\n"
    "  free some (also check ulimit -v), read fewer ranks at once, or less: --lean\n"
)
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGKILL}
_OPENBLAS = "OPENBLAS_NUM_THREADS"
_M_ARENA_MAX = -8
_BY_LOADER = 127
"""glibc's loader ends so where a new thread has no room for its local data."""
_PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_BY_TERMINAL = 128
"""``si_code`` of a signal that a terminal sends, to the child too."""


def work_in_child() -> None:
    """Where memory is limited return in a child alone; the parent ends as it does, and in words."""
    if not _is_limited() or not hasattr(signal, "sigwaitinfo"):
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    heard = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    parent = os.getpid()
    child = os.fork()
    if child:
        _end_as(_waited_for(child, heard))
    killed_with_parent()
    if os.getppid() != parent:
        os._exit(2)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def spare_memory() -> None:
    """Where memory is limited let libraries reserve less of it. Raises what an import raises."""
    if not _is_limited():
        return
    with contextlib.suppress(AttributeError):  # of another libc than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)  # else each thread reserves 64 MB for its own
    # Without room for its threads OpenBLAS sends SIGINT. It asks once; jobs shall not inherit it.
    before = os.environ.get(_OPENBLAS)
    os.environ[_OPENBLAS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        if before is None:
            del os.environ[_OPENBLAS]
        else:
            os.environ[_OPENBLAS] = before


def _is_limited() -> bool:
    if resource is None:
        return False
    limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(limit)[0] != resource.RLIM_INFINITY for limit in limits)


def _waited_for(child: int, heard: set[signal.Signals]) -> int:
    """The status of the child, which gets every signal that this process gets."""
    while True:
        info = signal.sigwaitinfo(heard)
        if info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif info.si_code != _BY_TERMINAL:
            os.kill(child, info.si_signo)


def _end_as(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code == _BY_LOADER or -code in _CRASHES:
        sys.stderr.write(NO_MEMORY)
        code = 2
    elif code < 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
