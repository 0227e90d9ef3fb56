"""Questions about the events of a run's ranks, asked for many ranks at once.

To plan a query takes the database milliseconds, however little it finds: a small file that names
thousands of ranks took minutes. So a query reads ranks in batches of so many events, and its answer
is handed out rank by rank.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from advisor.store.columns import read, rows

_EVENTS_AT_ONCE = 200_000


class Events:
    """The events of one run.

    A query takes the run as $1 and a batch of ranks as ``rank BETWEEN $2 AND $3``; its first column
    is the rank, by which it is sorted. The answer for the last batch of several ranks is kept, so
    that going through the ranks in order asks the database once for each batch.
    """

    def __init__(self, con: Any, run: str) -> None:
        self.con, self.run = con, run
        self._batches: dict[int, list[int]] = {}
        batch, events = list[int](), 0
        for rank, count in rows(
            con, "SELECT rank, count(*) FROM event WHERE run = ? GROUP BY rank ORDER BY rank", [run]
        ):
            if batch and events + count > _EVENTS_AT_ONCE:
                batch, events = [], 0
            batch.append(rank)
            events += count
            self._batches[rank] = batch
        self._answers: dict[str, dict[int, Any]] = {}
        self._nothing: dict[str, Any] = {}

    def __contains__(self, rank: int) -> bool:
        """Whether a rank has any events."""
        return rank in self._batches

    def read(self, rank: int, sql: str, parameters: Sequence[Any] = ()) -> dict[str, Any]:
        """A rank's part of the result as :func:`~advisor.store.columns.read` gives it."""

        def ask(ranks: Sequence[int]) -> tuple[dict[int, Any], Any]:
            found = read(self.con, sql, self._scope(ranks, parameters))
            edges = np.searchsorted(found["rank"], [*ranks, np.iinfo(np.int32).max]).tolist()
            return {
                one: {name: values[low:high] for name, values in found.items()}
                for one, low, high in zip(ranks, edges, edges[1:], strict=False)
            }, {name: values[:0] for name, values in found.items()}

        found: dict[str, Any] = self._answer(rank, f"columns {sql} {parameters}", ask)
        return found

    def rows(self, rank: int, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """A rank's part of the result as Python rows, without the rank."""

        def ask(ranks: Sequence[int]) -> tuple[dict[int, Any], Any]:
            found: dict[int, list[Any]] = {one: [] for one in ranks}
            asked = rows(self.con, sql, self._scope(ranks, parameters))
            for one, own in groupby(asked, itemgetter(0)):
                found[one] = [row[1:] for row in own]
            return found, []

        answer: list[tuple[Any, ...]] = self._answer(rank, f"rows {sql} {parameters}", ask)
        return answer

    def _scope(self, ranks: Sequence[int], parameters: Sequence[Any]) -> list[Any]:
        return [self.run, ranks[0] if ranks else 1, ranks[-1] if ranks else 0, *parameters]

    def _answer(self, rank: int, query: str, ask: Any) -> Any:
        batch = self._batches.get(rank, [])
        if not batch:
            if query not in self._nothing:
                self._nothing[query] = ask(batch)[1]
            return self._nothing[query]
        if len(batch) == 1:  # large, or alone: nothing is won by keeping it
            return ask(batch)[0][rank]
        if rank not in self._answers.get(query, {}):
            self._answers[query], self._nothing[query] = ask(batch)
        return self._answers[query][rank]
