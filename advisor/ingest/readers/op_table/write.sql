-- The rows of an op table as event, comm_event, process_group and rank.

-- Whom each rank meets: the group and its size, or the neighbour in the pipeline. Ranks that
-- share replica and stage split its tensors.
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
  AND p.slice = m.slice AND p.stage = (m.stage + m.ahead + stages) % stages;

-- A collective of one rank communicates with nobody.
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
  coalesce(k.stream, $other_stream) AS stream,
  round((r.start_s + shift_s) * 1e9)::BIGINT AS start_ns,
  round(r.length_s * 1e9)::BIGINT AS dur_ns
FROM op_row r JOIN placed USING (step) LEFT JOIN op_kind k USING (name)
  LEFT JOIN op_partner p ON p.rank = r.rank AND p.kind = k.kind
WHERE r.reason IS NULL;

INSERT INTO event BY NAME
SELECT $run AS run, rank, event_id, name, 'kernel' AS category, class, 0 AS device, stream,
  start_ns, dur_ns
FROM op_event ORDER BY rank, event_id;

INSERT INTO comm_event BY NAME
SELECT $run AS run, rank, event_id, collective, process_group, size AS group_size,
  CASE collective WHEN 'send' THEN rank WHEN 'recv' THEN peer END AS src_rank,
  CASE collective WHEN 'send' THEN peer WHEN 'recv' THEN rank END AS dst_rank
FROM op_event WHERE class = 'comm' ORDER BY rank, event_id;

INSERT INTO event BY NAME
WITH span AS (
  SELECT step, min(start_ns) AS start_ns, max(start_ns + dur_ns) AS end_ns
  FROM op_event GROUP BY step)
SELECT $run AS run, rank, 'ProfilerStep#' || step AS name, 'user_annotation' AS category,
  'annotation' AS class, any_value(s.start_ns) AS start_ns,
  any_value(s.end_ns - s.start_ns) AS dur_ns,
  sum(count(*)) OVER (PARTITION BY rank) + row_number() OVER (PARTITION BY rank ORDER BY step)
    AS event_id
FROM op_event JOIN span s USING (step) ANTI JOIN op_lack USING (rank, step) GROUP BY rank, step;

INSERT INTO process_group BY NAME
SELECT $run AS run, process_group, process_group AS description,
  list(DISTINCT rank ORDER BY rank)::INTEGER[] AS ranks, any_value(size) AS size
FROM op_partner WHERE size > 1 AND process_group IS NOT NULL GROUP BY process_group;

-- A table may hold one rank of each tensor-parallel group: of ranks 0, 4, ..., 60 there are 64.
-- A dropped row counts at the rank that it names, where that rank has other rows, else at the first.
INSERT INTO rank BY NAME
WITH spacing AS (
  SELECT coalesce(list_reduce(list(apart), lambda a, b: gcd(a, b)), 1) AS stride FROM (
    SELECT rank - lag(rank) OVER (ORDER BY rank) AS apart
    FROM (SELECT DISTINCT rank FROM op_event)) WHERE apart IS NOT NULL),
lost AS (
  SELECT rank, bool_or(is_own) AS is_own, sum(rows)::BIGINT AS rows, to_json(map_from_entries(
    list({'k': reason, 'v': rows} ORDER BY reason)))::VARCHAR AS reasons
  FROM (
    SELECT coalesce(e.rank, (SELECT min(rank) FROM op_event)) AS rank, e.rank IS NOT NULL AS is_own,
      reason || CASE WHEN e.rank IS NULL THEN $of_nobody ELSE '' END AS reason, sum(rows) AS rows
    FROM (SELECT rank, reason, 1 AS rows FROM op_row WHERE reason IS NOT NULL
        UNION ALL SELECT rank, reason, lost FROM op_lack) r
      LEFT JOIN (SELECT DISTINCT rank FROM op_event) e ON e.rank = r.rank GROUP BY ALL)
  GROUP BY rank)
SELECT $run AS run, e.rank, max(e.rank) OVER () + (SELECT stride FROM spacing) AS world_size,
  'device' AS timeline,
  count(*) AS events_read, coalesce(any_value(l.rows), 0) AS events_dropped,
  coalesce(any_value(l.reasons), '{}') AS drop_reasons,
  NOT coalesce(any_value(l.is_own), false) AS complete, false AS has_base_time
FROM op_event e LEFT JOIN lost l ON l.rank = e.rank GROUP BY e.rank;
