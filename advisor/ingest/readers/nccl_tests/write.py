"""Measurements of nccl-tests into the ``bench`` table."""

from __future__ import annotations

from advisor.ingest.readers._rows import insert
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.source import ReadContext, Source

_BENCH = [
    "run",
    "tool",
    "op",
    "ranks",
    "bytes",
    "dtype",
    "in_place",
    "time_us",
    "algbw_gbps",
    "busbw_gbps",
    "wrong",
]


def write_harvest(context: ReadContext, source: Source, harvest: Harvest) -> int:
    """Append ``bench`` rows, and to ``topology`` version, devices, and the hosts if several."""
    if harvest.nccl_version is not None:
        insert(
            context.con,
            "topology",
            ("run", "kind", "name", "value", "source"),
            [(context.run, "version", "nccl", harvest.nccl_version, str(source.path))],
        )
    if len(harvest.hosts) > 1:  # what it measured is the network between them
        insert(
            context.con,
            "topology",
            ("run", "kind", "host", "source"),
            [(context.run, "bench-host", host, str(source.path)) for host in sorted(harvest.hosts)],
        )
    insert(
        context.con,
        "topology",
        ("run", "kind", "name", "source"),
        [(context.run, "bench-device", name, str(source.path)) for name in sorted(harvest.devices)],
    )
    return insert(
        context.con,
        "bench",
        _BENCH,
        (
            (
                context.run,
                "nccl-tests",
                m.op,
                m.ranks,
                m.size_bytes,
                m.dtype,
                m.in_place,
                m.time_us,
                m.algbw_gbps,
                m.busbw_gbps,
                m.wrong,
            )
            for m in harvest.measurements
        ),
    )
