"""Is one rank or link to blame? Lateness over calls, bandwidth between places, the ring."""

from __future__ import annotations

import re

from advisor.report import numbers
from advisor.report.charts.heatmap import lateness_map, shortfall_matrix
from advisor.report.charts.ring import ring_drawing
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.clean import shorten
from advisor.report.sections.section import Section, slug
from advisor.report.tables import Row, rows
from advisor.store.store import Store

MAX_RANKS = 64
MAX_CELLS = 2400
_MAX_COLUMNS = 120
_MAX_PLACES = 16

# Mean lateness per rank and bucket of consecutive calls. quantile_disc keeps the median an
# integer: epoch nanoseconds do not fit a double.
_LATENESS_SQL = """
WITH start AS (
  SELECT c.rank, c.call_id, c.start_ns + coalesce(r.clock_offset_ns, 0) AS t
  FROM collective c JOIN rank r USING (run, rank)
  WHERE c.run = ? AND c.matched_ranks > 1 AND c.op NOT IN ('send', 'recv')),
call AS (
  SELECT call_id, quantile_disc(t, 0.5) AS middle, min(t) AS first FROM start GROUP BY call_id),
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
    figures = [
        figure
        for figure in (
            _lateness(store, run, suffix),
            _matrix(store, run, suffix),
            _ring(store, run, suffix),
        )
        if figure is not None
    ]
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
            ["rank", "calls", "times last", "p, corrected", "median lateness", "costs per step",
             "interval", "straggler", "reason"],
            [
                [
                    row["rank"],
                    numbers.count(row["calls"]),
                    numbers.count(row["times_last"]),
                    numbers.cell(row["p_value"]),
                    numbers.duration(row["median_lateness_ns"]),
                    numbers.duration(row["cost_ns_per_step"]),
                    f"{numbers.duration(row['cost_low_ns'])} to "
                    f"{numbers.duration(row['cost_high_ns'])}",
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


def _lateness_title(who: list[Row]) -> str:
    if not who:
        return "When each rank came to its collectives"
    worst = next((row for row in who if row["systematic"]), None)
    if worst is None:
        return "No rank is systematically late: who comes last changes from call to call"
    title = (
        f"Rank {worst['rank']} came last in {worst['times_last']} of {worst['calls']} calls and "
        f"costs the others {numbers.duration(worst['cost_ns_per_step'])} per step"
    )
    reason = _REASONS.get(worst["reason"] or "")
    return f"{title}: {reason}" if reason else title


def _matrix(store: Store, run: str, suffix: str) -> Figure | None:
    found = rows(
        store,
        "SELECT * FROM link_excess WHERE run = ? ORDER BY excess_ns_per_step DESC NULLS LAST"
        " LIMIT 200",
        [run],
    )
    edges = [row for row in found if row["kind"] == "edge" and row["src"] is not None]
    places = sorted({row["src"] for row in edges} | {row["dst"] for row in edges})
    if len(places) < 2 or len(places) > _MAX_PLACES:
        return _excess_list(found, suffix)
    hosts = {
        row["rank"]: row["host"]
        for row in rows(store, "SELECT rank, host FROM rank WHERE run = ?", [run])
    }
    names = [
        shorten(f"{rank} · {hosts[rank]}" if hosts.get(rank) else f"rank {rank}", 14)
        for rank in places
    ]
    at = {rank: index for index, rank in enumerate(places)}
    ratio: list[list[float | None]] = [[None] * len(places) for _ in places]
    text = [[""] * len(places) for _ in places]
    for row in edges:
        if row["measured_gbps"] and row["expected_gbps"]:
            i, j = at[row["src"]], at[row["dst"]]
            ratio[i][j] = row["measured_gbps"] / row["expected_gbps"]
            text[i][j] = (
                f"{numbers.significant(row['measured_gbps'])} of "
                f"{numbers.significant(row['expected_gbps'])} GB/s"
            )
    if not any(value is not None for line in ratio for value in line):
        return _excess_list(found, suffix)
    return Figure(
        id=f"links{suffix}",
        title=_link_title(found),
        description="Grid of senders by receivers: measured bandwidth as a share of the expected.",
        scenes=[shortfall_matrix(names, ratio, text)],
        legend=[("cell-ok", "as expected"), ("late1", "slower"), ("late4", "much slower")],
        table=_excess_table(found),
        note="Cells show the measured GB/s; the table has what was expected and from where.",
    )


def _excess_list(found: list[Row], suffix: str) -> Figure | None:
    if not found:
        return None
    return Figure(
        id=f"links{suffix}",
        title=_link_title(found),
        description="Places compared for excess transfer time.",
        scenes=[],
        table=_excess_table(found),
    )


def _link_title(found: list[Row]) -> str:
    sure = [row for row in found if (row["excess_low_ns"] or 0) > 0]
    if not sure:
        return "No link is measurably slower than its peers"
    worst = sure[0]
    title = f"{_place(worst)} costs {numbers.duration(worst['excess_ns_per_step'])} per step"
    if worst["measured_gbps"] and worst["expected_gbps"]:
        title += (
            f": {numbers.bandwidth(worst['measured_gbps'])} where "
            f"{numbers.bandwidth(worst['expected_gbps'])} is expected"
        )
    return title


def _place(row: Row) -> str:
    if row["kind"] == "edge":
        return f"The link {row['src']} → {row['dst']}"
    if row["kind"] == "rank":
        return f"The link of rank {row['src']}"
    if row["kind"] == "host":
        return f"The network of host {row['host']}"
    if row["kind"] == "group":
        return f"Group {row['process_group']}"
    return f"One of {row['candidates'] or 'several links'}"


def _excess_table(found: list[Row]) -> DataTable:
    return DataTable(
        ["place", "group", "calls", "measured, GB/s", "expected, GB/s", "expected from",
         "costs per step", "interval", "p"],
        [
            [
                _place(row),
                row["process_group"] or "–",
                numbers.count(row["calls"]),
                numbers.cell(row["measured_gbps"]),
                numbers.cell(row["expected_gbps"]),
                row["expected_from"] or "–",
                numbers.duration(row["excess_ns_per_step"]),
                f"{numbers.duration(row['excess_low_ns'])} to "
                f"{numbers.duration(row['excess_high_ns'])}",
                numbers.cell(row["p_value"]),
            ]
            for row in found[:64]
        ],
    )  # fmt: skip


def _ring(store: Store, run: str, suffix: str) -> Figure | None:
    found = rows(
        store,
        "SELECT name, value, source FROM topology WHERE run = ? AND kind = 'ring'"
        " ORDER BY name LIMIT 1",
        [run],
    )
    order = [int(part) for part in re.findall(r"\d+", found[0]["value"] or "")] if found else []
    if not 3 <= len(order) <= MAX_RANKS or len(set(order)) != len(order):
        return None
    lost = {
        (row["src"], row["dst"]): float(row["excess_ns_per_step"])
        for row in rows(
            store,
            "SELECT src, dst, max(excess_ns_per_step) AS excess_ns_per_step FROM link_excess"
            " WHERE run = ? AND kind = 'edge' AND excess_ns_per_step > 0 GROUP BY src, dst",
            [run],
        )
    }
    name = found[0]["name"] or "ring"
    if lost:
        (src, dst), worst = max(lost.items(), key=lambda item: item[1])
        title = f"In {name}, the edge {src} → {dst} loses {numbers.duration(worst)} per step"
    else:
        title = f"The order of ranks in {name}; no edge loses time measurably"
    return Figure(
        id=f"ring{suffix}",
        title=title,
        description=f"Ranks in ring order {' → '.join(map(str, order))}; edges as wide as the "
        "time lost on them.",
        scenes=[ring_drawing(order, lost)],
        table=DataTable(
            ["from", "to", "lost per step"],
            [[src, dst, numbers.duration(value)] for (src, dst), value in sorted(lost.items())],
        ),
        note=f"Read from {found[0]['source']}." if found[0]["source"] else "",
    )
