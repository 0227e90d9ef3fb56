"""Ranks are asked for in batches, and each is given its own rows, whatever the batches are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from advisor.store import events as module
from advisor.store.columns import MISSING
from advisor.store.events import Events
from advisor.store.store import Store

_NAMES = (
    "SELECT rank, event_id, name, stream FROM event "
    "WHERE run = $1 AND rank BETWEEN $2 AND $3 AND name <> $4 ORDER BY rank, event_id"
)
_RANKS = {0: 3, 2: 1, 3: 40, 7: 2, 1_000_000: 5}
"""Rank -> events."""


class _Counting:
    """A connection that counts what it is asked."""

    def __init__(self, con: Any) -> None:
        self._con, self.asked = con, 0

    def execute(self, *arguments: Any) -> Any:
        self.asked += 1
        return self._con.execute(*arguments)


@pytest.fixture(name="con")
def _con() -> Iterator[_Counting]:
    with Store.create() as store:
        for rank, count in _RANKS.items():
            store.con.execute(
                "INSERT INTO event (run, rank, event_id, name, stream) SELECT 'r', ?, i, "
                "'k' || i % 3, CASE WHEN i % 2 = 0 THEN i END FROM range(?) t(i)",
                [rank, count],
            )
        store.con.execute("INSERT INTO event (run, rank, event_id) VALUES ('other', 2, 9)")
        yield _Counting(store.con)


@pytest.mark.parametrize("at_once", [1, 4, 1_000])
def test_each_rank_gets_its_own_rows(
    con: _Counting, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(module, "_EVENTS_AT_ONCE", at_once)
    events = Events(con, "r")
    for rank in (0, 1, 2, 3, 5, 7, 1_000_000, 3):  # some have none, and one is asked again
        wanted = [i for i in range(_RANKS.get(rank, 0)) if i % 3 != 1]
        found = events.read(rank, _NAMES, ["k1"])
        assert found["event_id"].tolist() == wanted
        assert found["stream"].tolist() == [MISSING if i % 2 else i for i in wanted]
        rows = events.rows(rank, _NAMES, ["k1"])
        assert rows == [(i, f"k{i % 3}", None if i % 2 else i) for i in wanted]
        assert (rank in events) == (rank in _RANKS)


def test_many_ranks_are_few_questions(con: _Counting) -> None:
    events = Events(con, "r")
    before = con.asked
    for rank in range(10):
        events.read(rank, _NAMES, ["k1"])
        events.rows(rank, _NAMES, ["k2"])
    assert con.asked - before <= 4  # two queries of a batch, and of ranks without events
