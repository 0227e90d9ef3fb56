"""The events of an export, streamed table by table into ``event``; then the ``rank`` rows."""

from __future__ import annotations

import json
import re
from collections import Counter

from advisor.ingest.readers._fields import without_usable
from advisor.ingest.readers._rows import insert
from advisor.ingest.readers.nsys.device_events import collect_launches, copies, kernels, syncs
from advisor.ingest.readers.nsys.host_events import api_calls, nvtx_ranges
from advisor.ingest.readers.nsys.loader import Loader, Outcome
from advisor.ingest.readers.nsys.nccl_ranges import NcclRanges
from advisor.ingest.readers.nsys.open import Database
from advisor.ingest.readers.nsys.processes import Process
from advisor.ingest.source import ReadContext
from advisor.store.notes import lost_together

# Nsight Systems 2026.2: "Number of incomplete CUPTI events dropped: 24806. Incomplete events appear
# when GPU timestamp information have not been retrieved at the time the profiling was stopped."
_UNTIMED = re.compile(r"incomplete CUPTI events dropped: (\d{1,18})\b")


def load(
    database: Database, processes: list[Process], nccl: NcclRanges, context: ReadContext
) -> Outcome:
    """Write the events of ``processes`` and their ``rank`` rows."""
    loader = Loader(database, processes, nccl, context)
    if not processes:
        return loader.outcome
    collect_launches(loader)
    for events in (kernels, copies, syncs, api_calls, nvtx_ranges):
        loader.insert(events(loader))
    _count_untimed(database)
    lost = _losses(processes, database, loader.outcome)
    insert(
        context,
        "rank",
        [
            {
                "rank": p.rank,
                "world_size": p.world_size,
                "host": p.host,
                "device": p.device,
                "device_name": p.device_name,
                "backend": "nccl" if p.rank in loader.outcome.with_nccl else None,
                "timeline": "device",
                "events_read": loader.outcome.by_rank[p.rank],
                "events_dropped": sum(lost[p.rank].values()),
                "drop_reasons": json.dumps(lost[p.rank], sort_keys=True),
                "complete": not database.dropped and not database.notes,
                "has_base_time": loader.has_base_time,
            }
            for p in processes
        ],
    )
    _count_names(database)
    loader.outcome.notes += without_usable("rows", database.unusable)
    return loader.outcome


def _count_untimed(database: Database) -> None:
    """Count what a device did that the recorder had no times of when it stopped, as it says."""
    if not database.has("DIAGNOSTIC_EVENT", "text"):
        return
    for (text,) in database.rows("SELECT text FROM DIAGNOSTIC_EVENT"):
        said = _UNTIMED.search(text) if isinstance(text, str) else None
        if said:
            database.drop("GPU time not retrieved before nsys stopped", int(said.group(1)))


def _count_names(database: Database) -> None:
    """Count the texts that no row can name: without an id, with one of another text, or empty."""
    if not database.has("StringIds", "id", "value"):
        return
    counts = "SELECT count(*), count(value) FROM "
    (given, _), (kept, told) = (
        next(database.rows(counts + of), (0, 0)) for of in ("main.StringIds", "StringIds")
    )
    database.unusable += Counter(
        {"id in StringIds": given - kept, "value in StringIds": kept - told}
    )


def _losses(
    processes: list[Process], database: Database, outcome: Outcome
) -> dict[int, dict[str, int]]:
    """What each rank lost. Rows of tables that ranks share are counted once, at the first of them:
    nothing tells whose they were.
    """
    ranks = sorted(process.rank for process in processes)
    lost = {rank: dict(outcome.lost.get(rank, {})) for rank in ranks}
    told = Counter[str]()
    for own in lost.values():
        told.update(own)
    whose = f"ranks {', '.join(map(str, ranks))}"
    for reason, count in database.dropped.items():
        if count > told[reason]:
            named = lost_together(reason, whose) if len(ranks) > 1 else reason
            lost[ranks[0]][named] = count - told[reason]
    return lost
