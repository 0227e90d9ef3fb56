"""A section of the page: the question it answers, and the data its template shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """``template`` is a file in templates/sections; ``count`` stands in the table of contents."""

    id: str
    title: str
    template: str
    data: dict[str, Any]
    count: str = ""
