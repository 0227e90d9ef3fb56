"""Needless calls of the groups of one dimension are left out together."""

from __future__ import annotations

from typing import Any

from advisor.store.store import Store
from advisor.whatif.annotate_calls import _needless

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
