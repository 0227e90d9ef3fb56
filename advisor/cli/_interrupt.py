"""Ctrl-C: at once, also while the database works, and with one line."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import NoReturn

import click

_AGAIN_S = 0.05


def watch_for_interrupts() -> None:
    """From here on Ctrl-C also stops the queries that run."""
    if threading.current_thread() is not threading.main_thread():
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    sys.unraisablehook = _swallowed
    threading.Thread(target=_listen, args=(heard,), daemon=True, name="interrupts").start()


def _swallowed(unraisable: sys.UnraisableHookArgs) -> None:
    """Ctrl-C that came while an object was being taken apart is lost there: it comes again."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)


def _listen(heard: int) -> None:
    """The handler of signals writes their numbers here, whatever the main thread is doing."""
    while numbers := os.read(heard, 64):
        running = sys.modules.get("advisor.store.running")
        if signal.SIGINT in numbers and running is not None:
            running.stop_queries()


def interrupted() -> NoReturn:
    """Say so, tidy up, and end at once as shells expect it.

    The interpreter is not taken apart: threads stand in the middle of their work, and the
    libraries under them would report every object that is still there.
    """
    click.echo("advisor: interrupted", err=True)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it any more
            stream.flush()
    os._exit(128 + signal.SIGINT)
