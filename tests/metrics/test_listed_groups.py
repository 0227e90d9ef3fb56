"""Members of process groups from c10d's own arguments, where no file lists the groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.ingest.readers import flight_recorder
from advisor.ingest.source import ReadContext, Source
from advisor.metrics.collectives.groups import LISTED_GROUPS, name_apart, process_groups
from advisor.store.store import Store
from tests.metrics.support import store_of


def call(group: str, size: int, ranks: str) -> dict[str, object]:
    return {
        "ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 1, "dur": 1, "tid": 1,
        "args": {"Collective name": "allreduce", "Process Group Name": group, "Group size": size,
                 "Process Group Description": "mesh_tp", "Process Group Ranks": ranks},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("size", "ranks", "members"),
    [
        (2, "[0, 4]", (0, 4)),
        (64, "[0, 1, 2, ..., 63]", None),  # cut by torch
        (3, "[0, 4]", None),  # contradicts itself
        (1, "[]", None),  # the wait for a call
        (2, "[0, x]", None),
        (2, "[0, 4294967296]", None),
        (2, "[0, 2147483647]", None),
    ],
)
def test_members_are_those_that_the_calls_give(
    size: int, ranks: str, members: tuple[int, ...] | None
) -> None:
    store = store_of({0: {"traceEvents": [call("5", size, ranks)]}})
    store.con.execute(LISTED_GROUPS, ["run"])
    store.con.execute(LISTED_GROUPS, ["run"])  # derived again
    found = process_groups(store.con, "run")
    assert {name: group.ranks for name, group in found.items()} == (
        {"5": members} if members else {}
    )
    rows = store.con.execute("SELECT count(*) FROM process_group").fetchone()
    assert rows == (len(found),)


def test_what_a_file_lists_stays() -> None:
    listed = {"pg_config": [{"pg_name": "5", "pg_desc": "tp", "ranks": [0, 1], "pg_size": 2}]}
    store = store_of({0: {"traceEvents": [call("5", 2, "[0, 4]")], "distributedInfo": listed}})
    store.con.execute(LISTED_GROUPS, ["run"])
    assert process_groups(store.con, "run")["5"].ranks == (0, 1)


def along(group: str, ranks: list[int]) -> dict[str, object]:
    return {"traceEvents": [call(group, len(ranks), str(ranks))]}


def named(
    files: dict[int, dict[str, object]], *, from_parquet: bool = False
) -> tuple[dict[str, object], dict[int, str]]:
    store = store_of(files)
    if from_parquet:
        store.con.execute("ALTER TABLE comm_event RENAME TO written")
        store.con.execute("CREATE VIEW comm_event AS FROM written")
    for _ in range(2):  # derived again
        store.con.execute(LISTED_GROUPS, ["run"])
        name_apart(store.con, "run")
    found = process_groups(store.con, "run")
    asked = store.con.execute("SELECT rank, process_group FROM comm_event").fetchall()
    return {name: group.ranks for name, group in found.items()}, dict(asked)


@pytest.mark.parametrize("from_parquet", [False, True])
def test_groups_that_share_a_number_along_a_mesh_are_told_apart(from_parquet: bool) -> None:
    files = {rank: along("1", [rank // 2 * 2, rank // 2 * 2 + 1]) for rank in range(4)}
    groups, asked = named(files, from_parquet=from_parquet)
    assert groups == {"1@0": (0, 1), "1@2": (2, 3)}
    assert asked == {0: "1@0", 1: "1@0", 2: "1@2", 3: "1@2"}


def test_a_rank_in_two_lists_of_one_name_tells_no_group_apart() -> None:
    _, asked = named({0: along("1", [0, 1]), 1: along("1", [0, 1]), 2: along("1", [1, 2])})
    assert set(asked.values()) == {"1"}


def test_dumps_of_such_groups_are_told_apart(tmp_path: Path) -> None:
    for rank in range(4):
        listed = {"name": "1", "desc": "mesh_tp", "ranks": str([rank // 2 * 2, rank // 2 * 2 + 1])}
        progress = {"last_enqueued_collective": 5 + rank // 2}
        dump = {"version": "2.9", "pg_config": {"1": listed}, "pg_status": {"1": progress},
                "entries": []}  # fmt: skip
        (tmp_path / f"trace_rank_{rank}.json").write_text(json.dumps(dump))
    store = Store.create()
    paths = sorted(tmp_path.iterdir())
    sources = [Source.of(path, number) for number, path in enumerate(paths)]
    flight_recorder.read(sources, ReadContext(store, "run"))
    name_apart(store.con, "run")
    found = process_groups(store.con, "run")
    assert {name: group.ranks for name, group in found.items()} == {"1@0": (0, 1), "1@2": (2, 3)}
    seen = store.con.execute("SELECT rank, process_group, seq FROM flight ORDER BY rank").fetchall()
    assert seen == [(0, "1@0", 5), (1, "1@0", 5), (2, "1@2", 6), (3, "1@2", 6)]
