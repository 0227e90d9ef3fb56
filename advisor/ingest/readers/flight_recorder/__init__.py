"""PyTorch flight-recorder dumps (pickle or JSON) → ``flight``, ``process_group``.

A pickle is a program; it is never handed to :mod:`pickle`. :mod:`.unpickle` interprets the few
instructions that torch's own pickler writes and knows no instruction that names or calls anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.errors import AdvisorError
from advisor.ingest.jobs import RankFile, refuse_twice
from advisor.ingest.source import ReadContext, Source

if TYPE_CHECKING:
    from advisor.ingest.readers.flight_recorder.dump import Dump

FORMAT = "flight-recorder"
SUMMARY = "PyTorch flight-recorder dumps (TORCH_FR_BUFFER_SIZE), pickle or JSON"
PRIORITY = 30

MAX_DUMP_BYTES = 512 * 1024 * 1024
# Protocols 2 to 5 say so; 0 and 1 begin with the dictionary itself.
_PICKLE = re.compile(rb"\A(?:\x80[\x02-\x05]|\(d(?:p\d{1,9}\n)?[VS(]|\}[qr(])")
_SIGNS = (b"entries", b"pg_config", b"pg_status")
_JSON = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"(?:entries|pg_config|pg_status|version|nccl_)')


def detect(source: Source) -> bool:
    """A pickle or JSON object whose first keys are those of a dump."""
    head = source.head
    if _PICKLE.match(head):
        return any(sign in head for sign in _SIGNS)
    if not _JSON.match(head):
        return False
    return b'"pg_config"' in head or (b'"entries"' in head and b'"profiling_name"' in head)


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Read the dumps of all ranks of a run."""
    from advisor.ingest.readers.flight_recorder.dump import rank_of
    from advisor.ingest.readers.flight_recorder.write import write_dump

    dumps: list[tuple[Source, Dump]] = []
    for source in sources:
        try:
            dumps.append((source, _load(source)))
        except AdvisorError as error:
            said = "; ".join(part for part in (error.message, error.hint) if part)
            context.refuse(source, FORMAT, said)
    ranks = {source.path: rank_of(dump, source.path) for source, dump in dumps}
    refuse_twice([RankFile(path, rank) for path, rank in ranks.items() if rank is not None])
    for source, dump in dumps:
        rank = ranks[source.path]
        if rank is None:
            dump.dropped["dump of a rank that cannot be told"] += len(dump.entries)
            dump.notes.append("name the file after its rank, e.g. nccl_trace_rank_3")
            dump.entries.clear()
            dump.status.clear()
        kept = write_dump(context, dump, rank)
        context.report(
            source,
            FORMAT,
            rank=rank,
            events_read=kept,
            drop_reasons=dump.dropped,
            note="; ".join(dump.notes),
        )


def _load(source: Source) -> Dump:
    from advisor.ingest.readers._json import read_whole
    from advisor.ingest.readers.flight_recorder.dump import parse_dump
    from advisor.ingest.readers.flight_recorder.unpickle import unpickle

    data, damage = read_whole(source, MAX_DUMP_BYTES, ", too much for a flight-recorder dump")
    if _PICKLE.match(data):
        content, cut = unpickle(data, where=str(source.path))
    else:
        content, cut = _from_json(data.decode("utf-8-sig", errors="replace"))
    dump = parse_dump(content, len(data))
    for note in (damage, cut):
        if note is not None:
            dump.notes.append(note)
    if cut is not None:
        dump.dropped["dump cut or damaged"] += 1
    return dump


def _from_json(text: str) -> tuple[dict[object, object], str | None]:
    from advisor.ingest.readers._json import TopLevel

    content: dict[object, object] = {}
    lists: dict[str, list[object]] = {}
    document = TopLevel(text)
    for item in document:
        if item.index is None:
            content[item.key] = item.value
        else:
            lists.setdefault(item.key, []).append(item.value)
    content.update(lists)
    cut = None
    if document.cut is not None:
        cut = f"breaks off at character {document.cut}: what came before is kept"
    return content, cut
