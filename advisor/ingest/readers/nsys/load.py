"""The events of an export, streamed table by table into ``event``; then the ``rank`` rows."""

from __future__ import annotations

import json

from advisor.ingest.readers._rows import insert
from advisor.ingest.readers.nsys.device_events import collect_launches, copies, kernels, syncs
from advisor.ingest.readers.nsys.host_events import api_calls, nvtx_ranges
from advisor.ingest.readers.nsys.loader import Loader, Outcome
from advisor.ingest.readers.nsys.nccl_ranges import NcclRanges
from advisor.ingest.readers.nsys.open import Database
from advisor.ingest.readers.nsys.processes import Process
from advisor.ingest.source import ReadContext

_RANK = (
    *("run", "rank", "world_size", "host", "device", "device_name", "backend", "timeline"),
    *("events_read", "events_dropped", "drop_reasons", "complete", "has_base_time"),
)


def load(
    database: Database, processes: list[Process], nccl: NcclRanges, context: ReadContext
) -> Outcome:
    """Write the events of ``processes`` and their ``rank`` rows."""
    loader = Loader(database, processes, nccl, context)
    if not processes:
        return loader.outcome
    collect_launches(loader)
    loader.insert(kernels(loader))
    loader.insert(copies(loader))
    loader.insert(syncs(loader))
    loader.insert(api_calls(loader))
    loader.insert(nvtx_ranges(loader))
    lost = {p.rank: _lost_of(p.rank, database, loader.outcome) for p in processes}
    insert(
        context.con,
        "rank",
        _RANK,
        [
            (
                context.run,
                p.rank,
                p.world_size,
                p.host,
                p.device,
                p.device_name,
                "nccl" if p.rank in loader.outcome.with_nccl else None,
                "device",
                loader.outcome.by_rank.get(p.rank, 0),
                sum(lost[p.rank].values()),
                json.dumps(lost[p.rank], sort_keys=True),
                not database.dropped and not database.notes,
                loader.has_base_time,
            )
            for p in processes
        ],
    )
    return loader.outcome


def _lost_of(rank: int, database: Database, outcome: Outcome) -> dict[str, int]:
    """What one rank lost: its own events, and what is missing from tables that all ranks share."""
    lost = dict(outcome.lost.get(rank, {}))
    of_events = {reason for own in outcome.lost.values() for reason in own}
    shared = {reason: n for reason, n in database.dropped.items() if reason not in of_events}
    return lost | shared
