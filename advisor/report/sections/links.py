"""Which link is slow? Bandwidth between ranks (hosts, when there are many), and NCCL's rings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.messages import on_page
from advisor.metrics.rings.shapes import Shape, hosts, shapes
from advisor.report import numbers
from advisor.report.clean import one_line
from advisor.report.data_table import DataTable, cell
from advisor.report.figures import Figure, Matrix
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import Row, group_names, rows
from advisor.store.store import Store
from advisor.vocabulary.words import between, ranks_text, short

MOST = 16
"""Ranks or hosts of the picture."""
_MOST_ROWS = 64
_MOST_HOSTS = 8
# What shows a place where no peer does; others are named as readers know them.
_SEEN_BY = {"stagger": "the order of ends", "stalls": "TCP's timeouts"}
_SQL = (
    "SELECT * FROM link_excess WHERE run = ? AND kind NOT IN ('network', 'unsteady')"
    " ORDER BY excess_ns_per_step DESC NULLS LAST, src, dst"
)


def build(store: Store, run: str, *, several: bool = False) -> Section | None:
    """The section of one run; None where neither links nor a fabric are known."""
    suffix, name, title = of_run("links", "Links", run, several)
    host = hosts(store.con, run)
    compared = _compared(store, run, host, suffix)
    figures = [compared] if compared is not None else []
    figures += [_shapes(*found, host, suffix) for found in shapes(store.con, run)]
    if not figures:
        return None
    return Section(name, "Links", title, figures, figures[0].title)


def _compared(store: Store, run: str, host: dict[int, str], suffix: str) -> Figure | None:
    """The matrix of measured edges; a table where only hosts, ranks or groups were compared."""
    found = rows(store, _SQL, [run])
    if not found:
        return None
    edges = [
        row
        for row in found
        if row["kind"] == "edge" and row["measured_gbps"] and row["expected_gbps"]
    ]
    names, by_host, left_out = _locations(edges, host)
    groups = group_names(store, run)
    picture = Figure(
        id=f"bandwidth{suffix}",
        title=_title(found, groups),
        description=on_page("locations"),
        table=_table(found, groups),
    )
    if len(names) < 2:
        return picture
    what = "hosts" if by_host else "ranks"
    picture.description = on_page("grid-of-links", what=what)
    picture.drawing = _matrix(edges, names, host, by_host=by_host)
    picture.legend = [("cell-ok", "as expected"), ("late1", "slower"), ("late4", "much slower")]
    picture.note = on_page("note-of-links", by_host=by_host, shown=len(names), left_out=left_out)
    return picture


def _locations(edges: list[Row], host: dict[int, str]) -> tuple[list[Any], bool, int]:
    """Ranks while they fit, else hosts, worst first when even those do not; how many are left."""
    ranks = sorted({row["src"] for row in edges} | {row["dst"] for row in edges})
    if len(ranks) <= MOST:
        return ranks, False, 0
    by_host = set(ranks) <= set(host) and len({host[rank] for rank in ranks}) > 1
    # Edges come worst first, and so do the locations they name.
    worst_first = list(
        dict.fromkeys(
            host[rank] if by_host else rank for row in edges for rank in (row["src"], row["dst"])
        )
    )
    return sorted(worst_first[:MOST]), by_host, len(worst_first) - len(worst_first[:MOST])


def _matrix(edges: list[Row], names: list[Any], host: dict[int, str], *, by_host: bool) -> Matrix:
    at = {name: index for index, name in enumerate(names)}
    ratio: list[list[float | None]] = [[None] * len(names) for _ in names]
    text = [[""] * len(names) for _ in names]
    for row in edges:
        src, dst = ((host[row[end]] if by_host else row[end]) for end in ("src", "dst"))
        if src not in at or dst not in at:
            continue
        i, j = at[src], at[dst]
        share = row["measured_gbps"] / row["expected_gbps"]
        known = ratio[i][j]
        if known is None or share < known:
            ratio[i][j] = share
            text[i][j] = f"{_of_expected(row)} GB/s"
    shown = [
        one_line(
            name if by_host else f"{name} · {host[name]}" if host.get(name) else f"rank {name}"
        )
        for name in names
    ]
    return Matrix(shown, ratio, text)


def _title(found: list[Row], names: Mapping[str | None, str]) -> str:
    """The location that lies most below its expectation for sure; its cost is the finding's."""
    sure = next((row for row in found if (row["excess_low_ns"] or 0) > 0), None)
    if sure is None:
        return on_page("no-slow-link")
    return on_page("slow-link", where=_location(sure, names), **sure)


