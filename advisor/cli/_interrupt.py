"""Ctrl-C, SIGTERM and SIGHUP: at once, also while the database works, and with one line."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import NoReturn

import click

from advisor.cli import end_early
from advisor.errors import EndedBySignalError

_AGAIN_S = 0.05
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def watch_for_interrupts() -> None:
    """From here on these signals also stop the queries that run, and what was begun is tidied."""
    EndedBySignalError.came = False
    if threading.current_thread() is not threading.main_thread():
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    sys.unraisablehook = _swallowed
    threading.Thread(target=_listen, args=(heard,), daemon=True, name="interrupts").start()
    for number in _ENDING:
        # nohup ignores SIGHUP, and so do we
        if signal.getsignal(number) in (signal.SIG_DFL, end_early):
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> NoReturn:
    EndedBySignalError.came = True
    raise EndedBySignalError(number)


def _swallowed(unraisable: sys.UnraisableHookArgs) -> None:
    """Ctrl-C that came while an object was being taken apart is lost there: it comes again."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        number = EndedBySignalError.last
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)


def _listen(heard: int) -> None:
    """The handler of signals writes their numbers here, whatever the main thread is doing."""
    while numbers := os.read(heard, 64):
        running = sys.modules.get("advisor.store.running")
        if _ENDING & {*numbers} and running is not None:
            running.stop_queries()


def interrupted() -> NoReturn:
    """Say by what, and end at once as shells expect it: threads stand in the middle of their work,
    and the libraries under them would report every object that is still there."""
    number = EndedBySignalError.last
    by = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    with contextlib.suppress(OSError):  # of a terminal that is gone
        click.echo(f"advisor: {by}", err=True)
    end_process(128 + number)


def end_process(status: int) -> NoReturn:
    """Tidy up and end, without taking libraries and their tables apart: that takes 0.1 s."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it any more
            stream.flush()
    os._exit(status)
