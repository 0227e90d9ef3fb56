"""The views that rules select from (``*.sql`` beside this file), and what they mean.

They exist only in the engine's sandbox, which holds a single run: nothing in them filters by run.
All figures per step rest on used steps alone: metrics/steps/used.py says which those are. A view is
worked out only when something that runs names it, together with what it reads itself.

The comment above a view says what its rows are; a column's meaning stands there too, as
``--   column: meaning``, or behind the column. Columns without are those of the tables and views
that it reads, unchanged. ``-- No rows without call WHERE op = 'all_gather'.`` there spares the
database the view where nothing of the kind was recorded, and filling it again, in the examples of
rules, where that table is empty.
"""

import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from advisor.engine.reference import REFERENCE_TABLES
from advisor.store.schema import parse_schema

_BEGIN = "CREATE VIEW "
_COMMENT = re.compile(r"('[^']*')|--[^\n]*")  # in a literal no comment begins
_COLUMN = re.compile(r"\b(\w+)[,)]*\s+-- ([^\n]*)$", re.MULTILINE)
_NOTE = re.compile(r"--   (\w+): (.*)")
_SOURCE = re.compile(r"-- No rows without (\w+)(?: WHERE (.+))?\.")
_WORD = re.compile(r"\w+")


class View(NamedTuple):
    """One view of the file ``part``.sql: ``comment`` stands above it, ``body`` behind its name.

    ``select`` is the body without comments; ``reads`` are the tables and views that it needs,
    directly or through others.
    """

    name: str
    part: str
    comment: list[str]
    body: str
    select: str
    reads: frozenset[str]

    @property
    def about(self) -> str:
        """What its rows are."""
        return " ".join(line[3:] for line in self.comment if not _NOTE.match(line))

    @property
    def source(self) -> tuple[str, str] | None:
        """The table and the condition on its rows without which it has none, where that is said."""
        found = next(filter(None, map(_SOURCE.fullmatch, self.comment)), None)
        return (found[1], found[2] or "") if found else None

    @property
    def notes(self) -> dict[str, str]:
        """What its columns mean, where that is said here."""
        return dict(_COLUMN.findall(self.body)) | dict(_NOTE.findall("\n".join(self.comment)))


def _comment_above(text: str) -> list[str]:
    """The lines of comment that end ``text``."""
    lines = text.splitlines()
    first = next((at for at in range(len(lines), 0, -1) if not lines[at - 1].startswith("--")), 0)
    return lines[first:]


@cache
def views() -> dict[str, View]:
    """All views by name, each after those that it reads."""
    parts: dict[str, tuple[str, list[str], str]] = {}
    for file in sorted(resources.files(__name__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            above, *texts = file.read_text(encoding="utf-8").split(f"\n{_BEGIN}")
            for text in texts:
                name, _, rest = text.partition(" AS")
                body, _, below = rest.partition(";\n")
                parts[name] = file.name.removesuffix(".sql"), _comment_above(above), body
                above = below
    tables = REFERENCE_TABLES.union(parts, (table.name for table in parse_schema()))
    found: dict[str, View] = {}

    def add(name: str) -> None:
        part, comment, body = parts[name]
        select = _COMMENT.sub(r"\1", body).strip()
        names = tables.intersection(_WORD.findall(select))
        for other in sorted((parts.keys() & names) - found.keys() - {name}):
            add(other)
        found[name] = View(name, part, comment, body, select, _behind(names, found))

    for name in parts:
        if name not in found:
            add(name)
    return found


def reads_of(sql: str) -> frozenset[str]:
    """The words of a statement, and the tables and views behind the views that it may read.

    Every word that is the name of a view counts, so that a column of that name costs time and
    nothing else.
    """
    return _behind(frozenset(_WORD.findall(sql.lower())), views())


def _behind(names: frozenset[str], known: dict[str, View]) -> frozenset[str]:
    return names.union(*(known[name].reads for name in known.keys() & names))
