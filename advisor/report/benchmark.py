"""The fitted cost of each operation that a benchmark measured, as a table for the terminal."""

from advisor.findings import Table
from advisor.messages import on_page
from advisor.report import numbers
from advisor.report.tables import rows
from advisor.store.store import Store
from advisor.vocabulary.words import estimate, short

_SQL = """
SELECT a.op, a.group_size AS ranks, a.k * a.alpha_ns AS latency_ns,
  a.k * a.alpha_low_ns AS latency_low_ns, a.k * a.alpha_high_ns AS latency_high_ns,
  a.beta_ns_per_byte, a.beta_low_ns_per_byte, a.beta_high_ns_per_byte, a.n_star_bytes,
  (SELECT max(b.busbw_gbps) FROM bench b WHERE b.run = a.run AND b.op = a.op
   AND b.ranks = a.group_size AND b.tool = a.origin AND b.src IS NULL) AS best
FROM alpha_beta a WHERE a.run = ? AND a.origin <> 'trace' AND a.alpha_ns IS NOT NULL
ORDER BY a.op <> 'all_reduce', a.op, a.group_size
"""


def fits(store: Store, run: str) -> Table | None:
    """Latency, β, n* and the best bus bandwidth per operation and ranks; None without a fit."""
    found = rows(store, _SQL, [run])
    if not found:
        return None
    return Table(
        title=on_page("fitted"),
        columns=["operation", "ranks", "latency", "β, ns/B", "n*", "best busbw, GB/s"],
        rows=[
            [
                row["op"],
                row["ranks"],
                estimate(row["latency_ns"], row["latency_low_ns"], row["latency_high_ns"]),
                _with_ends(
                    row["beta_ns_per_byte"],
                    row["beta_low_ns_per_byte"],
                    row["beta_high_ns_per_byte"],
                ),
                numbers.traffic(row["n_star_bytes"]),
                row["best"],
            ]
            for row in found
        ],
        note=on_page("fitted-terms"),
    )


def _with_ends(value: float, low: float | None, high: float | None) -> str:
    """The value and the ends of its interval; the value alone where the fit has none."""
    shown = short(value)
    if low is None or high is None or not low <= value <= high:
        return shown
    return f"{shown} ({short(low)}–{short(high)})"
