"""Views are made where something names them, once, and anew when what they read changes."""

from __future__ import annotations

import re

import pytest

from advisor.engine.catalogue import load_catalogue
from advisor.engine.examples import fill
from advisor.engine.rule import Example
from advisor.engine.sandbox import Sandbox
from advisor.engine.views import reads_of, views


def test_each_view_comes_after_those_that_it_reads() -> None:
    before: set[str] = set()
    for view in views().values():
        read = {*re.findall(r"\w+", view.select)} & views().keys()
        assert read - {view.name} <= before, view.name
        before.add(view.name)


def test_a_statement_needs_what_it_names_and_what_that_reads() -> None:
    needed = reads_of("SELECT * FROM Used_Step") & views().keys()
    assert {"used_step", "all_step"} <= needed
    assert "call" not in needed
    assert not reads_of("SELECT 1 AS one") & views().keys()


@pytest.mark.slow
def test_a_view_has_no_rows_without_its_source() -> None:
    """One that has rows has none where such rows of its source are hidden from it."""
    left = {name: view.source for name, view in views().items() if view.source}
    with Sandbox(None, "example") as sandbox:
        for rule in load_catalogue()[0]:
            open_ = left.keys() & reads_of(rule.sql)
            for example in rule.examples if open_ else ():
                fill(sandbox, example)
                for name in open_ & left.keys():
                    if sandbox.holds(name, "", {}):
                        source, where = left.pop(name)
                        others = f"FROM main.{source} WHERE ({where or True}) IS NOT TRUE"
                        asked = f"SELECT count(*) FROM ({views()[name].select})"
                        sandbox.con.execute(f"WITH {source} AS ({others}) {asked}")
                        assert sandbox.con.fetchall() == [(0,)], name
    assert not left


def test_an_empty_source_spares_filling_a_view_again() -> None:
    filled: list[int] = []
    with Sandbox(None, "example") as sandbox:
        for calls in (1, 0, 2):
            rows = [{"rank": 0, "step": 0, "call_id": n, "op": "barrier"} for n in range(calls)]
            tables = {"collective": rows} if calls else {}
            fill(sandbox, Example(name=f"{calls}", expect="passed", tables=tables))
            filled += [sandbox.records("SELECT count(*) AS n FROM call")[0]["n"]]
            assert calls or sandbox._planned["call"] == 0  # nor is that planned
    assert filled == [1, 0, 2]


def test_other_rows_make_other_views() -> None:
    with Sandbox(None, "example") as sandbox:
        for steps in (3, 8):
            fill(sandbox, Example(name="one", expect="passed", steps=steps))
            assert sandbox.records("SELECT count(*) AS n FROM used_step") == [{"n": steps}]
        fill(sandbox, Example(name="slow", expect="passed", steps=8, step_ms=50))
        assert sandbox.records("SELECT step_ns FROM facts") == [{"step_ns": 50_000_000}]


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ({0: "a", 1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 7: "b"}, (2, 4)),  # 6: between two of b
        ({1: "a", 2: "a", 3: "a", 5: "b", 6: "b", 7: "b"}, (2, 4)),  # the first of each
        ({0: "a", 1: "b", 2: "a", 3: "b", 4: "a", 5: "b", 6: "a"}, None),  # dealt out in turn
        ({0: "a", 1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "c"}, None),  # whose is rank 7?
        ({0: "a", 2: "b", 4: "c", 6: "d"}, None),  # half: the others may be on hosts of their own
    ],
)
def test_a_rank_that_was_not_read_is_where_its_neighbours_are(
    hosts: dict[int, str], found: tuple[int, int] | None
) -> None:
    rows = [{"rank": rank, "host": host, "world_size": 8} for rank, host in hosts.items()]
    group = {"process_group": "0", "ranks": [*range(8)], "size": 8}
    with Sandbox(None, "example") as sandbox:
        tables = {"rank": rows, "process_group": [group]}
        fill(sandbox, Example(name="lost", expect="passed", tables=tables))
        said = sandbox.records("SELECT hosts, ranks_per_host FROM group_host")
    assert [tuple(row.values()) for row in said] == ([found] if found else [])
