"""The handlers of signals that a launch finds, it leaves."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
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
