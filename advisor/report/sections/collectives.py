"""Are collectives as fast as they should be? One panel per operation and group."""

from collections.abc import Mapping, Sequence
from operator import itemgetter

from advisor.config.hardware import find_device
from advisor.messages import on_page
from advisor.report import numbers
from advisor.report.data_table import DataTable, cell
from advisor.report.figures import BusBandwidth, CallGroup, Figure, Fit
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import Row, group_names, of_unit, rows
from advisor.store.store import Store
from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.words import significant

_MISSES = 2.0
"""From this factor between a size's median and the curve on, the curve is called a rough one."""

MAX_PANELS = 6
_MAX_SIZES = 80
_OF_SIZES = {
    "size of a call": cell("bytes", numbers.traffic),
    "exposed of all calls (waiting included), ms": cell("exposed_ns", numbers.milliseconds),
    "transfer of all calls, ms": cell("time_ns", numbers.milliseconds),
    "calls": cell("calls", numbers.count),
    "transfer of a call (median), ms": cell("median_ns", numbers.milliseconds),
    "busbw (median), GB/s": cell("busbw", numbers.cell),
    "bytes": cell("bytes", numbers.count),
}

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
  sum(exposed_ns) AS exposed_ns, bool_or(upper_bound) AS upper_bound
FROM call c WHERE bytes > 0 AND busbw > 0 GROUP BY op, c.process_group, bytes ORDER BY time_ns DESC
"""

_TRAFFIC_SQL = """
SELECT op, process_group, phase, dtype, group_size, calls_per_step, smallest_bytes, largest_bytes,
  wire_bytes_per_step, transfer_ns_per_step, exposed_ns_per_step
FROM traffic WHERE run = ? ORDER BY exposed_ns_per_step DESC NULLS LAST LIMIT 40
"""


def build(store: Store, run: str, *, several: bool = False) -> Section | None:
    """The section of one run; None when no collective has a size and a bandwidth."""
    sizes = rows(store, _SIZES_SQL, [run])
    suffix, section, title = of_run("collectives", "Collectives", run, several)
    names = group_names(store, run)
    panels: dict[tuple[str, str | None], list[Row]] = {}
    for row in sizes:
        panels.setdefault((row["op"], row["process_group"]), []).append(row)
    figures = [
        _panel(store, run, panel, f"busbw-{number}{suffix}", names)
        for number, panel in enumerate(list(panels.values())[:MAX_PANELS], 1)
    ]
    known = {(panel[0]["op"], panel[0]["group_size"]) for panel in panels.values()}
    measured = _benchmarks(store, run, known)
    figures += [
        _bench_panel(store, run, panel, f"bench-{number}{suffix}")
        for number, panel in enumerate(measured[: MAX_PANELS - len(figures)], 1)
    ]
    first = next(iter(panels.values()), None)
    line = _reaches(first, names) if first else figures[0].title if figures else ""
    traffic = _traffic(store, run, names)
    if traffic.rows:
        figures.append(Figure(f"sent{suffix}", on_page("sent"), table=traffic))
    if not figures:
        return None
    return Section(section, "Collectives", title, figures, line)


def _panel(
    store: Store, run: str, panel: list[Row], name: str, names: Mapping[str | None, str]
) -> Figure:
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
    fit = None if alone else _fitted(store, run, op, size)
    ceiling, ceiling_words = _ceiling_of(store, run, op, size)
    title = _reaches(panel, names)
    if fit is not None and fit.n_star_bytes:
        below = sum(row["calls"] for row in panel if row["bytes"] < fit.n_star_bytes)
        share = below / sum(row["calls"] for row in panel)
        title += on_page("below-n-star", share=share, n_star_bytes=fit.n_star_bytes)
    notes = []
    if fit is not None:
        notes.append(curve_words(fit, groups) if len(shown) > 1 else "")
    if any(group.upper_bound for group in groups):
        notes.append(on_page("open-dots"))
    if len(panel) > _MAX_SIZES:
        notes.append(on_page("most-sizes", most=_MAX_SIZES, sizes=len(panel)))
    if ceiling:
        notes.append(on_page("ceiling", ceiling=ceiling_words))
    return Figure(
        id=name,
        title=title,
        description=on_page("bandwidths", op=op, of_group=names.get(first["process_group"], "")),
        # One size has no axis to be drawn on.
        drawing=BusBandwidth(groups, fit, ceiling, ceiling_words) if len(shown) > 1 else None,
        table=DataTable.of(sorted(shown, key=lambda row: -(row["exposed_ns"] or 0)), _OF_SIZES)
        if len(shown) > 1
        else None,
        note=" ".join(filter(None, notes)),
    )


def _reaches(panel: list[Row], names: Mapping[str | None, str]) -> str:
    best = max(panel, key=lambda row: row["busbw"])
    return on_page("reaches", of_group=names.get(best["process_group"], ""), **best)


def _traffic(store: Store, run: str, names: Mapping[str | None, str]) -> DataTable:
    per_step = of_unit(store, run)["per_step"]
    found = rows(store, _TRAFFIC_SQL, [run])
    columns = {
        "operation": cell("op"),
        "exposed transfer, ms": cell("exposed_ns_per_step", numbers.milliseconds),
        "transfer, ms": cell("transfer_ns_per_step", numbers.milliseconds),
        f"on the wire, {per_step}": cell("wire_bytes_per_step", numbers.traffic),
        "size of one call": lambda row: _range(row["smallest_bytes"], row["largest_bytes"]),
        f"calls {per_step}": cell("calls_per_step", numbers.cell),
        "phase": cell("phase", lambda phase: phase or "–"),
        "ranks": lambda row: names.get(row["process_group"], numbers.cell(row["group_size"])),
        "type": cell("dtype", lambda dtype: dtype or "–"),
    }
    has_sizes = any(row["largest_bytes"] for row in found)
    return DataTable.of(found, columns, on_page("on-the-wire", has_sizes=has_sizes))


def _range(low: int | None, high: int | None) -> str:
    if low == high:
        return numbers.traffic(low)
    return f"{numbers.traffic(low)} to {numbers.traffic(high)}"


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
    """Bandwidth against size of one operation, with its curve and the device's ceiling."""
    first, best = panel[0], max(panel, key=lambda row: row["busbw"])
    fit = _fitted(store, run, first["op"], first["ranks"])
    title = on_page("reaches-in", **best)
    if fit is not None and fit.n_star_bytes:
        title += on_page("below-n-star", share=None, n_star_bytes=fit.n_star_bytes)
    groups = [CallGroup(row["bytes"], row["busbw"], 0, 0.0) for row in panel]
    notes = [curve_words(fit, groups)] if fit is not None else []
    ceiling, ceiling_words = _bench_ceiling(store, run, first["op"], first["ranks"])
    if ceiling:
        notes.append(on_page("ceiling", ceiling=ceiling_words))
    if any(row["both"] for row in panel):
        notes.append(on_page("in-place"))
    return Figure(
        id=name,
        title=title,
        description=on_page("bandwidths", op=first["op"], of_group=""),
        drawing=BusBandwidth(groups, fit, ceiling, ceiling_words),
        table=DataTable.of(
            panel,
            {
                "size of a call": cell("bytes", numbers.traffic),
                "bytes of a call": cell("bytes", numbers.count),
                "busbw, GB/s": cell("busbw", numbers.cell),
                "time, µs": cell("time_us", numbers.cell),
            },
        ),
        note=" ".join(notes),
    )


