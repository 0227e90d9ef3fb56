"""A table of evidence on a terminal: columns that do not fit go below, nothing is cut."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence

from advisor.findings import Table
from advisor.report import humanise

_MAX_ROWS = 12
_INDENT = 5
_GAP = 2


def text_table(table: Table, width: int) -> Iterator[str]:
    """The lines of ``table``, each at most ``width`` characters.

    A table that is wider is shown in blocks of columns, each of which begins with the first.
    """
    columns, rows = humanise.table(table.columns, table.rows[:_MAX_ROWS])
    yield from _indented(table.title, 3, width)
    room = max(width - _INDENT, 20)
    grid = [columns, *rows]
    widths = [max(len(row[index]) for row in grid) for index in range(len(columns))]
    for block in _blocks(widths, room):
        first = min(widths[block[0]], room // 2) if len(block) > 1 else min(widths[block[0]], room)
        limits = [first, *(min(widths[index], room - first - _GAP) for index in block[1:])]
        for row in grid:
            yield from _row([row[index] for index in block], limits)
    if len(table.rows) > _MAX_ROWS:
        left = len(table.rows) - _MAX_ROWS
        more = f"… {left} more row{'s' if left > 1 else ''} (--format json has all)"
        yield " " * _INDENT + more
    if table.note:
        yield from _indented(table.note, _INDENT, width)


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Columns that fit beside each other, the first in every block."""
    if not widths:
        return
    key = min(widths[0], room // 2) if len(widths) > 1 else min(widths[0], room)
    block, used = [0], key
    for index in range(1, len(widths)):
        need = _GAP + min(widths[index], room - key - _GAP)
        if used + need > room and len(block) > 1:
            yield block
            block, used = [0], key
        block.append(index)
        used += need
    yield block


def _row(cells: Sequence[str], limits: Sequence[int]) -> Iterator[str]:
    folded = [
        textwrap.wrap(cell, limit, break_on_hyphens=False) or [""]
        for cell, limit in zip(cells, limits, strict=True)
    ]
    for parts in itertools.zip_longest(*folded, fillvalue=""):
        line = (" " * _GAP).join(
            part.ljust(limit) for part, limit in zip(parts, limits, strict=True)
        )
        yield (" " * _INDENT + line).rstrip()


def _indented(text: str, by: int, width: int) -> Iterator[str]:
    yield from (" " * by + line for line in textwrap.wrap(text, max(width - by, 20)))
