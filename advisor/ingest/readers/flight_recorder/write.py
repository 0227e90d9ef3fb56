"""A dump into ``flight`` and ``process_group``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from advisor.ingest.readers._rows import insert
from advisor.ingest.readers.flight_recorder.dump import Dump
from advisor.ingest.source import ReadContext

_FLIGHT = (
    *("run", "rank", "process_group", "seq", "op", "state"),
    *("created_ns", "started_ns", "completed_ns", "input_sizes", "output_sizes", "frames"),
)
_GROUP = ("run", "process_group", "description", "ranks", "size", "backend")


def write_dump(context: ReadContext, dump: Dump, rank: int | None) -> int:
    """Append the dump of ``rank``; how many calls were kept.

    A group's progress counters become rows without an operation, whose ``state`` names the
    counter and whose ``seq`` is its value.
    """
    known = {
        name
        for (name,) in context.con.execute(
            "SELECT process_group FROM process_group WHERE run = ?", [context.run]
        ).fetchall()
    }
    insert(
        context.con,
        "process_group",
        _GROUP,
        [
            (context.run, g.name, g.description, g.ranks, len(g.ranks) if g.ranks else None, "nccl")
            for g in dump.groups
            if g.name not in known
        ],
    )
    if rank is not None and dump.nccl_version is not None:
        insert(
            context.con,
            "topology",
            ("run", "kind", "rank", "name", "value"),
            [(context.run, "version", rank, "nccl", dump.nccl_version)],
        )
    insert(context.con, "flight", _FLIGHT, _rows(context.run, dump, rank))
    return len(dump.entries)


def _rows(run: str, dump: Dump, rank: int | None) -> Iterator[tuple[Any, ...]]:
    for entry in dump.entries:
        yield (
            run,
            rank,
            entry.process_group,
            entry.seq,
            entry.op,
            entry.state,
            entry.created_ns,
            entry.started_ns,
            entry.completed_ns,
            json.dumps(entry.input_sizes),
            json.dumps(entry.output_sizes),
            json.dumps(entry.frames),
        )
    for group, counter, value in dump.status:
        yield (run, rank, group, value, None, counter, *([None] * 6))
