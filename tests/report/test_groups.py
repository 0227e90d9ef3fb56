"""Groups on the page: what they are for and their ranks, not the numbers that torch counts."""

from __future__ import annotations

from advisor.report.sections import collectives
from advisor.report.tables import group_names
from tests.report.support import RUN, make_store


def test_tables_name_groups_by_kind_and_ranks() -> None:
    """GIVEN a group of all ranks, one of two of them, two of the same two, and one not recorded."""
    with make_store() as store:
        for name, kind, ranks in (("3", "mesh_tp", [0, 1]), ("5", "a", [2, 3]), ("6", "a", [2, 3])):
            store.con.execute(
                "INSERT INTO process_group VALUES (?, ?, ?, ?, 2, 'gloo')", [RUN, name, kind, ranks]
            )
        store.con.execute("UPDATE collective SET process_group = '9' WHERE call_id = 0")
        names = group_names(store, RUN)
    assert names == {
        "0": "all 4 ranks",
        "3": "tensor-parallel ranks 0, 1",
        "5": "ranks 2, 3 (group 5)",
        "6": "ranks 2, 3 (group 6)",
        "9": "all 4 ranks",
    }


def test_what_a_step_sends_names_the_ranks_that_a_call_joins() -> None:
    with make_store() as store:
        store.con.execute(
            "INSERT INTO traffic (run, op, process_group, group_size, calls_per_step)"
            " VALUES (?, 'all_reduce', '0', 4, 1)",
            [RUN],
        )
        section = collectives.build(store, RUN)
    assert section is not None
    table = section.figures[-1].table
    assert table is not None
    assert table.rows[0][table.columns.index("ranks")] == "all 4 ranks"
