"""The views that rules select from (``*.sql`` beside this file), and what they mean.

They exist only in the engine's sandbox, which holds a single run: nothing in them filters by run.
All figures per step rest on used steps alone: metrics/steps/used.py says which those are. A view is
worked out only when something that runs names it, together with what it reads itself.

The comment above a view says what its rows are; a column's meaning stands there too, as
``--   column: meaning``, or behind the column. Columns without are those of the tables and views
that it reads, unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

_VIEW = re.compile(
    r"^CREATE VIEW (\w+) AS\b((?:(?!;$|^CREATE VIEW).)*+);$", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"--[^\n]*")
_COLUMN = re.compile(r"\b(\w+)[,)]*\s+-- ([^\n]*)$", re.MULTILINE)
_NOTE = re.compile(r"--   (\w+): (.*)")
_WORD = re.compile(r"\w+")


class View(NamedTuple):
    """One view of the file ``part``.sql: ``about`` its rows, its SELECT, and ``notes`` on columns.

    ``words`` are those of its SELECT and of the views that this reads: the tables it needs too.
    """

    name: str
    part: str
    about: str
    select: str
    notes: Mapping[str, str]
    words: frozenset[str]


def _comment_above(text: str) -> str:
    """The lines of comment that end ``text``."""
    lines = text.splitlines()
    first = next((at for at in range(len(lines), 0, -1) if not lines[at - 1].startswith("--")), 0)
    return "\n".join(lines[first:])


@cache
def views() -> dict[str, View]:
    """All views by name, each after those that it reads."""
    texts: dict[str, tuple[str, str, str]] = {}
    for file in sorted(resources.files(__name__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            text = file.read_text(encoding="utf-8")
            for view in _VIEW.finditer(text):
                about = _comment_above(text[: view.start()])
                texts[view[1]] = file.name.removesuffix(".sql"), about, view[2]
    found: dict[str, View] = {}

    def add(name: str) -> None:
        part, about, body = texts[name]
        lines = about.splitlines()
        select = _COMMENT.sub("", body).strip()
        words = frozenset(_WORD.findall(select))
        for other in sorted((texts.keys() & words) - found.keys() - {name}):
            add(other)
        found[name] = View(
            name,
            part,
            about=" ".join(line[3:] for line in lines if not _NOTE.match(line)),
            select=select,
            notes=dict(_COLUMN.findall(body)) | dict(_NOTE.findall(about)),
            words=words.union(*_words_of(words, found)),
        )

    for name in texts:
        if name not in found:
            add(name)
    return found


def words_behind(sql: str) -> frozenset[str]:
    """The words of a statement and of the views that it may read, directly or through others.

    Every word that is the name of a view counts, so that a column of that name costs time and
    nothing else.
    """
    words = frozenset(_WORD.findall(sql.lower()))
    return words.union(*_words_of(words, views()))


def _words_of(words: frozenset[str], known: Mapping[str, View]) -> Iterator[frozenset[str]]:
    return (known[name].words for name in known.keys() & words)
