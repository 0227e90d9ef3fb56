"""The rows of an op table as ``event``, ``comm_event``, ``process_group`` and ``rank``.

All of it is SQL inside the store, so that a table of any length costs no Python per row.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from advisor.errors import AdvisorError
from advisor.ingest.source import ReadContext, shown
from advisor.vocabulary.numbers import MOST_RANKS

_LONGEST_STEP_S = 1e5

# optype, class, stream, collective, which ranks it joins. The names are Megatron's timers as
# StragglerAnalysis lists them (analyzer/metatypes.py); clipping needs the gradients' norm over the
# whole model, which is an all-reduce over all ranks (Megatron-LM, get_grad_norm_fp32).
_OPERATIONS = (
    ("forward-compute", "compute", 0, None, None),
    ("backward-compute", "compute", 0, None, None),
    ("optimizer", "compute", 0, None, None),
    ("params-all-gather", "comm", 1, "all_gather", "data parallel"),
    ("grads-reduce-scatter", "comm", 1, "reduce_scatter", "data parallel"),
    ("separate-grads-all-reduce", "comm", 1, "all_reduce", "data parallel"),
    ("layernorm-grads-all-reduce", "comm", 1, "all_reduce", "tensor parallel"),
    ("embedding-grads-all-reduce", "comm", 1, "all_reduce", "embedding"),
    ("optimizer-clip-main-grad", "comm", 1, "all_reduce", "world"),
    ("forward-send", "comm", 2, "send", "next"),
    ("forward-recv", "comm", 3, "recv", "previous"),
    ("backward-send", "comm", 4, "send", "previous"),
    ("backward-recv", "comm", 5, "recv", "next"),
)
_OTHER_STREAM = 6

_TEMPORARY = ("op_kind", "op_row", "op_lack", "op_partner", "op_event")

_READ = """
    CREATE TEMP TABLE op_row AS
    SELECT file_row_number AS number, try_cast(optype AS VARCHAR) AS name,
      try_cast(rank AS INTEGER) AS rank, try_cast(dp_rank AS INTEGER) AS replica,
      try_cast(stage AS INTEGER) AS stage, try_cast(step AS INTEGER) AS step,
      try_cast(start_ts AS DOUBLE) AS start_s, try_cast(duration AS DOUBLE) AS length_s,
      NULL::VARCHAR AS reason
    FROM read_parquet($path, file_row_number = true)
"""

# What is usable. Step numbers and ranks are small; times are seconds. Asked of what was read: in
# the query above the file's own statistics would answer, and they may be damaged.
_JUDGE = f"""
    UPDATE op_row SET reason = CASE
      WHEN rank IS NULL OR replica IS NULL OR stage IS NULL OR least(rank, replica, stage) < 0
          OR greatest(rank, replica, stage) >= {MOST_RANKS}
        THEN 'no rank, dp_rank or stage'
      WHEN step IS NULL OR step < 0 OR name IS NULL THEN 'no step or optype'
      WHEN start_s IS NULL OR length_s IS NULL OR NOT isfinite(start_s) OR NOT isfinite(length_s)
        OR length_s < 0 OR abs(start_s) > {_LONGEST_STEP_S} OR length_s > {_LONGEST_STEP_S}
        THEN 'no usable time' END
"""

# The same row once more, as a copy of a part of the table has it.
_REPEATED = """
    UPDATE op_row SET reason = 'repeated row' WHERE reason IS NULL AND number IN (
      SELECT number FROM op_row WHERE reason IS NULL QUALIFY row_number() OVER (
        PARTITION BY rank, replica, stage, step, name, start_s, length_s ORDER BY number) > 1)
"""

# All ranks of a stage run the same operations in a step, and a rank the same in all steps: who has
# fewer than both has lost rows, and the time that they took would look like a pause: that step of
# the rank is not whole, and gets no mark.
_LACK = """
    CREATE TEMP TABLE op_lack AS
    WITH own AS (
      SELECT rank, any_value(stage) AS stage, step, count(*) AS rows
      FROM op_row WHERE reason IS NULL GROUP BY rank, step),
    expected AS (
      SELECT rank, step, rows, least(max(rows) OVER (PARTITION BY stage, step),
        median(rows) OVER (PARTITION BY rank)) AS usual FROM own)
    SELECT rank, step, 'missing row' AS reason, ceil(usual - rows)::BIGINT AS lost
    FROM expected WHERE rows < usual
