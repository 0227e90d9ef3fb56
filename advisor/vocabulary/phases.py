"""Which part of the work is under way, said by those who do it to whoever shows it.

The work announces, and without a listener nothing happens: no function takes a parameter for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int | None], None]
"""Takes a phase's name, how many of its parts are done, and of how many if it has parts."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Every :func:`announce` inside the block goes to ``listener``."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def announce(phase: str, done: int = 0, parts: int | None = None) -> None:
    """Say that ``phase`` begins, or that ``done`` of its ``parts`` are done."""
    listener = _listener.get()
    if listener is not None:
        listener(phase, done, parts)
