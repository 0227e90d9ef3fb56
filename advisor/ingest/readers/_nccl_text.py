"""One pass over a text file that may hold nccl-tests tables, NCCL log lines, or both mixed."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.ingest.readers._text import numbered_lines
from advisor.ingest.readers.nccl_tests.text import TableParser
from advisor.ingest.readers.nccl_tests.write import write_harvest
from advisor.ingest.source import ReadContext, Source


def read_texts(sources: Sequence[Source], context: ReadContext, format_name: str) -> None:
    """Read the files of one run and report each."""
    for source in sources:
        tables = TableParser(source.path)
        stream, raw = source.open_raw()
        with stream:
            for _, line in numbered_lines(stream):
                tables.feed(line)
            damage = raw.damage
        harvest = tables.finish()
        write_harvest(context, source, harvest)
        notes = harvest.notes + ([damage] if damage else [])
        context.report(
            source,
            format_name,
            events_read=len(harvest.measurements),
            events_dropped=sum(harvest.dropped.values()),
            drop_reasons=harvest.dropped,
            note="; ".join(notes) or None,
        )
