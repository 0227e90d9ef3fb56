"""Small stores and rules for the engine's tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from advisor.engine.examples import fill
from advisor.engine.rule import Example
from advisor.engine.sandbox import Sandbox
from advisor.store import Store

RUN = "example"


def store_of(**settings: Any) -> Store:
    """A store with one run whose rows are written as in a rule's example."""
    example = Example(name="test", expect="passed", **settings)
    store = Store.create()
    store.con.execute(
        "INSERT INTO run (run, created_at, advisor_version) VALUES (?, '', '')", [RUN]
    )
    sandbox = _empty()
    fill(sandbox, example)
    for table in sorted({*example.tables, "rank", "step", "step_breakdown"} - {"run"}):
        if not sandbox.holds(table, "", {}):
            continue
        rows = sandbox.con.sql(f'SELECT * FROM "{table}"').to_arrow_table()
        store.con.register("incoming", rows)
        store.con.execute(f'INSERT INTO "{table}" SELECT * FROM incoming')
        store.con.unregister("incoming")
    return store


@cache
def _empty() -> Sandbox:
    """Filled anew for each store: making one takes longer than most tests."""
    return Sandbox(None, RUN)


RULE = """\
category: user
severity: by-savings
title: slow calls
why: a rule of a test, with a reason long enough to pass the check
params:
  least_ns: {{default: 1000000, unit: ns, reason: anything below is noise}}
sql: {sql}
headline: "{headline}"
where: run
message: "{message}"
savings: {{how: counted, confidence: modelled}}
fix: ["do it"]
verify: look again
false_alarms: ["never"]
examples:
  - {{name: one, expect: fired}}
  - {{name: two, expect: passed, look_alike: true}}
  - {{name: three, expect: passed}}
"""


def write_rule(
    folder: Path,
    name: str,
    sql: str,
    *,
    headline: str = "something is slow",
    message: str = "seen",
) -> Path:
    """A minimal rule file with the given SQL."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(RULE.format(sql=sql, headline=headline, message=message))
    return path
