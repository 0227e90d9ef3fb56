"""The rows of an op table as ``event``, ``comm_event``, ``process_group`` and ``rank``.

All of it is SQL inside the store (read.sql, write.sql), so that a table of any length costs no
Python per row.
"""

from dataclasses import dataclass
from importlib import resources
from typing import Any

import duckdb

from advisor.errors import AdvisorError
from advisor.ingest.source import ReadContext, Source, shown
from advisor.store.notes import lost_together
from advisor.vocabulary.numbers import MOST_RANKS, whole_sql

_LONGEST_STEP_S = 1e5
_LONGEST_RUN_S = 1e9  # thirty years; nine times as many ns are whole numbers

MOST_ROWS = 200_000
"""What is read of a longer table, in whole steps: a row costs about 60 us of processor time until
the report is written, these a quarter of a minute. The longest published table has 117,216 (job AR
of StragglerAnalysis). Ten times the steps would narrow an average's interval to a third."""
_FEWEST_STEPS = 20  # are kept where single steps have so many rows

_OTHER_STREAM = 6
_TEMPORARY = ("op_kind", "op_read", "op_step", "op_row", "op_lack", "op_partner", "op_event")


@dataclass(frozen=True)
class Written:
    """What became of a table: its operations and steps by now, rows dropped by reason."""

    events: int
    dropped: dict[str, int]
    steps_kept: int
    steps: int

    @property
    def is_sample(self) -> bool:
        """Whether steps were left out, as there are more than the figures need."""
        return self.steps_kept < self.steps


def write_table(context: ReadContext, source: Source) -> Written:
    """Append the operations of one table.

    Raises :class:`AdvisorError` when the file is damaged or names too many ranks.
    """
    con, path = context.con, source.path
    try:
        if shown(path) != str(path):
            raise AdvisorError(
                "cannot be opened: its path is not UTF-8", where=str(path), hint="move it"
            )
        con.execute(f"CREATE TEMP MACRO op_whole(number) AS {whole_sql('number', 'INTEGER')}")
        try:
            _run(
                con,
                "read.sql",
                path=str(path),
                most_ranks=MOST_RANKS,
                longest_s=_LONGEST_STEP_S,
                longest_run_s=_LONGEST_RUN_S,
                most_rows=MOST_ROWS,
                fewest_steps=_FEWEST_STEPS,
            )
        except duckdb.Error as error:
            raise AdvisorError(
                "is damaged: its rows cannot be read", where=str(path), hint="copy the file again"
            ) from error
        (ranks,) = con.execute(
            "SELECT count(DISTINCT rank) FROM op_row WHERE reason IS NULL"
        ).fetchone()
        source.require_room_for(ranks)
        _run(
            con,
            "write.sql",
            run=context.run,
            other_stream=_OTHER_STREAM,
            of_nobody=lost_together("", "all ranks"),
        )
        (kept,) = con.execute("SELECT count(*) FROM op_event").fetchone()
        dropped = con.execute(
            "SELECT reason, sum(rows)::BIGINT FROM (SELECT reason, 1 AS rows FROM op_row "
            "WHERE reason IS NOT NULL UNION ALL SELECT reason, lost FROM op_lack) "
            "GROUP BY 1 ORDER BY 1"
        ).fetchall()
        steps_kept, steps = con.execute(
            "SELECT count(*) FILTER (kept), count(*) FROM op_step"
        ).fetchone()
    finally:
        for table in _TEMPORARY:
            con.execute(f"DROP TABLE IF EXISTS temp.{table}")
        con.execute("DROP MACRO IF EXISTS temp.op_whole")
    return Written(kept, dict(dropped), steps_kept, steps)


def _run(con: Any, name: str, **values: Any) -> None:
    """Run the statements of a file beside this one, each with the values that it names."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    for statement in con.extract_statements(text):
        con.execute(statement, {one: values[one] for one in statement.named_parameters} or None)
