"""Measurements of a benchmark into the ``bench`` table."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

from advisor.errors import AdvisorError
from advisor.ingest.readers._rows import insert
from advisor.ingest.readers._text import numbered_lines, without_launcher
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.source import ReadContext, Source

_SAME = (
    *("op", "ranks", "device", "dtype", "in_place"),
    *("time_us", "algbw_gbps", "busbw_gbps", "wrong", "apart"),
)


def text_reader(
    sign: re.Pattern[bytes],
    parse: Callable[[Iterable[str], Harvest], None],
    format: str,
    tool: str = "",
) -> tuple[Callable[[Source], bool], Callable[[Sequence[Source], ReadContext], None]]:
    """``detect`` and ``read`` of a program's output: what tells it, and what reads its lines.

    What ``parse`` harvests becomes ``bench`` rows; what it drops is counted.
    """

    def detect(source: Source) -> bool:
        return sign.search(source.head) is not None

    def read(sources: Sequence[Source], context: ReadContext) -> None:
        for source in sources:
            harvest = Harvest()
            try:
                stream, raw = source.open_raw()
                with stream:
                    lines = (without_launcher(line) for _, line, _ in numbered_lines(stream))
                    parse(lines, harvest)
                    harvest.notes += [raw.damage] if raw.damage else []
            except AdvisorError as error:
                harvest.dropped["refused"] += 1
                harvest.notes.append(error.message)
            write_harvest(context, source, harvest, format, tool or format)

    return detect, read


def write_harvest(
    context: ReadContext,
    source: Source,
    harvest: Harvest,
    format: str,
    tool: str = "nccl-tests",
    *,
    also_read: int = 0,
) -> None:
    """Append ``bench`` rows, and NCCL's version to ``topology``; report the file.

    ``also_read`` are lines of another kind that the file holds.
    """
    if harvest.nccl_version is not None:
        version = {"kind": "version", "name": "nccl", "value": harvest.nccl_version}
        insert(context, "topology", [{**version, "source": str(source.path)}])
    insert(
        context,
        "bench",
        (
            {
                "tool": tool,
                "source": table_name(source.path, one.table),
                "hosts": None if one.hosts is None else list(one.hosts),
                "bytes": one.size_bytes,
                **{name: getattr(one, name) for name in _SAME},
            }
            for one in harvest.measurements
        ),
    )
    context.report(
        source,
        format,
        events_read=len(harvest.measurements) + also_read,
        drop_reasons=harvest.dropped,
        note="; ".join(harvest.notes),
    )


def table_name(path: PurePath, number: int) -> str:
    """How ``bench.source`` names the table ``number`` (from 0) of a file."""
    return f"{path}#{number + 1}" if number else str(path)
