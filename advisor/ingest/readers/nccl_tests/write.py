"""Measurements of a benchmark into the ``bench`` table."""

from __future__ import annotations

from pathlib import PurePath

from advisor.ingest.readers._rows import insert
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.source import ReadContext, Source

_BENCH = (
    *("run", "tool", "source", "op", "ranks", "hosts", "device", "bytes", "dtype", "in_place"),
    *("time_us", "algbw_gbps", "busbw_gbps", "wrong", "apart"),
)


def write_harvest(
    context: ReadContext, source: Source, harvest: Harvest, tool: str = "nccl-tests"
) -> int:
    """Append ``bench`` rows, and NCCL's version to ``topology``."""
    if harvest.nccl_version is not None:
        insert(
            context.con,
            "topology",
            ("run", "kind", "name", "value", "source"),
            [(context.run, "version", "nccl", harvest.nccl_version, str(source.path))],
        )
    return insert(
        context.con,
        "bench",
        _BENCH,
        (
            (
                *(context.run, tool, table_name(source.path, m.table), m.op, m.ranks),
                *(None if m.hosts is None else list(m.hosts), m.device, m.size_bytes, m.dtype),
                *(m.in_place, m.time_us, m.algbw_gbps, m.busbw_gbps, m.wrong, m.apart),
            )
            for m in harvest.measurements
        ),
    )


def table_name(path: PurePath, number: int) -> str:
    """How ``bench.source`` names the table ``number`` (from 0) of a file."""
    return f"{path}#{number + 1}" if number else str(path)
