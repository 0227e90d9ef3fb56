"""Needless calls of the groups of one dimension are left out together."""

from __future__ import annotations

from typing import Any

from advisor.store.store import Store
from advisor.whatif.annotate_calls import _early_syncs, _needless

MESH = {"0": [0, 1, 2, 3], "tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]}


def test_groups_that_share_no_rank_are_of_one_dimension() -> None:
    store = Store.create()
    con: Any = store.con
    numbers: dict[str, int] = {}
    for name, ranks in MESH.items():
        numbers[name] = len(numbers)
        con.execute("INSERT INTO redundant (run, kind, process_group, op, bytes, calls_per_step, "
                    "exposed_ns_per_step) VALUES ('run', 'tiny', ?, 'all_reduce', 4, 9, 1000)",
                    [name])  # fmt: skip
        for rank in ranks:
            con.execute("INSERT INTO collective (run, rank, call_id, process_group, op, bytes, "
                        "start_ns, end_ns, step) VALUES ('run', ?, ?, ?, 'all_reduce', 4, 0, 1, 1)",
                        [rank, numbers[name], name])  # fmt: skip
    found = {frozenset(values): calls for values, calls in _needless(con, "run", 500.0)}
    assert found == {
        frozenset(f"tiny all_reduce {name}" for name in names): frozenset(numbers[n] for n in names)
        for names in (("0",), ("tp0", "tp1"), ("dp0", "dp1"))
    }


def test_gradients_of_the_groups_of_one_dimension_are_reduced_once_together() -> None:
    """GIVEN two data-parallel groups that reduce in both of two micro-batches THEN one replay
    leaves out the first reductions of both: without one's, its ranks wait for the other's."""
    store = Store.create()
    con: Any = store.con
    for first, name in ((0, "dp0"), (10, "dp1")):
        for rank in MESH[name]:
            con.execute("INSERT INTO gradient_sync BY NAME SELECT 'run' AS run, ? AS rank, "
                        "1 AS step, ? AS process_group, 'all_reduce' AS op, "
                        "2 AS micro_batches, 2 AS syncs,"
                        " 8 AS bytes, 1000 AS exposed_ns", [rank, name])  # fmt: skip
            for call in (first, first + 1):
                con.execute("INSERT INTO collective (run, rank, call_id, process_group, op, bytes, "
                            "start_ns, end_ns, step) "
                            "VALUES ('run', ?, ?, ?, 'all_reduce', 4, ?, ?, 1)",
                            [rank, call, name, call, call + 1])  # fmt: skip
                con.execute("INSERT INTO param_bucket BY NAME SELECT 'run' AS run, ? AS rank, "
                            "1 AS step, 0 AS bucket, ? AS call_id, ? AS early",
                            [rank, call, call == first])  # fmt: skip
    assert _early_syncs(con, "run", 500.0) == [
        (["all_reduce dp0", "all_reduce dp1"], frozenset({0, 10}))
    ]