def _bench_ceiling(store: Store, run: str, op: str, ranks: int | None) -> tuple[float | None, str]:
    """What the data sheets of the benchmark's hardware allow."""
    found = rows(
        store,
        "SELECT DISTINCT limit_gbps, limit_by, device FROM bench_curve"
        " WHERE run = ? AND op = ? AND ranks IS NOT DISTINCT FROM ? AND limit_gbps IS NOT NULL",
        [run, op, ranks],
    )
    if len(found) != 1:
        return None, ""
    return found[0]["limit_gbps"], on_page("data-sheet", **found[0])


def curve_words(fit: Fit, groups: Sequence[CallGroup] = ()) -> str:
    """The terms, and how far the curve is more than a guess; ``groups`` are its points."""
    off = [
        max(group.busbw_gbps / drawn, drawn / group.busbw_gbps)
        for group in groups
        if group.busbw_gbps > 0 and (drawn := fit.busbw_gbps(group.size_bytes)) > 0
    ]
    worst = max(off, default=1.0)
    return on_page(
        "curve",
        latency_ns=fit.k * fit.alpha_ns,
        beta=significant(fit.beta_ns_per_byte),
        misses=worst if worst >= _MISSES else None,
    )


def _fitted(store: Store, run: str, op: str, size: int | None) -> Fit | None:
    """The curve fitted to ``op`` over ``size`` ranks, traced calls first; None without."""
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
    alpha, beta, k, m = itemgetter("alpha_ns", "beta_ns_per_byte", "k", "m")(row)
    return Fit(alpha, beta, k, m, factor, row["n_star_bytes"], row["largest_bytes"] or 0)


def _ceiling_of(store: Store, run: str, op: str, size: int | None) -> tuple[float | None, str]:
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
        return float(found[0]["best"]), on_page("best-in", tool=found[0]["tool"])
    devices = rows(
        store,
        "SELECT DISTINCT device_name, host FROM rank WHERE run = ? AND device_name IS NOT NULL",
        [run],
    )
    if len(devices) == 1 and devices[0]["host"] is not None:
        device = find_device(devices[0]["device_name"])
        if device is not None and device.link_gbps:
            return device.link_gbps, on_page("data-sheet", limit_by="links", device=device.name)
    return None, ""
