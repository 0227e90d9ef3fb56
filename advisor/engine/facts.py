"""Turns the tables of a run into what every rule and the verdict share: times, noise, summary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from advisor.engine.sandbox import Sandbox
from advisor.engine.text import duration, named_ranks, ranks_text
from advisor.findings import RunSummary
from advisor.store import Store

_NOT_READ = "not a format that is read"  # as advisor.ingest.unknown has it, which loads readers
_UNREAD = {"refused", "unreadable"}
# Recordings of ranks, with steps: the rows of the ranks say what they lost.
_TOLD_BY_RANK = {"kineto", "op-table", "nsys"}


@dataclass(frozen=True)
class Facts:
    """The run at a glance (view ``facts``); times in ns. None where it cannot be told."""

    ranks_read: int
    world_size: int | None
    hosts: int
    timeline: str | None
    backend: str | None
    residual_ns: int
    steps: int
    step_ns: int | None
    noise_ns: int | None

    @property
    def all_ranks(self) -> bool:
        """Every rank of the job was recorded, as far as the recordings say."""
        return self.world_size is not None and self.ranks_read >= self.world_size


def read_facts(sandbox: Sandbox) -> Facts:
    """The one row of the view ``facts``."""
    (row,) = sandbox.records("SELECT * FROM facts")
    return Facts(**row)


def ranks_not_read(sandbox: Sandbox, facts: Facts) -> list[int]:
    """Numbers of the job's ranks without a recording; none where its size is not known."""
    read = {row["rank"] for row in sandbox.records("SELECT rank FROM rank")}
    return [rank for rank in range(facts.world_size or 0) if rank not in read] if read else []


def summarise(store: Store, sandbox: Sandbox, facts: Facts) -> RunSummary:
    """What was read, which steps were used and what a reader must know about the inputs."""
    run = sandbox.run
    inputs = store.con.execute(
        "SELECT path, note, format, coalesce(events_dropped, 0), drop_reasons FROM source "
        "WHERE run = ? ORDER BY source_id",
        [run],
    ).fetchall()
    (read, dropped) = store.con.execute(
        "SELECT coalesce(sum(events_read), 0), coalesce(sum(events_dropped), 0) "
        "FROM rank WHERE run = ?",
        [run],
    ).fetchone() or (0, 0)
    steps = sandbox.records("SELECT step, complete, source FROM all_step ORDER BY step")
    warm_up = [row["step"] for row in sandbox.records("SELECT step FROM warm_up_step ORDER BY 1")]
    notes = [note for row in inputs if (note := _file_note(*row)) is not None]
    if warm_up:
        notes.append(
            f"step {ranks_text(warm_up)} took over 1.5 times the median and counts as warm-up"
        )
    notes += [
        f"step {row['step']} took {row['times']:.0f} times the median and is left out of all "
        "figures per step"
        for row in sandbox.records("SELECT step, times FROM odd_step ORDER BY step LIMIT 3")
    ]
    notes += _notes(sandbox, facts)
    return RunSummary(
        run=run,
        ranks_read=facts.ranks_read,
        world_size=facts.world_size,
        steps_complete=sum(bool(row["complete"]) for row in steps),
        steps_partial=sum(not row["complete"] for row in steps),
        step_ns_median=facts.step_ns,
        step_source=steps[0]["source"] if steps else "none",
        events_read=int(read),
        events_dropped=int(dropped),
        inputs=[path for path, *_ in inputs],
        recordings=[path for path, _, form, *_ in inputs if form in _TOLD_BY_RANK],
        notes=notes,
    )


def _file_note(
    path: str, note: str | None, form: str, dropped: int, reasons: str | None
) -> str | None:
    """What a reader must know about one file; it begins with "file" where something is missing."""
    refused = form == "unknown" and note not in (None, _NOT_READ)
    if refused or _UNREAD & set(_counts(reasons)):
        return f"file {path} was not read: {note}"
    if dropped and form not in _TOLD_BY_RANK:
        lost = f"file {path} lost records: {_reasons(reasons)}"
        return f"{lost}; {note}" if note else lost
    if note and form == "nsys" and (dropped or "were not read" in note):
        return f"file {path}: {note}"
    return f"{path}: {note}" if note else None


def _notes(sandbox: Sandbox, facts: Facts) -> list[str]:
    notes = []
    if facts.world_size and facts.ranks_read < facts.world_size:
        missing = named_ranks(ranks_not_read(sandbox, facts))
        notes.append(
            f"{facts.ranks_read} of {facts.world_size} ranks were given, {missing} not: "
            "what the others did is not known"
        )
    incomplete = [
        row["rank"]
        for row in sandbox.records("SELECT rank FROM rank WHERE complete = false ORDER BY rank")
    ]
    if incomplete:
        notes.append(f"the recording of rank {ranks_text(incomplete)} is cut or damaged")
    dropped = sandbox.records(
        "SELECT rank, drop_reasons FROM rank WHERE events_dropped > 0 ORDER BY rank LIMIT 8"
    )
    notes += [f"rank {row['rank']} lost events: {_reasons(row['drop_reasons'])}" for row in dropped]
    if sandbox.records(
        "SELECT 1 AS one FROM collective WHERE starts_with(process_group, 'not recorded') LIMIT 1"
    ):
        notes.append(
            "several process groups communicate, and the recordings do not say whose a call is: "
            "such calls are not compared across ranks"
        )
    notes += probe_notes(sandbox)
    if facts.residual_ns and facts.ranks_read > 1:
        notes.append(
            "clocks were aligned by when ranks leave their calls: that fit is good to "
            f"{duration(facts.residual_ns)}, which does not prove the clocks right"
        )
    return notes


def probe_notes(sandbox: Sandbox) -> list[str]:
    """What must be known of a probe that was given along: of other hosts, assumed, few."""
    rows = sandbox.records(
        "SELECT value FROM topology WHERE kind = 'probe-use' AND value IS NOT NULL"
    )
    return [str(row["value"]) for row in rows]


def _counts(text: str | None) -> dict[str, int]:
    reasons: Any = json.loads(text) if text else {}
    return reasons if isinstance(reasons, dict) else {}


def _reasons(text: str | None) -> str:
    reasons = _counts(text)
    if not reasons:
        return "reason not recorded"
    return ", ".join(f"{reason} ({count:,})" for reason, count in reasons.items())
