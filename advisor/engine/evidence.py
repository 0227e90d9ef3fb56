"""What stands beside a finding: the rule's tables, the row's facts, where in the trace to look."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.facts import Facts
from advisor.engine.group_names import group_name
from advisor.engine.plain import Room
from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox
from advisor.engine.savings_bounds import COLUMNS as SAVINGS
from advisor.findings import Evidence, Table, Window

_MAX_EVIDENCE_ROWS = 12
# Columns with a place of their own in the finding, or that say how the row is to be read.
_TYPED = {"ranks", "hosts", "links", "process_group", "worst_call", "worst_step", "severity"}
_NOT_FACTS = {*SAVINGS, *_TYPED, "is_option", "floor_ns", "unread_words", "is_counted", "counted"}

_OF_CALL = "(SELECT any_value(step) FROM collective WHERE call_id = $worst)"
_IDLEST = (
    "(SELECT step FROM rank_step GROUP BY step "
    f"ORDER BY sum(idle_ns) DESC, step IS DISTINCT FROM {_OF_CALL} LIMIT 1)"
)


def evidence_of(
    rule: Rule, sandbox: Sandbox, facts: Facts, known: Mapping[str, Any], row: Mapping[str, Any]
) -> Evidence:
    tables, room = [], Room()
    for query in rule.evidence:
        columns, rows = sandbox.select(query.sql, known)
        if not rows:
            continue
        shown = [[room.plain(value) for value in line] for line in rows[:_MAX_EVIDENCE_ROWS]]
        for place in (index for index, name in enumerate(columns) if name == "process_group"):
            names = {
                group: group_name(sandbox, facts, group)
                for group in {line[place] for line in shown}
            }
            for line in shown:
                line[place] = names[line[place]]
        note = query.note
        if len(rows) > len(shown):
            note = f"{note} First {len(shown)} of {len(rows)} rows.".strip()
        tables.append(Table(title=query.title, columns=columns, rows=shown, note=note))
    return Evidence(
        tables=tables,
        sql=rule.sql,
        window=_window(sandbox, row),
        facts={name: room.plain(value) for name, value in row.items() if name not in _NOT_FACTS},
    )


def _window(sandbox: Sandbox, row: Mapping[str, Any]) -> Window | None:
    """Around the worst call, with a third of its length on each side and no more than a step in
    all, of which its end is kept; else the worst step: the one in which devices idle most where
    they idle longer for the call than it is exposed."""
    culprit = row.get("culprit_rank")
    around = (row.get("idle_ns") or 0) <= (row.get("exposed_ns") or 0)
    if (worst := row.get("worst_call")) is not None and around:
        spans, margin = "collective p JOIN rank USING (rank) WHERE call_id = $worst", 3
    elif worst is not None:
        spans, margin = f"step p JOIN rank USING (rank) WHERE step = {_IDLEST}", 50
    elif (worst := row.get("worst_step")) is not None:
        spans, margin = "step p JOIN rank USING (rank) WHERE step = $worst", 50
    else:
        return None
    # Hosts' clocks differ by more than calls take: all on that of the culprit or the first rank.
    (found,) = sandbox.records(
        "SELECT arg_min(o, CASE rank WHEN $culprit THEN -1 ELSE rank END) AS own, "
        "min(start_ns + o) - own AS start_ns, max(end_ns + o) - own AS end_ns, "
        "any_value(step) AS step, list(DISTINCT rank ORDER BY rank) AS ranks, "
        f"any_value(step) IS NOT DISTINCT FROM {_OF_CALL} AS marked, "
        "any_value(long_ns) AS step_ns FROM (SELECT p.*, coalesce(clock_offset_ns, 0) AS o, "
        "(SELECT max(s.end_ns - s.start_ns) FROM step s WHERE s.step = p.step) AS long_ns "
        f"FROM {spans})",
        {"worst": worst, "culprit": culprit},
    )
    if found["start_ns"] is None:
        return None
    pad = max(1000, (found["end_ns"] - found["start_ns"]) // margin)
    start_ns, end_ns = found["start_ns"] - pad, found["end_ns"] + pad
    if margin == 3 and found["step_ns"]:
        end_ns = min(end_ns, max(start_ns + found["step_ns"], found["end_ns"]))
        start_ns = max(start_ns, end_ns - found["step_ns"])
    return Window(
        start_ns=start_ns,
        end_ns=end_ns,
        ranks=found["ranks"],
        step=found["step"],
        culprit_rank=culprit,
        call_ids=[int(worst)] if row.get("worst_call") is not None and found["marked"] else [],
    )
