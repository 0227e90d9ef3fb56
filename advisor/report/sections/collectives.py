"""Are collectives as fast as they should be? One panel per operation and group."""

from __future__ import annotations

import re

from advisor.report import numbers
from advisor.report.charts.busbw import CallGroup, busbw_plot
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.sections.collective_bench import bench_panel, benchmarks
from advisor.report.sections.collective_limits import ceiling_of, curve_words, fitted
from advisor.report.sections.section import Section, slug
from advisor.report.tables import Row, rows
from advisor.store.store import Store

MAX_PANELS = 6
_MAX_SIZES = 80
_SIZES_TOLD = (
    "Size of one call: its buffer, as nccl-tests counts it. On the wire: what one rank sends for "
    "all these calls of a step (times are per step too): a ring's all_reduce sends 2(n-1)/n of the "
    "size, all_gather, reduce_scatter and all_to_all (n-1)/n. Pictures and findings name the size "
    "of one call, unless they say per step."
)
_NO_SIZES = "The recording does not hold the calls' sizes: how to capture them stands at the end."

# One row per operation, group and size; a call counts once however many ranks saw it, and its
# bandwidth is the slowest rank's (METRICS section 4).
_SIZES_SQL = """
WITH call AS (
  SELECT call_id, coalesce(wire_op, op) AS op, process_group, any_value(group_size) AS group_size,
    max(bytes) AS bytes, min(busbw_gbps) AS busbw, max(transfer_ns) AS transfer_ns,
    bool_or(t_is = 'upper bound') AS upper_bound, avg(exposed_ns) AS exposed_ns
  FROM collective WHERE run = ? AND op NOT IN ('barrier', 'other')
  GROUP BY call_id, coalesce(wire_op, op), process_group)
SELECT op, c.process_group, any_value(c.group_size) AS group_size, bytes, count(*) AS calls,
  median(busbw) AS busbw, sum(transfer_ns) AS time_ns, median(transfer_ns) AS median_ns,
  sum(exposed_ns) AS exposed_ns, bool_or(upper_bound) AS upper_bound,
  any_value(g.description) AS description
FROM call c LEFT JOIN process_group g ON g.run = ? AND g.process_group = c.process_group
WHERE bytes > 0 AND busbw > 0 GROUP BY op, c.process_group, bytes ORDER BY time_ns DESC
"""

_TRAFFIC_SQL = """
SELECT op, process_group, phase, dtype, group_size, calls_per_step, smallest_bytes, largest_bytes,
  wire_bytes_per_step, transfer_ns_per_step, exposed_ns_per_step
FROM traffic WHERE run = ? ORDER BY exposed_ns_per_step DESC NULLS LAST LIMIT 40
"""


def build(store: Store, run: str, *, several: bool = False) -> Section | None:
    """The section of one run; None when no collective has a size and a bandwidth."""
    sizes = rows(store, _SIZES_SQL, [run, run])
    suffix = f"-{slug(run)}" if several else ""
    panels: dict[tuple[str, str | None], list[Row]] = {}
    for row in sizes:
        panels.setdefault((row["op"], row["process_group"]), []).append(row)
    figures = [
        _panel(store, run, panel, f"busbw-{number}{suffix}")
        for number, panel in enumerate(list(panels.values())[:MAX_PANELS], 1)
    ]
    known = {(panel[0]["op"], panel[0]["group_size"]) for panel in panels.values()}
    measured = benchmarks(store, run, known)
    figures += [
        bench_panel(store, run, panel, f"bench-{number}{suffix}")
        for number, panel in enumerate(measured[: MAX_PANELS - len(figures)], 1)
    ]
    traffic = _traffic(store, run)
    if not figures and not traffic.rows:
        return None
    calls = sum(row["calls"] for row in sizes)
    return Section(
        id=f"collectives{suffix}",
        title="Are collectives as fast as they should be?" + (f" ({run})" if several else ""),
        template="collectives.html.j2",
        count=numbers.plural(calls, "call") if calls else "benchmark" if measured else "",
        data={
            "figures": figures,
            "traffic": traffic,
            "traffic_title": "What a step sends",
            "left_out": max(len(panels) - MAX_PANELS, 0),
        },
    )


