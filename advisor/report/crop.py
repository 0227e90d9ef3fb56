"""The stretch of timeline that shows a finding, folded in SQL until it is few enough to draw."""

from advisor.findings import Finding, Window
from advisor.messages import on_page
from advisor.report import numbers
from advisor.report.charts.timeline import MAX_MARKS
from advisor.report.clean import one_line
from advisor.report.figures import Figure, RankLane, Span, Timeline, legend_for
from advisor.report.tables import Row, rows
from advisor.store.store import Store

MAX_LANES = 4

# Communication is cut where computing begins and ends (`cover`): what lies under it is hidden.
# Spans closer than `tolerance` and alike become one. Times are ns from the crop's start, each rank
# cropped on its own clock (`crop` holds the window of every rank on that rank's clock).
_SQL = """
WITH crop AS (
  SELECT unnest(?::INTEGER[]) AS rank, unnest(?::BIGINT[]) AS s, unnest(?::BIGINT[]) AS e),
call AS (
  SELECT c.rank, c.start_ns, c.end_ns, c.op, c.bytes, c.call_id, crop.s, crop.e,
    CASE WHEN c.wait_ns BETWEEN 0 AND c.end_ns - c.start_ns THEN c.wait_ns END AS wait_ns,
    list_contains(?::BIGINT[], c.call_id) AS marked
  FROM collective c JOIN crop USING (rank)
  WHERE c.run = ? AND c.start_ns < crop.e AND c.end_ns > crop.s),
span AS (
  SELECT a.rank, a.kind, a.start_ns AS b, a.end_ns AS f, s, e, NULL AS op, NULL AS bytes,
    false AS marked
  FROM activity a JOIN crop USING (rank)
  WHERE a.run = ? AND a.start_ns < crop.e AND a.end_ns > crop.s
    AND a.kind <> 'sync' -- a device that waits is idle
    AND (a.kind <> 'comm' OR a.rank NOT IN (SELECT rank FROM call))
  UNION ALL
  SELECT rank, 'wait', start_ns, start_ns + wait_ns, s, e, op, bytes, marked
  FROM call WHERE wait_ns > 0
  UNION ALL
  SELECT rank, CASE WHEN wait_ns IS NULL THEN 'comm' ELSE 'transfer' END,
    start_ns + coalesce(wait_ns, 0), end_ns, s, e, op, bytes, marked FROM call),
computing AS (
  SELECT *, max(f) OVER (PARTITION BY rank ORDER BY b, f
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until
  FROM (SELECT rank, s AS b, s AS f, e FROM crop UNION ALL
    SELECT rank, greatest(b, s), f, e FROM span WHERE kind = 'compute')),
busy AS (
  SELECT rank, min(b) AS b, max(f) AS f, e
  FROM (SELECT *, sum(CASE WHEN b > until THEN 1 ELSE 0 END) OVER (PARTITION BY rank
    ORDER BY b, f ROWS UNBOUNDED PRECEDING) AS number FROM computing)
  GROUP BY rank, e, number),
cover AS (
  SELECT rank, true AS hidden, b, f FROM busy UNION ALL
  SELECT rank, false, f, lead(b, 1, e) OVER (PARTITION BY rank ORDER BY b) FROM busy),
part AS (
  SELECT * FROM span WHERE kind NOT IN ('comm', 'transfer') UNION ALL
  SELECT rank, CASE WHEN hidden THEN 'hidden-comm' ELSE kind END, greatest(span.b, cover.b),
    least(span.f, cover.f), s, e, op, bytes, marked
  FROM span JOIN cover USING (rank)
  WHERE kind IN ('comm', 'transfer') AND span.b < cover.f AND span.f > cover.b),
clipped AS (
  SELECT rank, kind, op, bytes, marked, greatest(b, s) - s AS b, least(f, e) - s AS f FROM part
  WHERE least(f, e) > greatest(b, s)),
reached AS (
  SELECT *, max(f) OVER (PARTITION BY rank, kind, marked ORDER BY b, f
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until FROM clipped),
numbered AS (
  SELECT *, greatest(0, f - greatest(b, coalesce(until, b))) AS filled,
    CASE WHEN b > ? + until THEN 1 ELSE 0 END AS starts FROM reached),
island AS (
  SELECT *, sum(starts) OVER (PARTITION BY rank, kind, marked ORDER BY b, f
    ROWS UNBOUNDED PRECEDING) AS number FROM numbered)
SELECT rank, kind, marked, min(b) AS b, max(f) AS f, count(*) AS n,
  CASE any_value(op) WHEN 'other' THEN 'call' ELSE any_value(op) END AS op, -- of unnamed kind
  any_value(bytes) AS bytes, count(DISTINCT op) AS ops, sum(filled) / (max(f) - min(b)) AS filled
FROM island GROUP BY rank, kind, marked, number ORDER BY rank, b, kind, marked
"""


