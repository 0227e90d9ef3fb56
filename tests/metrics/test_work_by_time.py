"""More work or a slower host, where shapes are known of some operators only."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from advisor.metrics.lateness.work import Compared, compare_work
from advisor.store.store import Store

_MS = 1_000_000

Operators = Mapping[str, tuple[int, int, str | None]]  # name: (calls, ms each, shapes)
_SHAPES = "[[64,64],[64,64]]"
_PEER: Operators = {"aten::linear": (6, 5, _SHAPES), "aten::embedding_bag": (6, 5, None)}


def _compared(late: Operators) -> Compared:
    """Rank 0 runs ``late`` in its one step, ranks 1 and 2 run _PEER."""
    with Store.create() as store:
        con = store.con
        con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('run', '', 'test')")
        for rank, operators in enumerate([late, _PEER, _PEER]):
            number, now = 0, 0
            for name, (calls, each, shapes) in operators.items():
                for _ in range(calls):
                    values = [rank, number, now * _MS, each * _MS, name]
                    con.execute(
                        "INSERT INTO event BY NAME SELECT 'run' AS run, $1::INTEGER AS rank, "
                        "$2::BIGINT AS event_id, $3::BIGINT AS start_ns, $4::BIGINT AS dur_ns, "
                        "$5 AS name, 'cpu_op' AS class",
                        values,
                    )
                    con.execute(
                        "INSERT INTO activity BY NAME SELECT 'run' AS run, $1::INTEGER AS rank, "
                        "'compute' AS kind, $3::BIGINT AS start_ns, ($3 + $4)::BIGINT AS end_ns, "
                        "$2::BIGINT AS event_id, 1 AS step",
                        values[:4],
                    )
                    con.execute(
                        "INSERT INTO comm_event BY NAME SELECT 'run' AS run, $1::INTEGER AS rank, "
                        "$2::BIGINT AS event_id, $3 AS input_dims",
                        [rank, number, shapes],
                    )
                    number, now = number + 1, now + each
        return compare_work(con, "run", 0, [1, 2])


def test_an_operator_that_no_other_rank_runs_is_more_work() -> None:
    found = _compared({**_PEER, "aten::sort": (2, 20, None)})
    assert (found.operator, found.own_ns, found.usual_ns) == ("aten::sort", 40 * _MS, 0)
    assert found.work == pytest.approx(1 + 40 / 60)
    assert found.pace == pytest.approx(1.0)


def test_one_operator_that_takes_longer_than_the_ranks_pace_is_more_work() -> None:
    found = _compared({**_PEER, "aten::embedding_bag": (6, 15, None)})
    assert found.operator == "aten::embedding_bag"
    assert (found.own_ns, found.usual_ns) == (90 * _MS, 30 * _MS)


def test_a_host_on_which_all_takes_longer_has_no_more_to_do() -> None:
    slow = {name: (calls, 3 * each, shapes) for name, (calls, each, shapes) in _PEER.items()}
    found = _compared(slow)
    assert found.pace == pytest.approx(3.0)
    assert found.operator is None
    assert found.work == pytest.approx(1.0)
