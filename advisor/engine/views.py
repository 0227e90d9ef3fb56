"""The views that rules select from: texts, names, and which view reads which others.

A view is worked out only when something that runs names it, together with what it reads itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

_NAMED = re.compile(r"CREATE VIEW (\w+) AS\b")
_COMMENT = re.compile(r"--[^\n]*")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class View:
    """One view. ``words`` are those of its SELECT and of the views that this reads: tables too."""

    name: str
    select: str
    words: frozenset[str]


@cache
def views() -> dict[str, View]:
    """All views by name, each after those that it reads."""
    text = resources.files("advisor.engine").joinpath("views.sql").read_text(encoding="utf-8")
    _, *parts = _NAMED.split(_COMMENT.sub("", text))
    found: dict[str, View] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        select = body.strip().removesuffix(";")
        words = frozenset(_WORD.findall(select))
        found[name] = View(name, select, words.union(*_words_of(words, found)))
    return found


def views_behind(sql: str) -> list[View]:
    """The views that a statement may read, directly or through others, in the order to make them.

    Every word of the statement that is the name of a view counts, so that a column of that name
    costs time and nothing else.
    """
    words = frozenset(_WORD.findall(sql.lower()))
    wanted = words.union(*_words_of(words, views()))
    return [view for view in views().values() if view.name in wanted]


def _words_of(words: frozenset[str], known: Mapping[str, View]) -> Iterator[frozenset[str]]:
    return (known[name].words for name in known.keys() & words)
