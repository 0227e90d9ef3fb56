"""NCCL Inspector output (JSON lines, formats v4.0 to v4.3) → ``nccl_choice``, ``bench``, ``event``.

The Inspector (plugins/profiler/inspector in NCCL) is the one source that tells algorithm, protocol
and GPU-measured duration of every collective of a real run. Sums go to ``nccl_choice`` and
``bench`` (tool ``inspector``); records of verbose dumps, which have times, become ``event`` rows
where no trace of that rank is there.
"""

import re
from collections import Counter
from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.ingest.source import ReadContext, Source

FORMAT = "nccl-inspector"
SUMMARY = "NCCL Inspector JSON lines (formats v4.0 to v4.3), terse or verbose"
PRIORITY = 80  # after the traces: its events are for ranks that no trace tells

_HEAD = re.compile(rb'\A\s*\{\s*"(?:header|metadata|coll_perf|p2p_perf|dump_stats)"\s*:')
_SIGNS = (b'"coll_perf"', b'"p2p_perf"', b'"dump_stats"')


def detect(source: Source) -> bool:
    """A first object that starts as the Inspector's do."""
    return bool(_HEAD.match(source.head)) and any(sign in source.head for sign in _SIGNS)


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Read the files of all processes of a run together: ranks come from joining them."""
    from advisor.ingest.readers._fields import without_usable
    from advisor.ingest.readers.nccl_inspector.records import Inspector
    from advisor.ingest.readers.nccl_inspector.write import write_records

    inspector = Inspector()
    counts: list[tuple[int, Counter[str], str | None]] = []
    for source in sources:
        note = None
        try:
            stream, raw = source.open_raw()
            with stream:
                kept, dropped = inspector.read(stream)
                note = raw.damage
        except AdvisorError as error:
            kept, dropped, note = 0, Counter(["refused"]), str(error)
        notes = [note] if note is not None else []
        notes += without_usable("records", inspector.unusable)
        inspector.unusable.clear()
        counts.append((kept, dropped, "; ".join(notes) or None))
    lost = write_records(context, inspector)
    for source, (kept, dropped, note) in zip(sources, counts, strict=True):
        dropped += lost
        lost.clear()  # of no file in particular: counted at the first
        context.report(source, FORMAT, events_read=kept, drop_reasons=dropped, note=note)
