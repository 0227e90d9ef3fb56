"""Whom do the others wait for? Ranks by steps, drawn where ranks are the matter."""

from collections.abc import Collection, Mapping, Sequence

from advisor.findings import Finding
from advisor.messages import REASONS, on_page
from advisor.metrics.lateness.by_step import waited_for
from advisor.report import numbers
from advisor.report.charts.columns import MAX_COLUMNS
from advisor.report.data_table import DataTable, cell
from advisor.report.figures import Figure, HeatMap
from advisor.report.replayed import delays
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import late_together, of_unit, rows
from advisor.store.evidence import PER_PEER
from advisor.store.store import Store
from advisor.vocabulary.words import named_ranks

MOST_ROWS = 32
_FEWEST_ROWS = 3  # of two ranks the bars say as much
_MOST_LISTED = 16
_SQL = (
    f"SELECT *, {PER_PEER} AS of_peers FROM lateness WHERE run = ? AND process_group IS NULL"
    " ORDER BY wait_ns_per_step * of_peers DESC NULLS LAST, rank"
)


def is_about_ranks(finding: Finding | None, ranks_read: int, *, in_turn: bool) -> bool:
    """Whether who waits for whom is the matter: others for some ranks, or all for all in turn."""
    if finding is None or not finding.ranks:
        return False
    most = max(finding.claims, key=lambda kind: finding.claims[kind], default="")
    return most == "wait" and (in_turn or len(finding.ranks) < ranks_read)


def heat_map(
    store: Store, run: str, culprits: list[int], pauses: Collection[int] = ()
) -> Figure | None:
    """How long peers wait for each rank, by step; None with one step or two ranks, where nobody
    waited, or where others than the culprits are waited for most: who passes a delay on, as the
    next stage of a pipeline, would look like its origin.

    Who pauses behind the last call of a step is waited for in the next one: that stands in the step
    of ``pauses``, which the words name. With more ranks than :data:`MOST_ROWS` a row is several, of
    which it shows the most.
    """
    found = waited_for(store.con, run)
    for rank in set(culprits) & set(found):
        found[rank] = _in_step_of(pauses, found[rank])
    steps = sorted({step for own in found.values() for step in own})
    ranks = sorted(found)
    most = max((ns for own in found.values() for ns in own.values()), default=0.0)
    if len(ranks) < _FEWEST_ROWS or len(steps) < 2 or not most:
        return None
    if culprits and max(ranks, key=lambda rank: sum(found[rank].values())) not in culprits:
        return None
    each = -(-len(ranks) // MOST_ROWS)
    columns = -(-len(steps) // MAX_COLUMNS)
    groups = [ranks[start : start + each] for start in range(0, len(ranks), each)]
    spans = [steps[start : start + columns] for start in range(0, len(steps), columns)]
    cells = [
        [max(found[r].get(step, 0.0) for r in group for step in span) for span in spans]
        for group in groups
    ]
    return Figure(
        id="waited-for",
        title=on_page("waited-for", most_ns=most),
        description=on_page("grid-of-ranks"),
        drawing=HeatMap(
            rows=[named_ranks(set(group) & set(culprits) or group) for group in groups],
            columns=[str(span[0]) for span in spans],
            cells_ns=cells,
            full_ns=most,
            axis="step",
            strong=frozenset(
                index for index, group in enumerate(groups) if set(group) & set(culprits)
            ),
        ),
        note=on_page("row-of-ranks", each=each, pauses=bool(pauses)),
    )


def _in_step_of(pauses: Collection[int], waits_ns: Mapping[int, float]) -> dict[int, float]:
    """What is waited in the step after a pause, in the step of the pause."""
    moved = dict(waits_ns)
    for step in sorted(pauses):
        if step in moved and step + 1 in moved and step + 1 not in pauses:
            moved[step] += moved[step + 1]
            moved[step + 1] = 0.0
    return moved


def build(
    store: Store, run: str, findings: Sequence[Finding] = (), *, several: bool = False
) -> Section | None:
    """Who came last how often; None where nobody can be compared.

    A host that is late as a whole is named by those of its ranks that ``findings`` say delay it.
    """
    suffix, name, title = of_run("lateness", "Late ranks", run, several)
    who = rows(store, _SQL, [run])
    if len(who) < 2:
        return None
    late = [row for row in who if row["wait_ns_per_step"]]
    together = {rank: _delaying(own, findings) for rank, own in late_together(store, run).items()}
    systematic = [rank for row in who if row["systematic"]
                  for rank in together.get(row["rank"], [row["rank"]])]  # fmt: skip
    line = on_page("often-late", ranks=systematic)
    per_step = of_unit(store, run)["per_step"]
    columns = {
        "rank": cell("rank"),
        f"each peer waits {per_step}": lambda row: numbers.duration(
            row["of_peers"] * row["wait_ns_per_step"]
        ),
        "came last": cell("times_last", numbers.count),
        "calls": cell("calls", numbers.count),
        "reason": cell("reason", lambda reason: REASONS.get(reason or "", "–")),
    }
    rest = len(who) - min(len(late), _MOST_LISTED)
    figure = Figure(
        id=f"came-last{suffix}",
        title=line,
        table=DataTable.of(late[:_MOST_LISTED], columns, on_page("less-late", rest=rest))
        if late
        else None,
        note=on_page("own-delay"),
    )
    return Section(name, "Ranks", title, [figure], line)


def _delaying(host: list[int], findings: Sequence[Finding]) -> list[int]:
    found = {rank for item in findings if delays(item, host) for rank in item.ranks}
    return sorted(found) or host