"""

_STATEMENTS = (
    # Whom each rank meets: the group and its size, or the neighbour in the pipeline. Ranks that
    # share replica and stage split its tensors.
    """
    CREATE TEMP TABLE op_partner AS
    WITH seat AS (
      SELECT *, row_number() OVER (PARTITION BY replica, stage ORDER BY rank) AS slice FROM (
        SELECT rank, any_value(replica) AS replica, any_value(stage) AS stage
        FROM op_row WHERE reason IS NULL GROUP BY rank)),
    pipe AS (SELECT max(stage) + 1 AS stages, max(slice) AS slices FROM seat),
    member AS (
      SELECT rank, replica, stage, slice, kind,
        CASE kind WHEN 'next' THEN 1 WHEN 'previous' THEN -1 END AS ahead,
        CASE kind WHEN 'world' THEN 'world'
          WHEN 'data parallel' THEN 'data parallel, stage ' || stage
          WHEN 'tensor parallel' THEN 'tensor parallel, replica ' || replica || ', stage ' || stage
          WHEN 'embedding' THEN 'embedding, replica ' || replica END
        || CASE WHEN kind IN ('data parallel', 'embedding') AND slices > 1
             THEN ', tensor rank ' || (slice - 1) ELSE '' END AS process_group
      FROM seat, pipe, (SELECT DISTINCT kind FROM op_kind WHERE kind IS NOT NULL)
      WHERE kind <> 'embedding' OR stage IN (0, stages - 1))
    SELECT m.rank, m.kind, m.process_group, p.rank AS peer,
      CASE WHEN m.process_group IS NULL THEN 2
        ELSE count(*) OVER (PARTITION BY m.process_group) END AS size
    FROM member m CROSS JOIN pipe LEFT JOIN seat p ON p.replica = m.replica
      AND p.slice = m.slice AND p.stage = (m.stage + m.ahead + stages) % stages
    """,
    # A collective of one rank communicates with nobody.
    f"""
    CREATE TEMP TABLE op_event AS
    WITH length AS (
      SELECT step, min(start_s) AS low, max(start_s + length_s) - min(start_s) AS length_s
      FROM op_row WHERE reason IS NULL GROUP BY step),
    placed AS (
      SELECT step, coalesce(sum(length_s) OVER (
        ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) - low AS shift_s
      FROM length)
    SELECT r.rank, r.name, r.step, k.collective, p.process_group, p.size, p.peer,
      row_number() OVER (PARTITION BY r.rank ORDER BY r.step, r.start_s, r.number) - 1 AS event_id,
      CASE WHEN k.class = 'comm' AND p.size > 1 THEN 'comm'
        WHEN k.class = 'compute' THEN 'compute' ELSE 'other' END AS class,
      coalesce(k.stream, {_OTHER_STREAM}) AS stream,
      round((r.start_s + shift_s) * 1e9)::BIGINT AS start_ns,
      round(r.length_s * 1e9)::BIGINT AS dur_ns
    FROM op_row r JOIN placed USING (step) LEFT JOIN op_kind k USING (name)
      LEFT JOIN op_partner p ON p.rank = r.rank AND p.kind = k.kind
    WHERE r.reason IS NULL
    """,
    """
    INSERT INTO event BY NAME
    SELECT $run AS run, rank, event_id, name, 'kernel' AS category, class, 0 AS device, stream,
      start_ns, dur_ns
    FROM op_event ORDER BY rank, event_id
    """,
    """
    INSERT INTO comm_event BY NAME
    SELECT $run AS run, rank, event_id, collective, process_group, size AS group_size,
      CASE collective WHEN 'send' THEN rank WHEN 'recv' THEN peer END AS src_rank,
      CASE collective WHEN 'send' THEN peer WHEN 'recv' THEN rank END AS dst_rank
    FROM op_event WHERE class = 'comm' ORDER BY rank, event_id
    """,
    """
    INSERT INTO event BY NAME
    WITH span AS (
      SELECT step, min(start_ns) AS start_ns, max(start_ns + dur_ns) AS end_ns
      FROM op_event GROUP BY step)
    SELECT $run AS run, rank, 'ProfilerStep#' || step AS name, 'user_annotation' AS category,
      'annotation' AS class, any_value(s.start_ns) AS start_ns,
      any_value(s.end_ns - s.start_ns) AS dur_ns,
      sum(count(*)) OVER (PARTITION BY rank) + row_number() OVER (PARTITION BY rank ORDER BY step)
        AS event_id
    FROM op_event JOIN span s USING (step) ANTI JOIN op_lack USING (rank, step) GROUP BY rank, step
    """,
    """
    INSERT INTO process_group BY NAME
    SELECT $run AS run, process_group, process_group AS description,
      list(DISTINCT rank ORDER BY rank)::INTEGER[] AS ranks, any_value(size) AS size
    FROM op_partner WHERE size > 1 AND process_group IS NOT NULL GROUP BY process_group
    """,
    # A table may hold one rank of each tensor-parallel group: of ranks 0, 4, ..., 60 there are 64.
    # A dropped row counts at the rank that it names, where that rank has other rows.
    """
    INSERT INTO rank BY NAME
    WITH spacing AS (
      SELECT coalesce(list_reduce(list(apart), lambda a, b: gcd(a, b)), 1) AS stride FROM (
        SELECT rank - lag(rank) OVER (ORDER BY rank) AS apart
        FROM (SELECT DISTINCT rank FROM op_event)) WHERE apart IS NOT NULL),
    lost AS (
      SELECT rank, sum(rows)::BIGINT AS rows, to_json(map_from_entries(
        list({'k': reason, 'v': rows} ORDER BY reason)))::VARCHAR AS reasons
      FROM (SELECT rank, reason, count(*) AS rows FROM op_row
          WHERE reason IS NOT NULL GROUP BY rank, reason
        UNION ALL SELECT rank, reason, sum(lost) FROM op_lack GROUP BY rank, reason) GROUP BY rank)
    SELECT $run AS run, e.rank, max(e.rank) OVER () + (SELECT stride FROM spacing) AS world_size,
      'device' AS timeline,
      count(*) AS events_read, coalesce(any_value(l.rows), 0) AS events_dropped,
      coalesce(any_value(l.reasons), '{}') AS drop_reasons, any_value(l.rows) IS NULL AS complete,
      false AS has_base_time
    FROM op_event e LEFT JOIN lost l ON l.rank = e.rank GROUP BY e.rank
    """,
)


def write_table(context: ReadContext, path: Path) -> tuple[int, dict[str, int]]:
    """Append the operations of one table; how many were kept, and how many dropped and why.

    Raises :class:`AdvisorError` when the file is damaged.
    """
    con = context.con
    try:
        con.execute(
            "CREATE TEMP TABLE op_kind "
            "(name VARCHAR, class VARCHAR, stream INTEGER, collective VARCHAR, kind VARCHAR)"
        )
        con.executemany("INSERT INTO op_kind VALUES (?, ?, ?, ?, ?)", _OPERATIONS)
        if shown(path) != str(path):
            raise AdvisorError(
                "cannot be opened: its path is not UTF-8", where=str(path), hint="move it"
            )
        try:
            con.execute(_READ, {"path": str(path)})
            con.execute(_JUDGE)
            con.execute(_REPEATED)
            con.execute(_LACK)
        except duckdb.Error as error:
            raise AdvisorError(
                "is damaged: its rows cannot be read", where=str(path), hint="copy the file again"
            ) from error
        for statement in _STATEMENTS:
            con.execute(statement, {"run": context.run} if "$run" in statement else {})
        (kept,) = con.execute("SELECT count(*) FROM op_event").fetchone()
        dropped = con.execute(
            "SELECT reason, sum(rows)::BIGINT FROM (SELECT reason, 1 AS rows FROM op_row "
            "WHERE reason IS NOT NULL UNION ALL SELECT reason, lost FROM op_lack) "
            "GROUP BY 1 ORDER BY 1"
        ).fetchall()
    finally:
        for table in _TEMPORARY:
            con.execute(f"DROP TABLE IF EXISTS temp.{table}")
    return kept, dict(dropped)
