"""Which link is slow? Bandwidth between ranks, or between hosts when there are many ranks."""

from __future__ import annotations

import json
from typing import Any

from advisor.report import numbers
from advisor.report.charts.heatmap import shortfall_matrix
from advisor.report.charts.scene import DataTable, Figure
from advisor.report.clean import one_line
from advisor.report.link_costs import link_costs
from advisor.report.sections.fabric import hosts
from advisor.report.tables import Row
from advisor.store.store import Store

MAX_PLACES = 16


def figure(store: Store, run: str, suffix: str = "") -> Figure | None:
    """The matrix of measured edges; a table where only hosts, ranks or groups were compared."""
    found = link_costs(store, run)
    if not found:
        return None
    edges = [
        row
        for row in found
        if row["kind"] == "edge" and row["measured_gbps"] and row["expected_gbps"]
    ]
    host = hosts(store, run)
    places, by_host, left_out = _places(edges, host)
    picture = Figure(
        id=f"links{suffix}",
        title=link_title(found),
        description="Places compared for excess transfer time.",
        scenes=[],
        table=excess_table(found),
    )
    if len(places) < 2:
        return picture
    picture.description = (
        f"Grid of sending by receiving {'hosts' if by_host else 'ranks'}: measured bandwidth as a "
        "share of the expected."
    )
    picture.scenes = [_grid(edges, places, host, by_host=by_host)]
    picture.legend = [("cell-ok", "as expected"), ("late1", "slower"), ("late4", "much slower")]
    worst = " Between two hosts the worst pair of ranks counts." if by_host else ""
    first = f" The {len(places)} of {len(places) + left_out} that lose most." if left_out else ""
    picture.note = (
        "Cells show the measured GB/s; the table has what was expected and from where."
        f"{worst}{first}"
    )
    return picture


def _places(edges: list[Row], host: dict[int, str]) -> tuple[list[Any], bool, int]:
    """Ranks while they fit, else hosts, worst first when even those do not; how many are left."""
    ranks = sorted({row["src"] for row in edges} | {row["dst"] for row in edges})
    if len(ranks) <= MAX_PLACES:
        return ranks, False, 0
    by_host = set(ranks) <= set(host) and len({host[rank] for rank in ranks}) > 1
    # Edges come worst first, and so do the places they name.
    worst_first = list(
        dict.fromkeys(
            host[rank] if by_host else rank for row in edges for rank in (row["src"], row["dst"])
        )
    )
    shown = worst_first[:MAX_PLACES]
    return sorted(shown), by_host, len(worst_first) - len(shown)


def _grid(edges: list[Row], places: list[Any], host: dict[int, str], *, by_host: bool) -> Any:
    at = {place: index for index, place in enumerate(places)}
    ratio: list[list[float | None]] = [[None] * len(places) for _ in places]
    text = [[""] * len(places) for _ in places]
    for row in edges:
        src, dst = ((host[row[end]] if by_host else row[end]) for end in ("src", "dst"))
        if src not in at or dst not in at:
            continue
        i, j = at[src], at[dst]
        share = row["measured_gbps"] / row["expected_gbps"]
        known = ratio[i][j]
        if known is None or share < known:
            ratio[i][j] = share
            text[i][j] = f"{numbers.significant(row['measured_gbps'])} of {_expected(row)} GB/s"
    names = [
        one_line(
            place if by_host else f"{place} · {host[place]}" if host.get(place) else f"rank {place}"
        )
        for place in places
    ]
    return shortfall_matrix(names, ratio, text)


def link_title(found: list[Row]) -> str:
    """The worst place whose loss is sure, in words."""
    sure = [row for row in found if (row["excess_low_ns"] or 0) > 0]
    if not sure:
        return "No link is measurably slower than its peers"
    worst = sure[0]
    title = f"{_place(worst)} costs {numbers.duration(worst['excess_ns_per_step'])} per step"
    if worst["measured_gbps"] and worst["expected_gbps"]:
        title += (
            f": {numbers.bandwidth(worst['measured_gbps'])} where "
            f"{_expected(worst)} GB/s is expected"
        )
    return title


def _expected(row: Row) -> str:
    """The expected bandwidth, GB/s; its range where only the order of ranks' ends tells it.

    The evidence then holds low, middle and high of the part of a call's time that is excess.
    """
    measured, share = row["measured_gbps"], json.loads(row["evidence"] or "{}").get("share")
    if row["expected_from"] != "stagger" or measured is None or not share or share[-1] >= 1:
        return numbers.cell(row["expected_gbps"])
    low, high = (numbers.significant(measured / (1 - part)) for part in (share[0], share[-1]))
    return f"{low} to {high}"


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


def excess_table(found: list[Row]) -> DataTable:
    """All places compared, worst first."""
    return DataTable(
        ["place", "group", "calls", "measured, GB/s", "expected, GB/s", "expected from",
         "costs per step", "interval", "p"],
        [
            [
                _place(row),
                row["process_group"] or "–",
                numbers.count(row["calls"]),
                numbers.cell(row["measured_gbps"]),
                _expected(row),
                row["expected_from"] or "–",
                numbers.duration(row["excess_ns_per_step"]),
                numbers.interval(row["excess_low_ns"], row["excess_high_ns"]),
                numbers.cell(row["p_value"]),
            ]
            for row in found[:64]
        ],
        note=f"The 64 worst of {len(found)}." if len(found) > 64 else "",
    )  # fmt: skip
