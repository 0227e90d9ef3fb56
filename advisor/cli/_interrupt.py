"""Ctrl-C: at once, also while the database works, and with one line."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import NoReturn

import click


def watch_for_interrupts() -> None:
    """From here on Ctrl-C also stops the queries that run."""
    if threading.current_thread() is not threading.main_thread():
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(heard,), daemon=True, name="interrupts").start()


def _listen(heard: int) -> None:
    """The handler of signals writes their numbers here, whatever the main thread is doing."""
    while numbers := os.read(heard, 64):
        running = sys.modules.get("advisor.store.running")
        if signal.SIGINT in numbers and running is not None:
            running.stop_queries()


def is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C came while the database worked, which then raises an error of its own."""
    return str(error).endswith(("Query interrupted", "Interrupted!")) or isinstance(
        error.__context__, KeyboardInterrupt
    )


def interrupted() -> NoReturn:
    """Say so and exit as shells expect it."""
    click.echo("advisor: interrupted", err=True)
    sys.exit(128 + signal.SIGINT)