def _panel(store: Store, run: str, panel: list[Row], name: str) -> Figure:
    first = panel[0]
    op, size = first["op"], first["group_size"]
    shown = sorted(panel[:_MAX_SIZES], key=lambda row: row["bytes"])
    groups = [
        CallGroup(row["bytes"], row["busbw"], row["calls"], float(row["time_ns"] or 0),
                  bool(row["upper_bound"]))
        for row in shown
    ]  # fmt: skip
    # Times that include waiting for missing ranks say nothing about the network: no curve.
    alone = all(group.upper_bound for group in groups)
    fit = None if alone else fitted(store, run, op, size)
    ceiling, ceiling_words = ceiling_of(store, run, op, size)
    best = max(shown, key=lambda row: row["busbw"])
    where = _group_words(first)
    title = (
        f"{op}{where} reaches {numbers.bandwidth(best['busbw'])}"
        f" at {numbers.traffic(best['bytes'])}"
    )
    if fit is not None and fit.n_star_bytes:
        below = sum(row["calls"] for row in panel if row["bytes"] < fit.n_star_bytes)
        part = numbers.share(below / sum(row["calls"] for row in panel))
        title += (
            f"; {part} of calls are below n* = {numbers.traffic(fit.n_star_bytes)}, "
            "where latency costs more than bandwidth"
        )
    notes = []
    if fit is not None:
        notes.append(curve_words(fit, groups))
    if any(group.upper_bound for group in groups):
        notes.append(
            "Open dots: other ranks are missing, so the time includes waiting and the bandwidth "
            "is a lower bound."
        )
    if not alone:
        notes.append(
            "Bus bandwidth is of a call's whole transfer, also while others run beside it; a "
            "finding on a link splits that time between them, so its figure is no lower."
        )
    if len(panel) > _MAX_SIZES:
        notes.append(f"The {_MAX_SIZES} of {len(panel)} sizes that take most time.")
    if ceiling:
        notes.append(f"Dashed line: {ceiling_words}.")
    return Figure(
        id=name,
        title=title,
        description=f"Bus bandwidth in GB/s against message size, both logarithmic, for {op}"
        f"{where}; below it the share of calls and of transfer time by size.",
        scenes=busbw_plot(groups, fit, ceiling, ceiling=ceiling_words),
        table=DataTable(
            ["size of a call", "bytes of a call", "calls recorded", "median busbw, GB/s",
             "transfer of a call (median), ms", "transfer of all calls, ms",
             "exposed of all calls (waiting included), ms"],
            [
                [
                    numbers.traffic(row["bytes"]),
                    numbers.count(row["bytes"]),
                    numbers.count(row["calls"]),
                    numbers.cell(row["busbw"]),
                    numbers.milliseconds(row["median_ns"]),
                    numbers.milliseconds(row["time_ns"]),
                    numbers.milliseconds(row["exposed_ns"]),
                ]
                for row in shown
            ],
        ),
        note=" ".join(notes),
    )  # fmt: skip


def _group_words(row: Row) -> str:
    size = f" over {numbers.plural(row['group_size'], 'rank')}" if row["group_size"] else ""
    name = row["description"] or row["process_group"]
    if not name or re.fullmatch(r"default_pg|0|undefined", name):
        return size
    return f"{size} ({name})"


def _traffic(store: Store, run: str) -> DataTable:
    found = rows(store, _TRAFFIC_SQL, [run])
    return DataTable(
        ["operation", "group", "phase", "type", "ranks", "calls per step",
         "size of one call", "on the wire, per step", "transfer, ms", "exposed transfer, ms"],
        [
            [
                row["op"],
                row["process_group"] or "–",
                row["phase"] or "–",
                row["dtype"] or "–",
                numbers.cell(row["group_size"]),
                numbers.cell(row["calls_per_step"]),
                _range(row["smallest_bytes"], row["largest_bytes"]),
                numbers.traffic(row["wire_bytes_per_step"]),
                numbers.milliseconds(row["transfer_ns_per_step"]),
                numbers.milliseconds(row["exposed_ns_per_step"]),
            ]
            for row in found
        ],
        note=_SIZES_TOLD if any(row["largest_bytes"] for row in found) else _NO_SIZES,
    )  # fmt: skip


def _range(low: int | None, high: int | None) -> str:
    if low == high:
        return numbers.traffic(low)
    return f"{numbers.traffic(low)} to {numbers.traffic(high)}"
