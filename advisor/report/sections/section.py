"""A section of the page: the question it answers, and the data its template shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


def slug(text: str) -> str:
    """``text`` as part of an HTML id."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-") or "x"


@dataclass(frozen=True)
class Section:
    """``template`` is a file in templates/sections; ``count`` stands in the table of contents."""

    id: str
    title: str
    template: str
    data: dict[str, Any]
    count: str = ""
