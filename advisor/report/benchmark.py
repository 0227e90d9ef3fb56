"""The fitted cost of each operation that a benchmark measured, as a table for the terminal."""

from __future__ import annotations

from advisor.findings import Table
from advisor.report import numbers
from advisor.report.tables import rows
from advisor.store.store import Store

_SQL = """
SELECT a.op, a.group_size AS ranks, a.alpha_ns, a.beta_ns_per_byte, a.n_star_bytes,
  (SELECT max(b.busbw_gbps) FROM bench b WHERE b.run = a.run AND b.op = a.op
   AND b.ranks = a.group_size AND b.tool = a.origin AND b.src IS NULL) AS best
FROM alpha_beta a WHERE a.run = ? AND a.origin <> 'trace' AND a.alpha_ns IS NOT NULL
ORDER BY a.op <> 'all_reduce', a.op, a.group_size
"""


def fits(store: Store, run: str) -> Table | None:
    """α, β, n* and the best bus bandwidth per operation and ranks; None without a fit."""
    found = rows(store, _SQL, [run])
    if not found:
        return None
    return Table(
        title="Fitted cost of a call: t = hops · α + bytes on a link · β",
        columns=["operation", "ranks", "α", "β, ns/B", "n*", "best busbw, GB/s"],
        rows=[
            [
                row["op"],
                row["ranks"],
                numbers.duration(row["alpha_ns"]),
                row["beta_ns_per_byte"],
                numbers.traffic(row["n_star_bytes"]),
                row["best"],
            ]
            for row in found
        ],
        note="α: latency of a hop. β: inverse bandwidth of a link. n*: the size at which latency "
        "and bandwidth cost the same; smaller calls are mostly latency.",
    )
