"""The one SQL statement that turns chunks of JSON into rows of ``event``.

``unnest(try(from_json(chunk, schema)))`` runs in the database on all its threads. Timestamps are
read as DECIMAL(19, 3): as DOUBLE a quarter of today's timestamps would be off by a nanosecond and
epoch values by hundreds. Rows that need a second look get a class that starts with ``!``.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.classes import class_sql, enqueue_sql, literal, on_device_sql, one_of
from advisor.vocabulary.numbers import MOST_RANKS, whole_sql

IDS_PER_CHUNK = 1 << 20
"""Room for the events of one chunk in ``event_id``: 256 KiB hold at most 87,000 (``{},``)."""
IDS_PER_FILE = 1 << 46
"""Room for the chunks of one file (16 TiB); files are numbered within the run, up to 131,072."""

BAD_CHUNK = "!chunk"
BEGIN, END = "!begin", "!end"
METADATA = "!metadata"
NO_TIME = "!no timestamp"
NO_PHASE = "!not an event"
NO_RANK = "!no usable rank"

ARGS = {
    "device": "INTEGER",
    "stream": "BIGINT",
    "correlation": "BIGINT",
    "External id": "BIGINT",
    "bytes": "BIGINT",
    "Collective name": "VARCHAR",
    "dtype": "VARCHAR",
    "In msg nelems": "BIGINT",
    "Out msg nelems": "BIGINT",
    "Group size": "INTEGER",
    "Process Group Name": "VARCHAR",
    "Process Group Description": "VARCHAR",
    "Process Group Ranks": "VARCHAR",
    "Seq": "BIGINT",
    "Src Rank": "INTEGER",
    "Dst Rank": "INTEGER",
    "In split size": "VARCHAR",
    "Out split size": "VARCHAR",
    "Input Dims": "VARCHAR",
    "Input type": "VARCHAR",
    "Concrete Inputs": "VARCHAR",
    "name": "VARCHAR",
    "rank": "INTEGER",
}
_COLLECTIVE_COLUMNS = {
    "collective": "Collective name",
    "dtype": "dtype",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "group_size": "Group size",
    "process_group": "Process Group Name",
    "group_description": "Process Group Description",
    "group_ranks": "Process Group Ranks",
    "seq": "Seq",
    "src_rank": "Src Rank",
    "dst_rank": "Dst Rank",
    "in_split": "In split size",
    "out_split": "Out split size",
}
SHAPE_COLUMNS = {
    "input_dims": "Input Dims",
    "input_types": "Input type",
    "concrete_inputs": "Concrete Inputs",
}
COMM_COLUMNS = _COLLECTIVE_COLUMNS | SHAPE_COLUMNS
STAGED = "kineto_comm"
UNUSABLE = "kineto_unusable"
_EVENT = {
    "ph": "VARCHAR",
    "cat": "VARCHAR",
    "name": "VARCHAR",
    "pid": "BIGINT",
    "tid": "BIGINT",
    "ts": "DECIMAL(19,3)",
    "dur": "DECIMAL(19,3)",
}
_WHOLE = ("BIGINT", "INTEGER")
_NUMBER_LIKE = r"^\s*[-+.\d\[{]|^(true|false)$"
"""Other texts are names: ``pid`` is "Spans" where a profiler has its own marks."""
KEPT_FIELDS = frozenset(_EVENT)
KEPT_ARGS = frozenset(ARGS)
NOT_LEAN = ("python",)
"""Classes that ``--lean`` does not even read; what else may go is told later (ingest/lean.py)."""
# Flows (arrows between events), counters, samples, object snapshots and async spans carry no
# time on a stream or thread; letters of the Trace Event Format.
IGNORED_PHASES = "stfCPNODbneSTpFcvV"
INSTANTS = ("i", "I", "R")
LARGEST_NS = 4_600_000_000_000_000_000
"""Base time and timestamps up to this (year 2115) add up to no more than 64 bits."""
_LARGEST_US = LARGEST_NS // 1000


def event_schema(external_key: str = "External id") -> str:
    """The type of a chunk for ``from_json``. Key names are data of the format, not of a trace.

    Whole numbers are read as text, for the parser would round them: see :func:`_whole`.
    """
    args = {(external_key if key == "External id" else key): kind for key, kind in ARGS.items()}
    fields: dict[str, Any] = {name: _read_as(kind) for name, kind in _EVENT.items()}
    return json.dumps([fields | {"args": {key: _read_as(kind) for key, kind in args.items()}}])


def _read_as(kind: str) -> str:
    return "VARCHAR" if kind in _WHOLE else kind


def _whole(key: str, kind: str, external_key: str = "External id") -> str:
    """A field of an event as its kind; a whole number is null where it is none, or out of range."""
    of = "e" if key in _EVENT else "e.args"
    text = f'{of}."{external_key if key == "External id" else key}"'
    return whole_sql(text, kind) if kind in _WHOLE else text


def _unusable(external_key: str) -> str:
    """The fields, a line each, that are a number or a container and no whole number in range."""
    found = []
    for key, kind in (*_EVENT.items(), *ARGS.items()):
        if kind in _WHOLE and key != "rank":
            text = _whole(key, "VARCHAR", external_key)
            bad = f"CASE WHEN {text} IS NOT NULL AND {_whole(key, kind, external_key)} IS NULL "
            bad += f"THEN regexp_matches({text}, '{_NUMBER_LIKE}') END"
            found.append(f"CASE WHEN {bad} THEN {literal(key)} END")
    return f"nullif(concat_ws(chr(10), {', '.join(found)}), '')"


def _comm_schema() -> str:
    return json.dumps({column: ARGS[key] for column, key in COMM_COLUMNS.items()})


def insert_sql(
    run: str,
    chunks: str,
    external_key: str = "External id",
    *,
    origin_us: int = 0,
    lean: bool = False,
    merged: bool = False,
) -> str:
    """INSERT INTO event from a relation ``chunks``(chunk, rank, base_ns, first_id).

    ``dur_ns`` is null where a span does not say a usable one, to be counted.
    One statement fills one table: what belongs to ``comm_event`` goes through a column that
    ``event`` has meanwhile (:data:`STAGE_SQL`, then :data:`MOVE_SQL` and :data:`UNSTAGE_SQL`);
    so do the fields of an event that are no usable number.

    ``origin_us``: a timestamp near all others. Within eleven days of it the arithmetic stays in
    64 bits, which is 25 times faster than in 128; the result is the same.
    ``merged``: the file holds several ranks, and ``args.rank`` says whose an event is.
    """
    is_device = on_device_sql("category")
    whole = partial(_whole, external_key=external_key)
    comm = ", ".join(whole(key, ARGS[key]) for key in COMM_COLUMNS.values())
    device, stream, own_rank = (whole(key, ARGS[key]) for key in ("device", "stream", "rank"))
    correlation, external, size = (
        whole(key, ARGS[key]) for key in ("correlation", "External id", "bytes")
    )
    schema = literal(event_schema(external_key))
    wanted = f"NOT {one_of('class', NOT_LEAN)}" if lean else "true"
    class_ = class_sql("category", "e.name", f"({stream}) IS NOT NULL")
    is_rank = f"(({own_rank}) BETWEEN 0 AND {MOST_RANKS - 1}) IS TRUE"
    rank = f"CASE WHEN {is_rank} THEN {own_rank} ELSE rank END" if merged else "rank"
    no_rank = f"e.args.rank IS NOT NULL AND NOT {is_rank}" if merged else "false"
    near = f"TRY_CAST(ts - CAST({origin_us} AS DECIMAL(19, 3)) AS DECIMAL(15, 3))"
    return f"""
