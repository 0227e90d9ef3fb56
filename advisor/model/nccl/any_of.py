"""One pattern for many texts, which tries what they have in common once."""

from __future__ import annotations

import re


def any_of(texts: list[str]) -> str:
    """A pattern that finds any of ``texts``."""
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[:1], []).append(text[1:])
    if "" in rests:  # one of them ends here
        return ""
    parts = [re.escape(first) + any_of(rest) for first, rest in rests.items()]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
