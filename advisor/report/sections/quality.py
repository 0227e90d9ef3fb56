"""What was read, dropped, aligned and missing, and how to capture more next time."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import Any

from advisor.findings import FindingsReport, OutcomeKind, RunSummary
from advisor.messages import on_page
from advisor.metrics.models.speeds import Speeds
from advisor.report import lacking, numbers, summary
from advisor.report.data_table import DataTable, cell
from advisor.report.figures import Figure
from advisor.report.sections import size
from advisor.report.sections.section import Section, slug
from advisor.report.tables import Row, group_names, rows
from advisor.store.store import Store
from advisor.vocabulary.words import plural, ranks_text

_MAX_ROWS = 64
WHOLE_TRACE = "whole-trace"  # of ``RunSummary.step_source``: no steps are marked
_OF_FILES = frozenset({"file", "file-not-read", "file-of-other-format"})
"""Notes that the table of files says too."""


def build(
    report: FindingsReport, store: Store | None, counted: Mapping[str, Speeds | None]
) -> Section:
    """Always present; without a store it shows what findings.json says.

    ``counted`` is the arithmetic of each run.
    """
    tables: list[tuple[str, DataTable]] = [("Runs", _runs(report))]
    if store is not None:
        tables += _from_store(store, several=len(report.runs) > 1)
    several = len(report.runs) > 1
    failed = [o for o in report.outcomes if o.outcome is OutcomeKind.ERROR]
    passed = [o.rule for o in report.outcomes if o.outcome is OutcomeKind.PASSED]
    notes = [
        f"{run.run}: {note.text}" if several else note.text
        for run in report.runs
        for note in run.notes
        if store is None or note.code not in _OF_FILES
    ]
    caveats = summary.caveats(report)
    missing = _missing(report) + _no_peak(report, counted)
    lists: list[tuple[str, Sequence[tuple[str, Sequence[str]]]]] = [
        ("Notes", [(text, ()) for text in [*caveats, *notes]]),
        (
            on_page("missing"),
            [
                (how or on_page("no-way"),
                 [f"{rules}: {reason}" for rules, reason in lacks])
                for how, lacks in missing
            ],
        ),
        ("Rules that failed", [(f"{o.rule}: {o.reason}", ()) for o in failed]),
        ("Rules that passed", [(", ".join(dict.fromkeys(passed)), ())] if passed else []),
    ]  # fmt: skip
    return Section(
        id="data",
        nav="Data",
        title=on_page("read"),
        figures=[
            Figure(f"data-{slug(title.lower())}", title, table=table)
            for title, table in tables
            if table.rows
        ],
        line=f"{_count(report)}, {plural(len(caveats) + len(notes), 'note')}",
        lists=[(title, items) for title, items in lists if items],
    )


def _count(report: FindingsReport) -> str:
    """Ranks of one run; of several runs each one's, for ranks of two runs do not add up."""
    if not any(run.ranks_read for run in report.runs):
        return plural(sum(len(run.inputs) for run in report.runs), "file")
    ranks = {run.ranks_read for run in report.runs}
    if len(report.runs) == 1:
        return plural(max(ranks), "rank")
    runs = plural(len(report.runs), "run")
    return f"{runs} of {plural(max(ranks), 'rank')}" if len(ranks) == 1 else runs


def one_line_quality(report: FindingsReport) -> str:
    """The data quality in one sentence, for the top of the page."""
    parts = []
    for run in report.runs:
        if not run.ranks_read:
            text = on_page("no-trace", files=len(run.inputs))
        else:
            values = {
                **dict(run),
                "whole": run.step_source == WHOLE_TRACE,
                "served": any(note.code == "inference" for note in run.caveats),
                "source": summary.source(report, run.run),
            }
            text = on_page("quality", **values)
        parts.append(f"{run.run}: {text}" if len(report.runs) > 1 else text)
    return "; ".join(parts)


def _missing(report: FindingsReport) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each way to capture more, with (rules, what they lack) that it would enable."""
    ways: dict[str, list[tuple[str, str]]] = {}
    for reason, how, rules in lacking.missing_evidence(report):
        ways.setdefault(how, []).append((", ".join(rules), reason or "evidence missing"))
    return sorted(ways.items(), key=lambda way: (not way[0], -len(way[1])))


def _no_peak(
    report: FindingsReport, counted: Mapping[str, Speeds | None]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the count of arithmetic lacks, where steps were recorded."""
    ways: dict[str, list[tuple[str, str]]] = {}
    for run in report.runs:
        speeds = counted.get(run.run)
        for how, what in size.missing(speeds) if speeds and run.steps_complete else []:
            entry = ("arithmetic", what)
            if entry not in ways.setdefault(how, []):
                ways[how].append(entry)
    return list(ways.items())


