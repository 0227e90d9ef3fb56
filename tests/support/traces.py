"""Small synthetic traces in the layouts that profilers and other tools write."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.ingest import ingest
from advisor.store.store import Store

BASE_NS = 1_790_857_026_000_000_000


def event(number: int, **changes: Any) -> dict[str, Any]:
    """The ``number``-th kernel of a trace; timestamps have three decimals."""
    made: dict[str, Any] = {
        "ph": "X",
        "cat": "kernel",
        "name": f"kernel_{number}",
        "pid": 0,
        "tid": 7,
        "ts": 4_366_672_476_000 + number + 0.125,
        "dur": 0.5,
        "args": {"device": 0, "stream": 7, "correlation": number, "External id": number},
    }
    made.update(changes)
    return made


def header(rank: int = 0, **changes: Any) -> dict[str, Any]:
    """The fields before the events."""
    made: dict[str, Any] = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "baseTimeNanoseconds": BASE_NS,
    }
    made.update(changes)
    return made


def kineto(events: list[Any], **fields: Any) -> str:
    """Kineto's own layout: an event per block, two spaces of indentation."""
    blocks = ",\n".join(_block(json.dumps(item, ensure_ascii=False)) for item in events)
    head = json.dumps(header(**fields))[:-1]
    return f'{head},\n  "traceEvents": [\n{blocks}\n  ],\n  "traceName": "x.json"\n}}'


@lru_cache(maxsize=100_000)
def _block(text: str) -> str:
    """An event over several lines; tests write the same ones often, and indenting is slow."""
    indented = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return "  " + indented.replace("\n", "\n  ")


def one_line(events: list[Any], **fields: Any) -> str:
    """Everything in one line, as ``json.dump`` writes it."""
    return json.dumps(dict(header(**fields), traceEvents=events), ensure_ascii=False)


def compact(events: list[Any], **fields: Any) -> str:
    """One line without blanks."""
    whole = dict(header(**fields), traceEvents=events)
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False)


def line_each(events: list[Any], **fields: Any) -> str:
    """One event per line."""
    lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in events)
    return json.dumps(header(**fields))[:-1] + ', "traceEvents": [\n' + lines + "\n]}"


def bare(events: list[Any]) -> str:
    """A bare array."""
    return json.dumps(events)


LAYOUTS = {"kineto": kineto, "one_line": one_line, "compact": compact, "line_each": line_each}


def read(path: Path | list[Path], **options: Any) -> Store:
    """Ingest into a store in memory."""
    store = Store.create()
    ingest(path if isinstance(path, list) else [path], store, **options)
    return store


def names(store: Store, rank: int | None = None) -> list[str]:
    """Names of the stored events in file order."""
    rows = store.con.execute(
        "SELECT name FROM event WHERE rank = coalesce(?, rank) ORDER BY rank, event_id", [rank]
    ).fetchall()
    return [row[0] for row in rows]


def dropped(store: Store) -> dict[str, int]:
    """Reasons and counts of all sources together."""
    total: dict[str, int] = {}
    for (text,) in store.con.execute("SELECT drop_reasons FROM source").fetchall():
        for reason, count in json.loads(text).items():
            total[reason] = total.get(reason, 0) + count
    return total


def notes(store: Store) -> str:
    """All notes of the sources."""
    rows = store.con.execute("SELECT coalesce(note, '') FROM source ORDER BY source_id").fetchall()
    return "\n".join(row[0] for row in rows)
