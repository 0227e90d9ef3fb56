"""Which reader takes which file: every module under ``readers`` is asked, by content.

Adding a format means adding one module there; nothing here names any.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import cast

from advisor.ingest import readers as _package
from advisor.ingest.source import Reader, Source

_PROFILE, _FIRST_KEY_BYTES = b'"format": "advisor-profile"', 64


@cache
def readers() -> tuple[Reader, ...]:
    """All readers, in order."""
    return in_order(_each())


def in_order(some: Iterable[Reader]) -> tuple[Reader, ...]:
    """The ones to ask, and to let read, first at the front (``PRIORITY``, then name)."""
    return tuple(sorted(some, key=lambda one: (one.PRIORITY, one.FORMAT)))


def _each() -> Iterator[Reader]:
    """All readers, each imported when it is come to."""
    for module in pkgutil.iter_modules(_package.__path__):
        if not module.name.startswith("_"):
            loaded = importlib.import_module(f"{_package.__name__}.{module.name}")
            yield cast(Reader, loaded)


def detect(source: Source, among: Sequence[Reader] | None = None) -> Reader | None:
    """The first reader that recognises the content, or None.

    Where the file begins as a reader's alone do (``BEGINS``), that one is asked before all others,
    which need not be imported then. Nor is any for profile.json, which stands beside our traces.
    """
    if among is None and _PROFILE in source.head[:_FIRST_KEY_BYTES]:
        return None
    for reader in _each() if among is None else among:
        if hasattr(reader, "BEGINS") and reader.BEGINS.match(source.head) and reader.detect(source):
            return reader
    for reader in readers() if among is None else among:
        if reader.detect(source):
            return reader
    return None