def _runs(report: FindingsReport) -> DataTable:
    """What was read of each run; of a whole trace taken as one there are no steps to count."""
    read = [run for run in report.runs if run.ranks_read]
    marked = [run for run in read if run.step_source != WHOLE_TRACE]
    time = "whole trace"
    if marked:
        time = "median step" if len(marked) == len(read) else "median step or whole trace"
    counted: dict[str, Callable[[RunSummary], object]] = {
        "steps": lambda run: run.steps_complete if run in marked else "–",
        "partial steps": lambda run: run.steps_partial if run in marked else "–",
    }
    columns: dict[str, Callable[[RunSummary], object]] = {
        "run": lambda run: run.run,
        "ranks read": lambda run: run.ranks_read,
        "world size": lambda run: numbers.cell(run.world_size),
        **(counted if marked else {}),
        time: lambda run: numbers.duration(run.step_ns_median),
        "steps from": lambda run: run.step_source if run in marked else on_page("no-marks"),
        "events": lambda run: numbers.count(run.events_read),
        "dropped": lambda run: numbers.count(run.events_dropped),
    }
    return DataTable.of(read, columns)


def _from_store(store: Store, *, several: bool) -> list[tuple[str, DataTable]]:
    sources = rows(
        store,
        "SELECT path, format, rank, bytes, events_read, events_dropped, drop_reasons, note"
        " FROM source ORDER BY run, source_id",
    )
    if len(sources) > _MAX_ROWS:  # what there is to say of files is not cut off
        sources.sort(key=lambda row: not row["note"])
    folder = _folder([row["path"] for row in sources])
    dropped = cell("events_dropped", numbers.count)
    files = DataTable.of(
        sources[:_MAX_ROWS],
        {
            "file": cell("path", lambda path: path.removeprefix(folder)),
            "format": cell("format"),
            "rank": cell("rank", numbers.cell),
            "size": cell("bytes", numbers.traffic),
            "records": cell("events_read", numbers.count),
            "dropped": lambda row: dropped(row) + _reasons(row["drop_reasons"]),
            "note": cell("note", lambda note: note or ""),
        },
        note=" ".join(filter(None, (f"In {folder}." if folder else "", _first(len(sources))))),
    )
    ranks = rows(
        store,
        "SELECT r.*, s.source AS step_source, s.steps FROM rank r LEFT JOIN"
        " (SELECT run, rank, any_value(source) AS source, count(*) AS steps FROM step"
        " GROUP BY run, rank) s USING (run, rank) ORDER BY run, rank",
    )
    listed = _alike(ranks)
    aligned = any(row["clock_residual_ns"] is not None for row in ranks)
    of_run = {"run": cell("run")} if several else {}
    clocks = DataTable.of(
        listed[:_MAX_ROWS],
        of_run | {"rank": cell("ranks", ranks_text)} | _CLOCKS,
        note=f"{_first(len(listed))} {on_page('aligned', aligned=aligned)}".strip(),
    )
    names = {name: group_names(store, name) for name in {row["run"] for row in ranks}}
    unmatched = rows(
        store,
        "SELECT run, process_group, rank, calls, reason FROM unmatched"
        " ORDER BY calls DESC LIMIT 40",
    )
    return [
        ("Files", files),
        ("Ranks and clocks", clocks),
        (
            on_page("unmatched"),
            DataTable.of(
                unmatched,
                {
                    **of_run,
                    "calls over": lambda r: names.get(r["run"], {}).get(r["process_group"]) or "–",
                    "rank": cell("rank"),
                    "calls": cell("calls", numbers.count),
                    "reason": cell("reason"),
                },
            ),
        ),
    ]


_CLOCKS = {
    "host": cell("host", lambda host: host or "–"),
    "device": cell("device_name", lambda name: name or "–"),
    "backend": cell("backend", lambda name: name or "–"),
    "steps": cell("steps", numbers.cell),
    "clock offset": cell("clock_offset_ns", numbers.duration),
    "drift, ppm": cell("clock_drift_ppm", numbers.cell),
    "clock residual": cell("clock_residual_ns", numbers.duration),
    "complete file": cell("complete", numbers.cell),
}


def _alike(ranks: Sequence[Row]) -> list[Row]:
    """The first of neighbours of which the same is said, with all ``ranks`` that it is said of."""
    groups = groupby(ranks, key=lambda row: (row["run"], *(say(row) for say in _CLOCKS.values())))
    found = ([*own] for _, own in groups)
    return [{**own[0], "ranks": [row["rank"] for row in own]} for own in found]


def _folder(paths: Sequence[str]) -> str:
    """The folder that holds them all, with its slash; '' of a single file."""
    parents = [PurePath(path).parent for path in paths]
    if len(paths) < 2 or len({parent.is_absolute() for parent in parents}) > 1:
        return ""
    common = os.path.commonpath(parents)
    return f"{common}/" if common.strip("/") else ""


def _reasons(text: str | None) -> str:
    try:
        reasons: Any = json.loads(text or "{}")
    except ValueError:
        return ""
    if not isinstance(reasons, dict) or not reasons:
        return ""
    return " (" + ", ".join(f"{key}: {value}" for key, value in reasons.items()) + ")"


def _first(total: int) -> str:
    return on_page("first-rows", most=_MAX_ROWS, rows=total)