def _of_expected(row: Row) -> str:
    return " of ".join(short(row[f"{what}_gbps"]) for what in ("measured", "expected"))


def _expected(row: Row) -> str:
    """GB/s without the delay: from the least to the most share of the calls that it may be; none
    where nothing recorded moves as much."""
    if row["expected_gbps"] is None:
        return numbers.cell(None)
    share = json.loads(row["evidence"] or "{}").get("share", [])
    ends = [
        row["measured_gbps"] / (1 - part) for part in share if row["measured_gbps"] and part < 1
    ]
    return between(min(ends), max(ends)) if ends else numbers.cell(row["expected_gbps"])


def _location(row: Row, names: Mapping[str | None, str]) -> str:
    words = json.loads(row["evidence"] or "{}").get("location")
    if words and row["kind"] not in ("edge", "rank", "host", "group"):
        words = one_line(str(words))
        return words[:1].upper() + words[1:]
    values = {"candidates": json.loads(row["candidates"] or "[]"), **row}
    return on_page("link-of", of_group=names.get(row["process_group"], ""), **values)


def _table(found: list[Row], names: Mapping[str | None, str]) -> DataTable:
    """What lies below its expectation, worst first; those that do not are only counted."""
    worse = [row for row in found if (row["excess_ns_per_step"] or 0) > 0][:_MOST_ROWS]
    rest = len(found) - len(worse)
    columns = {
        "location": lambda row: _location(row, names),
        "measured, GB/s": cell("measured_gbps", numbers.cell),
        "expected, GB/s": _expected,
        "expected from": cell("expected_from", lambda name: _SEEN_BY.get(name, name) or "–"),
        "group": cell("process_group", lambda name: names.get(name, name) or "–"),
        "calls": cell("calls", numbers.count),
    }
    return DataTable.of(worse, columns, on_page("other-links", rest=rest))


def _shapes(
    kind: str, communicator: str, found: list[Shape], host: Mapping[int, str], suffix: str
) -> Figure:
    """What NCCL built, channel by channel."""
    size = max(len(shape.order) for shape in found)
    channels = sum(len(shape.channels) for shape in found)
    return Figure(
        id=f"{kind}{suffix}",
        title=on_page("nccl-built", kind=kind, shapes=len(found), channels=channels),
        table=DataTable(
            ["channels", "order" if kind == "ring" else "child ← parent"],
            [[ranks_text(shape.channels), _order(shape)] for shape in found],
        ),
        note=on_page(
            "communicator",
            name=communicator,
            ranks=size,
            hosts=_by_host(found[0].order, host),
            most=_MOST_HOSTS,
        ),
    )


def _order(shape: Shape) -> str:
    if not shape.parents:
        return " → ".join(str(rank) for rank in (*shape.order, shape.order[0]))
    return ", ".join(
        f"{rank} ← {up}" for rank in shape.order if (up := shape.parents[rank]) is not None
    )


def _by_host(ranks: Sequence[int], host: Mapping[int, str]) -> list[str]:
    by_host: dict[str, list[int]] = {}
    for rank in sorted(ranks) if host else ():
        by_host.setdefault(host.get(rank, "unknown host"), []).append(rank)
    return [f"{name}: {ranks_text(members)}" for name, members in by_host.items()]
