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
    dropped = database.dropped
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
                sum(dropped.values()) if len(processes) == 1 else 0,
                json.dumps(dropped if len(processes) == 1 else {}),
                not dropped and not database.notes,
                loader.has_base_time,
            )
            for p in processes
        ],
    )
    return loader.outcome
