"""A table of evidence on a terminal: columns that do not fit go below, nothing is cut."""

import itertools
import textwrap
from collections.abc import Iterator, Sequence

from advisor.findings import Table
from advisor.messages import SUMMARY, say
from advisor.report import humanise

_MAX_ROWS = 12
_INDENT = 5
_GAP = 2
_MOST_KEYS = 3


def text_table(table: Table, width: int, per_step: str = humanise.PER_STEP) -> Iterator[str]:
    """The lines of ``table``, each at most ``width`` characters.

    A table that is wider is shown in blocks of columns, each of which begins with the columns that
    tell its rows apart, or with their numbers.
    """
    columns, rows = humanise.table(table.columns, table.rows[:_MAX_ROWS], per_step)
    yield from _indented(table.title, 3, width)
    room = max(width - _INDENT, 20)
    keys, grid = 1, [columns, *rows]
    if not _fits(_widths(grid), 1, room):
        keys, grid = _keyed(grid, room)
    widths = _widths(grid)
    for block in _blocks(widths, keys, room):
        first = [min(widths[index], _key_room(keys, len(block), room)) for index in block[:keys]]
        left = room - sum(first) - _GAP * len(first)
        limits = [*first, *(min(widths[index], left) for index in block[keys:])]
        for row in grid:
            yield from _row([row[index] for index in block], limits)
    if len(table.rows) > _MAX_ROWS:
        more = say(SUMMARY, "more-rows", {"more": len(table.rows) - _MAX_ROWS})
        yield " " * _INDENT + f"… {more} (--format json has all)"
    if table.note:
        yield from _indented(table.note, _INDENT, width)


def _widths(grid: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*grid, strict=True)]


def _fits(widths: Sequence[int], keys: int, room: int) -> bool:
    return len(list(_blocks(widths, keys, room))) < 2


def _keyed(grid: list[list[str]], room: int) -> tuple[int, list[list[str]]]:
    """How many columns tell the rows apart, and the table with these first.

    The first column and what must be added from the left; a number of the row where that would
    take half of the room, or does not do.
    """
    rows, chosen = grid[1:], [0]
    for index in range(1, len(grid[0])):
        if len(chosen) == _MOST_KEYS or _distinct(rows, chosen) == len(rows):
            break
        if _distinct(rows, [*chosen, index]) > _distinct(rows, chosen):
            chosen.append(index)
    widths = _widths(grid)
    taken = sum(widths[index] + _GAP for index in chosen)
    if len(chosen) > 1 and (_distinct(rows, chosen) < len(rows) or taken > room // 2):
        return 1, [["#", *grid[0]], *([str(n), *row] for n, row in enumerate(rows, 1))]
    order = [*chosen, *(index for index in range(len(grid[0])) if index not in chosen)]
    return len(chosen), [[row[index] for index in order] for row in grid]


def _distinct(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> int:
    return len({tuple(row[index] for index in columns) for row in rows})


def _key_room(keys: int, columns: int, room: int) -> int:
    """The most that one of the columns at the head of a block may take."""
    return room // 2 if columns > keys and keys == 1 else room


def _blocks(widths: Sequence[int], keys: int, room: int) -> Iterator[list[int]]:
    """Columns that fit beside each other, the first ``keys`` in every block."""
    if not widths:
        return
    head = list(range(keys))
    most = _key_room(keys, len(widths), room)
    key = sum(min(widths[index], most) + _GAP for index in head) - _GAP
    block, used = list(head), key
    for index in range(keys, len(widths)):
        need = _GAP + min(widths[index], room - key - _GAP)
        if used + need > room and len(block) > keys:
            yield block
            block, used = list(head), key
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
