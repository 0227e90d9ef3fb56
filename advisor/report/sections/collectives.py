"""Are collectives as fast as they should be? One panel per operation and group."""

from __future__ import annotations

import re

from advisor.config.hardware import find_device
from advisor.metrics.operations import bus_factor
from advisor.report import numbers
from advisor.report.charts.busbw import CallGroup, Fit, bench_plot, busbw_plot
from advisor.report.charts.scene import DataTable, Figure
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
    measured = _benchmarks(store, run, known)
    figures += [
        _bench_panel(store, run, panel, f"bench-{number}{suffix}")
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
    fit = None if alone else _fit(store, run, op, size)
    ceiling, ceiling_words = _ceiling(store, run, op, size)
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
        notes.append(_curve_words(fit))
    if any(group.upper_bound for group in groups):
        notes.append(
            "Open dots: other ranks are missing, so the time includes waiting and the bandwidth "
            "is a lower bound."
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


def _benchmarks(store: Store, run: str, known: set[tuple[str, int | None]]) -> list[list[Row]]:
    """Sizes measured by a benchmark, by operation and ranks, where no traced call shows them."""
    found = rows(
        store,
        "SELECT op, ranks, any_value(tool) AS tool, bytes, max(busbw_gbps) AS busbw,"
        " min(time_us) AS time_us, count(DISTINCT in_place) > 1 AS both"
        " FROM bench WHERE run = ? AND src IS NULL AND bytes > 0"
        " AND busbw_gbps > 0 GROUP BY op, ranks, bytes ORDER BY op <> 'all_reduce', op, bytes",
        [run],
    )
    panels: dict[tuple[str, int | None], list[Row]] = {}
    for row in found:
        panels.setdefault((row["op"], row["ranks"]), []).append(row)
    return [panel for key, panel in panels.items() if key not in known and len(panel) > 1]


def _bench_panel(store: Store, run: str, panel: list[Row], name: str) -> Figure:
    first, best = panel[0], max(panel, key=lambda row: row["busbw"])
    fit = _fit(store, run, first["op"], first["ranks"])
    title = (
        f"{first['op']} over {numbers.plural(first['ranks'] or 0, 'rank')} reaches "
        f"{numbers.bandwidth(best['busbw'])} at {numbers.traffic(best['bytes'])} in {first['tool']}"
    )
    if fit is not None and fit.n_star_bytes:
        title += f"; below n* = {numbers.traffic(fit.n_star_bytes)} latency costs more"
    notes = [_curve_words(fit)] if fit is not None else []
    ceiling, ceiling_words = _bench_ceiling(store, run)
    if ceiling:
        notes.append(f"Dashed line: {ceiling_words}.")
    if any(row["both"] for row in panel):
        notes.append("Of in-place and out-of-place the faster.")
    return Figure(
        id=name,
        title=title,
        description=f"Bus bandwidth in GB/s against message size, both logarithmic, for "
        f"{first['op']} as a benchmark measured it.",
        scenes=[
            bench_plot(
                [CallGroup(row["bytes"], row["busbw"], 0, 0.0) for row in panel],
                fit,
                ceiling,
                ceiling=ceiling_words,
            )
        ],
        table=DataTable(
            ["size of a call", "bytes of a call", "busbw, GB/s", "time, µs"],
            [
                [
                    numbers.traffic(row["bytes"]),
                    numbers.count(row["bytes"]),
                    numbers.cell(row["busbw"]),
                    numbers.cell(row["time_us"]),
                ]
                for row in panel
            ],
        ),
        note=" ".join(notes),
    )


def _curve_words(fit: Fit) -> str:
    return (
        f"Curve: fitted α = {numbers.duration(fit.alpha_ns)} per hop, β = "
        f"{numbers.significant(fit.beta_ns_per_byte)} ns/B; dashed beyond twice the largest "
        "size seen."
    )


def _fit(store: Store, run: str, op: str, size: int | None) -> Fit | None:
    found = rows(
        store,
        "SELECT * FROM alpha_beta WHERE run = ? AND op = ? AND group_size = ?"
        " AND alpha_ns IS NOT NULL AND beta_ns_per_byte > 0 AND k IS NOT NULL"
        " AND m IS NOT NULL AND sizes > 1 ORDER BY origin = 'trace' DESC, samples DESC LIMIT 1",
        [run, op, size],
    )
    factor = bus_factor(op, size)
    if not found or factor is None:
        return None
    row = found[0]
    return Fit(
        row["alpha_ns"],
        row["beta_ns_per_byte"],
        row["k"],
        row["m"],
        factor,
        row["n_star_bytes"],
        row["largest_bytes"] or 0,
    )


def _ceiling(store: Store, run: str, op: str, size: int | None) -> tuple[float | None, str]:
    """What the hardware gives: measured by nccl-tests or a probe, else the device's links.

    The data sheet's figure counts only inside one host: no trace names the network's cards.
    """
    found = rows(
        store,
        "SELECT max(busbw_gbps) AS best, any_value(tool) AS tool FROM bench"
        " WHERE run = ? AND op = ? AND ranks = ?",
        [run, op, size],
    )
    if found and found[0]["best"]:
        return float(found[0]["best"]), f"best in {found[0]['tool']}"
    devices = rows(
        store,
        "SELECT DISTINCT device_name, host FROM rank WHERE run = ? AND device_name IS NOT NULL",
        [run],
    )
    if len(devices) == 1 and devices[0]["host"] is not None:
        device = find_device(devices[0]["device_name"])
        if device is not None and device.link_gbps:
            return device.link_gbps, f"links of one {device.name}, data sheet"
    return None, ""


def _bench_ceiling(store: Store, run: str) -> tuple[float | None, str]:
    """The data sheet's figure of the device that a benchmark inside one host ran on."""
    found = rows(
        store,
        "SELECT DISTINCT kind, name FROM topology"
        " WHERE run = ? AND kind IN ('bench-device', 'bench-host')",
        [run],
    )
    if len(found) != 1 or found[0]["kind"] != "bench-device":
        return None, ""
    device = find_device(found[0]["name"])
    if device is None or not device.link_gbps:
        return None, ""
    return device.link_gbps, f"links of one {device.name}, data sheet"


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