INSERT INTO event (
  run, rank, event_id, name, category, class, device, stream, pid, tid, start_ns, dur_ns,
  correlation, external_id, bytes, {STAGED}, {UNUSABLE}
)
SELECT {literal(run)}, rank, first_id + position, name, category, class,
  CASE WHEN class = '{END}' THEN device
    WHEN on_device THEN coalesce(device, TRY_CAST(pid AS INTEGER)) END,
  CASE WHEN class = '{END}' THEN stream WHEN on_device THEN coalesce(stream, tid) END, pid, tid,
  base_ns + coalesce(
    {origin_us * 1000} + CAST({near} * 1000 AS BIGINT), CAST(ts * 1000 AS BIGINT)
  ),
  coalesce(CAST(TRY_CAST(dur AS DECIMAL(15, 3)) * 1000 AS BIGINT), CAST(dur * 1000 AS BIGINT)),
  correlation, external_id, bytes, {_comm_json()}, {UNUSABLE}
FROM (
  SELECT {rank}, first_id, base_ns, position, e.name,
    CASE WHEN e.ph = 'M' THEN e.args.name ELSE category END,
    CASE
      WHEN bad THEN '{BAD_CHUNK}'
      WHEN e.ph = 'M' THEN '{METADATA}'
      WHEN e.ph IS NULL THEN '{NO_PHASE}'
      WHEN e.ts IS NULL OR e.ts NOT BETWEEN -{_LARGEST_US} AND {_LARGEST_US} THEN '{NO_TIME}'
      WHEN {no_rank} THEN '{NO_RANK}'
      WHEN e.ph = 'X' OR {one_of("e.ph", INSTANTS)} THEN {class_}
      WHEN e.ph = 'B' THEN '{BEGIN}'
      WHEN e.ph = 'E' THEN '{END}'
      ELSE '{NO_PHASE}'
    END,
    {is_device}, {device}, {stream}, {whole("pid", "BIGINT")}, {whole("tid", "BIGINT")},
    CASE WHEN e.ts BETWEEN -{_LARGEST_US} AND {_LARGEST_US} THEN e.ts ELSE 0 END,
    CASE WHEN e.dur BETWEEN 0 AND {_LARGEST_US} THEN e.dur WHEN e.ph = 'X' THEN NULL ELSE 0 END,
    {correlation}, {external}, {enqueue_sql("e.name")} OR e.ph = 'E', {comm}, {size},
    {_unusable(external_key)}
  FROM (
    SELECT rank, base_ns, first_id, bad, e, e.cat AS category, position
    FROM (
      SELECT rank, base_ns, first_id, bad, unnest(events) AS e,
        unnest(range(len(events))) AS position
      FROM (
        SELECT rank, base_ns, first_id, parsed IS NULL AS bad, coalesce(parsed, [NULL]) AS events
        FROM (
          SELECT rank, base_ns, first_id, try(from_json(chunk, {schema})) AS parsed FROM {chunks}
        )
      )
    )
  )
  WHERE e.ph = 'X' OR bad OR e.ph IS NULL
    OR NOT (contains({literal(IGNORED_PHASES)}, e.ph) AND length(e.ph) = 1)
) AS t({", ".join(_inner_columns())})
WHERE {wanted}
"""


def _inner_columns() -> list[str]:
    return [
        *("rank", "first_id", "base_ns", "position", "name", "category", "class", "on_device"),
        *("device", "stream", "pid", "tid", "ts", "dur", "correlation", "external_id"),
        *("asks", *COMM_COLUMNS, "bytes", UNUSABLE),
    ]


def _comm_json() -> str:
    """The columns of ``comm_event`` as JSON text, null for the many events without any of them.

    Shapes are kept where communication is asked for; other operators have them too. The end of a
    span does not tell its name: :mod:`.pairs` decides whether its shapes are kept.
    """
    shapes = " OR ".join(f"{column} IS NOT NULL" for column in SHAPE_COLUMNS)
    facts = " OR ".join(f"{column} IS NOT NULL" for column in _COLLECTIVE_COLUMNS)
    fields = [f"{column}: {column}" for column in _COLLECTIVE_COLUMNS]
    fields += [f"{column}: CASE WHEN asks THEN {column} END" for column in SHAPE_COLUMNS]
    return f"CASE WHEN {facts} OR (asks AND ({shapes})) THEN to_json({{{', '.join(fields)}}}) END"


UNUSABLE_SQL = f"""
CREATE TEMP TABLE IF NOT EXISTS {UNUSABLE} (run VARCHAR, event_id BIGINT, field VARCHAR)
"""
STAGE_SQL = f"""
ALTER TABLE event ADD COLUMN {STAGED} VARCHAR;
ALTER TABLE event ADD COLUMN {UNUSABLE} VARCHAR;
{UNUSABLE_SQL}
"""
UNSTAGE_SQL = f"ALTER TABLE event DROP COLUMN {STAGED}; ALTER TABLE event DROP COLUMN {UNUSABLE}"
MOVE_SQL = f"""
INSERT INTO comm_event BY NAME
SELECT run, rank, event_id, unnest(from_json({STAGED}, {literal(_comm_schema())}))
FROM event WHERE {STAGED} IS NOT NULL
  AND (NOT starts_with(class, '!') OR class IN ('{BEGIN}', '{END}'));
INSERT INTO {UNUSABLE}
SELECT run, event_id, unnest(string_split({UNUSABLE}, chr(10)))
FROM event WHERE {UNUSABLE} IS NOT NULL
"""


_PROBES = (
    ("4366672476196.905", 4366672476196905),
    ("1694128201426602.123", 1694128201426602123),
    ('"1694128201426602.001"', 1694128201426602001),
    ("1694128201426602", 1694128201426602000),
)


def self_test(con: Any) -> None:
    """Refuse to read with a database that would round timestamps (DuckDB before 2.0 does)."""
    texts = [f'[{{"ts": {text}}}]' for text, _ in _PROBES]
    rows = con.execute(
        "SELECT CAST((try(from_json(text, ?)))[1].ts * 1000 AS BIGINT) "
        "FROM (SELECT unnest(?) AS text, generate_subscripts(?, 1) AS number) ORDER BY number",
        [event_schema(), texts, texts],
    ).fetchall()
    for (text, expected), (read,) in zip(_PROBES, rows, strict=True):
        if read != expected:
            raise AdvisorError(
                f"this DuckDB reads the timestamp {text} µs as {read} ns",
                hint="install duckdb 2.0 or later: pip install 'duckdb>=2.0'",
            )
