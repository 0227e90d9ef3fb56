"""Op tables of pipeline jobs (Parquet, one row per rank, step and operation) → ``event``.

Megatron-style jobs are published so: what each rank computed, sent, received and reduced, with a
time that counts from the step's own begin. Steps are therefore laid one after the other in the
order of their numbers. Who talks to whom follows from the columns ``dp_rank`` and ``stage``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.errors import AdvisorError
from advisor.ingest.source import ReadContext, Source
from advisor.store.notes import PARTLY_READ

if TYPE_CHECKING:
    from advisor.ingest.readers.op_table.write import Written

FORMAT = "op-table"
SUMMARY = "op tables (Parquet) of pipeline-parallel jobs: one row per rank, step and operation"
PRIORITY = 30

MAX_ROWS = 50_000_000
LEAST_ROW_BYTES = 2
"""Of the file: published tables have ten, and a column that repeats one value takes none."""
_COLUMNS = frozenset({"dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration"})


def detect(source: Source) -> bool:
    """A Parquet file with the columns of an op table; their names stand in its footer."""
    if source.compression != "none" or not source.head.startswith(b"PAR1"):
        return False
    import pyarrow as pa  # late: every start would wait for it
    import pyarrow.parquet as pq

    try:
        with source.path.open("rb") as file:
            return set(pq.read_schema(file).names) >= _COLUMNS
    except (pa.ArrowException, OSError):
        return False


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Write the operations of the first table; a run has one."""
    import pyarrow.parquet as pq

    read_one = False
    for source in sources:
        with source.path.open("rb") as file:
            rows = pq.read_metadata(file).num_rows
        if read_one:
            note = "a run has one op table; the first was read"
            context.report(source, FORMAT, drop_reasons={"second op table": rows}, note=note)
            continue
        try:
            written = _read_one(source, rows, context)
        except AdvisorError as error:
            context.refuse(source, FORMAT, source.refused(error))
            continue
        read_one = True
        context.report(
            source,
            FORMAT,
            events_read=written.events,
            drop_reasons=written.dropped,
            note=_note(written),
            codes=[PARTLY_READ] if written.is_sample else [],
        )


def _note(written: Written) -> str:
    words = "its times count from each step's begin: the steps are laid one after the other"
    if not written.is_sample:
        return words
    return (
        f"{written.steps_kept:,} of its {written.steps:,} steps were read, spread over all of "
        f"them, as it is long; {words}"
    )


def _read_one(source: Source, rows: int, context: ReadContext) -> Written:
    if rows > MAX_ROWS:
        raise AdvisorError(
            f"holds {rows:,} rows, more than {MAX_ROWS:,}",
            where=str(source.path),
            hint="cut the table to fewer steps",
        )
    if rows * LEAST_ROW_BYTES > source.size:
        raise AdvisorError(
            f"holds {rows:,} rows in {source.size:,} bytes: they repeat each other",
            where=str(source.path),
            hint="times of operations differ: write the table again",
        )
    from advisor.ingest.readers.op_table.write import write_table

    written = write_table(context, source)
    if not written.events:
        raise AdvisorError("holds no usable operation", where=str(source.path))
    return written
