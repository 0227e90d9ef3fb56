"""Which reader takes which file: every module under ``readers`` is asked, by content.

Adding a format means adding one module there; nothing here names any.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from typing import cast

from advisor.ingest import readers as _package
from advisor.ingest.source import Reader, Source

DEFAULT_PRIORITY = 50


@cache
def readers() -> tuple[Reader, ...]:
    """All readers, the ones to ask first at the front (``PRIORITY``, then name)."""
    found: list[tuple[int, str, Reader]] = []
    for module in pkgutil.iter_modules(_package.__path__):
        if module.name.startswith("_"):
            continue
        loaded = importlib.import_module(f"{_package.__name__}.{module.name}")
        if not hasattr(loaded, "FORMAT"):
            continue
        priority = getattr(loaded, "PRIORITY", DEFAULT_PRIORITY)
        found.append((priority, module.name, cast(Reader, loaded)))
    return tuple(reader for _, _, reader in sorted(found, key=lambda item: item[:2]))


def detect(source: Source, among: Sequence[Reader] | None = None) -> Reader | None:
    """The first reader that recognises the content, or None.

    Where the file begins as a reader's alone do (``BEGINS``), that one is asked before all others.
    """
    asked = readers() if among is None else among
    sure = [one for one in asked if hasattr(one, "BEGINS") and one.BEGINS.match(source.head)]
    for reader in (*sure, *asked):
        if reader.detect(source):
            return reader
    return None
