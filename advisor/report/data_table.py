"""Tables of numbers: of each column its head, and beside it how its cells are written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TELEPHONE = 48
"""Letters of a table's row that 390 pixels hold."""


@dataclass(frozen=True)
class DataTable:
    """Numbers as they are shown; cells are formatted when drawn."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    @classmethod
    def of(
        cls, rows: Iterable[Any], columns: Mapping[str, Callable[[Any], Any]], note: str = ""
    ) -> "DataTable":
        """A row for each of ``rows``; ``columns`` by their heads say what stands in its cells."""
        cells = [[cell(row) for cell in columns.values()] for row in rows]
        return cls([*columns], cells, note)

    @property
    def is_narrow(self) -> bool:
        """Whether it fits on a telephone: two columns, or few letters in each.

        The column of most letters may stand on two lines, where its words allow that.
        """
        if len(self.columns) <= 2:
            return True
        columns = [[*map(str, column)] for column in zip(self.columns, *self.rows, strict=True)]
        letters = sorted(max(map(len, column)) for column in columns)
        widest = max(columns, key=lambda column: max(map(len, column)))
        longest_word = max(len(word) for cell in widest for word in (cell.split() or [""]))
        letters[-1] = max(longest_word, letters[-1] // 2)
        return sum(letters) + 2 * len(columns) <= _TELEPHONE


def cell(name: str, written: Callable[[Any], Any] = lambda it: it) -> Callable[[Any], Any]:
    """A column of a query, and how its values are written."""
    return lambda row: written(row[name])
