"""What DuckDB answers through a connection of this tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from advisor.store import Store
from advisor.store.opening import connect

_OF_GROUPS = """
SELECT op, sum(ns) AS ns FROM (SELECT op, g, max(ns) AS ns FROM call WHERE run = ? GROUP BY ALL) c
LEFT JOIN known k ON k.run = ? AND k.g = c.g GROUP BY op
"""


@pytest.mark.parametrize("opened", [connect, lambda: Store.create().con], ids=["bare", "store"])
@pytest.mark.parametrize("end", ["HAVING sum(ns) > 1", "ORDER BY ns DESC"])
def test_a_sum_over_what_has_no_partner_is_no_zero(opened: Callable[[], Any], end: str) -> None:
    con = opened()
    con.execute("CREATE TABLE call (run VARCHAR, op VARCHAR, g INTEGER, ns BIGINT)")
    con.execute("INSERT INTO call SELECT 'r', 'all_reduce', i, 1000 * i FROM range(1000) t(i)")
    con.execute("CREATE TABLE known (run VARCHAR, g INTEGER, description VARCHAR)")
    found = con.execute(f"{_OF_GROUPS} {end}", ["r", "r"]).fetchall()
    assert found == [("all_reduce", 499_500_000)]