def figure(
    store: Store, finding: Finding, most_marks: int = MAX_MARKS, *, explains: bool = True
) -> Figure | None:
    """The finding's window as lanes of its ranks, the culprit's first.

    None without a window or activity in it. What is shorter is folded until ``most_marks`` do.
    ``explains``: its note says how to read such a picture, which is said once on a page.
    """
    window = finding.evidence.window
    if window is None or window.end_ns <= window.start_ns:
        return None
    offsets = clock_offsets(store, finding.run)
    ranks = _ranks_to_show(window, sorted(offsets))
    if not ranks:
        return None
    found = _spans(store, finding.run, window, ranks, offsets, most_marks)
    if not found:
        return None
    lanes = _lanes(found, ranks, window)
    length = window.end_ns - window.start_ns
    from_ns, since, whole = _origin(store, finding.run, window, ranks[0], offsets)
    kinds = [row["kind"] for row in found]
    marked = next((row for row in found if row["marked"] and row["op"]), None) or {}
    return Figure(
        id=f"timeline-{finding.id}",
        title=on_page("shows-most", length_ns=length, step=window.step, whole=whole),
        description=on_page("timeline", length_ns=length, ranks=ranks, culprit=window.culprit_rank),
        drawing=Timeline(lanes, length, from_ns, since),
        legend=legend_for(kinds),
        note=on_page(
            "note-of-timeline",
            aligned=explains and any(offsets.values()),
            low=explains and any(span.is_low for lane in lanes for span in lane.spans),
            op=one_line(marked.get("op") or ""),
            bytes=marked.get("bytes"),
        ),
    )


def aligned_window(window: Window, rank: int, offsets: dict[int, int]) -> tuple[int, int]:
    """The window on ``rank``'s own clock; the window itself is on its culprit's or first rank's."""
    reference = window.culprit_rank
    if reference is None and window.ranks:
        reference = window.ranks[0]
    shift = offsets.get(reference, 0) if reference is not None else 0
    shift -= offsets.get(rank, 0)
    return window.start_ns + shift, window.end_ns + shift


def clock_offsets(store: Store, run: str) -> dict[int, int]:
    """What to add to each rank's times (ns) to align them; 0 where it was not estimated."""
    found = rows(
        store, "SELECT rank, coalesce(clock_offset_ns, 0) AS o FROM rank WHERE run = ?", [run]
    )
    return {row["rank"]: row["o"] for row in found}


def _spans(
    store: Store,
    run: str,
    window: Window,
    ranks: list[int],
    offsets: dict[int, int],
    most_marks: int,
) -> list[Row]:
    starts, ends = zip(*(aligned_window(window, rank, offsets) for rank in ranks), strict=True)
    tolerance = (window.end_ns - window.start_ns) // 1000
    found: list[Row] = []
    while tolerance < window.end_ns - window.start_ns:
        given = [ranks, list(starts), list(ends), window.call_ids, run, run, tolerance]
        found = rows(store, _SQL, given)
        if len(found) <= most_marks:
            break
        tolerance = max(2 * tolerance, 1)
    return found[:most_marks]


def _lanes(found: list[Row], ranks: list[int], window: Window) -> list[RankLane]:
    lanes = {rank: RankLane(rank, culprit=rank == window.culprit_rank) for rank in ranks}
    for row in found:
        label = ""
        if row["op"]:
            label = one_line(row["op"]) if row["ops"] == 1 else "collectives"
            if row["n"] > 1:
                label += f" ×{row['n']}"
            elif row["bytes"]:
                label += f" {numbers.traffic(row['bytes'])}"
        guilty = window.culprit_rank is None or row["rank"] == window.culprit_rank
        lanes[row["rank"]].spans.append(
            Span(
                row["kind"],
                row["b"],
                row["f"],
                label,
                culprit=bool(row["marked"] and guilty),
                folded=row["n"] > 1,
                filled=float(row["filled"]),
            )
        )
    return list(lanes.values())


def _ranks_to_show(window: Window, known: list[int]) -> list[int]:
    wanted = [rank for rank in (window.ranks or known) if rank in known]
    culprit = window.culprit_rank
    return sorted(wanted, key=lambda rank: rank != culprit)[:MAX_LANES]


def _origin(
    store: Store, run: str, window: Window, rank: int, offsets: dict[int, int]
) -> tuple[float, str, bool]:
    """Where the crop begins, in words from what, and whether it holds the step of every rank."""
    if window.step is not None:
        found = rows(
            store,
            "SELECT min(s.start_ns + o) AS first, max(s.end_ns + o) AS last FROM step s JOIN"
            " (SELECT run, rank, coalesce(clock_offset_ns, 0) AS o FROM rank) r USING (run, rank)"
            " WHERE run = ? AND step = ?",
            [run, window.step],
        )
        if found and found[0]["first"] is not None:
            start, _ = aligned_window(window, rank, offsets)
            from_ns = start + offsets.get(rank, 0) - found[0]["first"]
            ends_ns = found[0]["first"] + from_ns + window.end_ns - window.start_ns
            whole = from_ns <= 0 and ends_ns >= found[0]["last"]
            return from_ns, on_page("since", step=window.step), whole
    return 0.0, on_page("since", step=None), False
