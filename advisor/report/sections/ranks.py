"""Is one rank or link to blame? Lateness over calls, bandwidth between places, rings and trees."""

from __future__ import annotations

from advisor.report import numbers
from advisor.report.charts.heatmap import lateness_map
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.sections import fabric, links
from advisor.report.sections.section import Section, slug
from advisor.report.tables import Row, rows
from advisor.store.store import Store

MAX_RANKS = 64
MAX_CELLS = 2400
_MAX_COLUMNS = 120

# Mean lateness per rank and bucket of consecutive calls. The median is taken of differences: epoch
# nanoseconds do not fit a double.
_LATENESS_SQL = """
WITH start AS (
  SELECT c.rank, c.call_id, c.start_ns + coalesce(r.clock_offset_ns, 0) AS t
  FROM collective c JOIN rank r USING (run, rank)
  WHERE c.run = ? AND c.matched_ranks > 1 AND c.op NOT IN ('send', 'recv')),
begun AS (SELECT call_id, min(t) AS first FROM start GROUP BY call_id),
call AS (
  SELECT call_id, first, first + CAST(median(t - first) AS BIGINT) AS middle
  FROM start JOIN begun USING (call_id) GROUP BY call_id, first),
ordered AS (SELECT call_id, middle, row_number() OVER (ORDER BY first, call_id) - 1 AS place,
  count(*) OVER () AS total FROM call)
SELECT rank, CAST(place * least(?, total) // total AS INTEGER) AS bucket,
  avg(t - middle) AS late_ns, any_value(total) AS total, least(?, any_value(total)) AS buckets
FROM start JOIN ordered USING (call_id) GROUP BY rank, bucket ORDER BY rank, bucket
"""

_REASONS = {
    "slow-compute": "its compute takes longer",
    "more-work": "it has more work",
    "late-launch": "its host launches late",
    "data-loading": "it waits for data",
    "slow-transfer-before": "a transfer before it was slow",
}


def build(store: Store, run: str, *, several: bool = False) -> Section | None:
    """The section of one run; None with one rank, where nobody can be compared."""
    suffix = f"-{slug(run)}" if several else ""
    pictures = (_lateness(store, run, suffix), links.figure(store, run, suffix))
    figures = [figure for figure in pictures if figure is not None]
    figures += fabric.figures(store, run, suffix)
    if not figures:
        return None
    return Section(
        id=f"who{suffix}",
        title="Is one rank or link to blame?" + (f" ({run})" if several else ""),
        template="figures.html.j2",
        data={"figures": figures},
    )


def _lateness(store: Store, run: str, suffix: str) -> Figure | None:
    ranks = [
        row["rank"]
        for row in rows(store, "SELECT DISTINCT rank FROM collective WHERE run = ? AND"
                        " matched_ranks > 1 ORDER BY rank", [run])
    ]  # fmt: skip
    if len(ranks) < 2:
        return None
    shown = ranks[:MAX_RANKS]
    columns = min(_MAX_COLUMNS, MAX_CELLS // len(shown))
    found = rows(store, _LATENESS_SQL, [run, columns, columns])
    if not found:
        return None
    total, buckets = found[0]["total"], found[0]["buckets"]
    cells: dict[int, list[float | None]] = {rank: [None] * buckets for rank in shown}
    for row in found:
        if row["rank"] in cells:
            cells[row["rank"]][row["bucket"]] = row["late_ns"]
    values = sorted(abs(value) for line in cells.values() for value in line if value is not None)
    # One extreme call must not bleach the rest: the strongest colour is the 99th percentile.
    full = values[int(0.99 * (len(values) - 1))]
    full = full or values[-1]
    who = rows(store, "SELECT * FROM lateness WHERE run = ? AND process_group IS NULL"
               " ORDER BY cost_ns_per_step DESC NULLS LAST, rank", [run])  # fmt: skip
    note = f"Full colour: {numbers.duration(full)}. Clocks are aligned."
    if buckets < total:
        note += f" {numbers.count(total)} calls in {buckets} columns (mean of each)."
    if len(shown) < len(ranks):
        note += f" The first {len(shown)} of {len(ranks)} ranks."
    note += _inherited(cells, who)
    return Figure(
        id=f"lateness{suffix}",
        title=_lateness_title(who),
        description="Grid of ranks by collective calls in time order: how much later (orange) or "
        "earlier (blue) than the median rank each rank started the call.",
        scenes=[
            lateness_map(
                shown,
                [cells[rank] for rank in shown],
                full_ns=full,
                first_label="first call",
                last_label=f"call {numbers.count(total)}",
            )
        ],
        legend=[("late4", "later than the median rank"), ("early4", "earlier"),
                ("cell-ground", "on time")],
        table=DataTable(
            ["rank", "calls", "times last", "p (by chance)", "median lateness",
             "each other waits per step", "interval", "systematic", "reason"],
            [
                [
                    row["rank"],
                    numbers.count(row["calls"]),
                    numbers.count(row["times_last"]),
                    numbers.cell(row["p_value"]),
                    numbers.duration(row["median_lateness_ns"]),
                    numbers.duration(row["cost_ns_per_step"]),
                    numbers.interval(row["cost_low_ns"], row["cost_high_ns"]),
                    numbers.cell(row["systematic"]),
                    row["reason"] or "–",
                ]
                for row in who[:128]
            ],
        )
        if who
        else None,
        note=note,
    )  # fmt: skip


def _inherited(cells: dict[int, list[float | None]], who: list[Row]) -> str:
    """That the picture's latest rank is not the one the title names, where that is so."""
    blamed = [row["rank"] for row in who if row["systematic"]]
    late = {rank: sum(max(value or 0.0, 0.0) for value in line) for rank, line in cells.items()}
    latest = max(late, key=lambda rank: late[rank])
    if not blamed or latest in blamed or not late[latest]:
        return ""
    return (
        f" Rank {latest} arrives latest here, yet it is not to blame: it comes from waiting for "
        "others itself, as the first stage of a pipeline does. The title counts only what a rank "
        "adds of its own."
    )


def _lateness_title(who: list[Row]) -> str:
    if not who:
        return "When each rank came to its collectives"
    worst = next((row for row in who if row["systematic"]), None)
    if worst is None:
        return "No rank is systematically late: who comes last changes from call to call"
    title = (
        f"Rank {worst['rank']} came last in {worst['times_last']} of {worst['calls']} calls; "
        f"each other rank waits {numbers.duration(worst['cost_ns_per_step'])} per step for its own "
        "delay"
    )
    reason = _REASONS.get(worst["reason"] or "")
    return f"{title}: {reason}" if reason else title
