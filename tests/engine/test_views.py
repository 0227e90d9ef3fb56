"""Views are made where something names them, once, and anew when what they read changes."""

from __future__ import annotations

import re

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


def test_a_view_has_no_rows_without_its_source() -> None:
    sourced = {name: view.source for name, view in views().items() if view.source}
    with_rows, without_source = set(), set()
    with Sandbox(None, "example") as sandbox:
        for rule in load_catalogue()[0]:
            for name in sourced.keys() & {need.table for need in rule.needs}:
                for example in rule.examples:
                    fill(sandbox, example)
                    (row,) = sandbox.records(f"SELECT count(*) AS n FROM {name}")
                    if sandbox.holds(*sourced[name], {}):
                        with_rows |= {name} if row["n"] else set()
                    else:
                        assert row["n"] == 0, (rule.id, example.name)
                        without_source.add(name)
    assert with_rows == without_source == {*sourced}


def test_other_rows_make_other_views() -> None:
    with Sandbox(None, "example") as sandbox:
        for steps in (3, 8):
            fill(sandbox, Example(name="one", expect="passed", steps=steps))
            assert sandbox.records("SELECT count(*) AS n FROM used_step") == [{"n": steps}]
        fill(sandbox, Example(name="slow", expect="passed", steps=8, step_ms=50))
        assert sandbox.records("SELECT step_ns FROM facts") == [{"step_ns": 50_000_000}]
