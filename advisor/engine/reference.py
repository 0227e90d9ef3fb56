"""Knowledge that rules join against: ``rules/data/*.yaml`` as tables of the sandbox."""

from __future__ import annotations

from typing import Any

_TABLES: dict[str, tuple[str, str]] = {}


def fill_reference_tables(con: Any) -> None:
    """Create the ``ref_*`` tables."""
    for statement, _name in _TABLES.values():
        con.execute(statement)
