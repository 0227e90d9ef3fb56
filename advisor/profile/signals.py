"""What signals do while a job of another process runs; the handlers found are those left."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import SignalException


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """The handlers of now are those of afterwards: torch's launcher leaves its own installed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def handled(handler: Callable[[int], None]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP call ``handler`` and raise nothing, but for those ignored.

    An exception may come anywhere: between a process's start and its name, between its end and
    its status, in the tidying up after the exception before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with own_signals():
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:  # what is started ignores it too
                signal.signal(number, lambda given, _frame: handler(given))
        yield


def signal_behind(error: Exception) -> SignalException:
    """The signal that ended torch's launcher. Raises ``error`` itself where it was none.

    torch's ``prof`` reads a start time in its ``finally``: a signal that comes while that time is
    taken is hidden by an UnboundLocalError.
    """
    from torch.distributed.elastic.multiprocessing import SignalException

    for found in (error, error.__context__):
        if isinstance(found, SignalException):
            return found
    raise error
