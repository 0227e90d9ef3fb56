"""What a benchmark (nccl-tests, a probe) measured of collectives: a panel per operation."""

from __future__ import annotations

from advisor.messages import on_page
from advisor.report import numbers
from advisor.report.data_table import DataTable, cell
from advisor.report.figures import BusBandwidth, CallGroup, Figure
from advisor.report.sections.collective_limits import curve_words, fitted
from advisor.report.tables import Row, rows
from advisor.store.store import Store


def benchmarks(store: Store, run: str, known: set[tuple[str, int | None]]) -> list[list[Row]]:
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


def bench_panel(store: Store, run: str, panel: list[Row], name: str) -> Figure:
    """Bandwidth against size of one operation, with its curve and the device's ceiling."""
    first, best = panel[0], max(panel, key=lambda row: row["busbw"])
    fit = fitted(store, run, first["op"], first["ranks"])
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
