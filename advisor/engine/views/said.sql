-- What NCCL, torch and launchers said in a job's output, who waited there, and for whom.

-- Lines that something is wrong, as topology has them.
--   host: as the line says, or of its rank
--   file: where it stands
--   of_file: number of the line in its file
--   of_several: whether such lines stand in several files
--   timed: whether each of them has a time
--   line: number of the line in its file; its place among all by their times where the lines are of
--     several files and have some
--   is_unordered: they are of several files and have none, so that `line` orders each file alone
--   printer: global rank that printed it, where a launcher or the line says so
--   rank: that it is of: a time-out is told by others too
--   trained_on: the line that shows that the job did, after all such lines of the file or before the
--     next of them, or that the same thread made its communicator in spite of it; null where none does
CREATE VIEW said_line AS
SELECT t.name, t.value, t.source, coalesce(t.host, h.host) AS host,
  regexp_replace(t.source, ':\d{1,9}$', '') AS file,
  try_cast(regexp_extract(t.source, ':(\d{1,9})$', 1) AS BIGINT) AS of_file,
  min(file) OVER () <> max(file) OVER () AS of_several, coalesce(bool_and(c.value IS NOT NULL) OVER (), false) AS timed,
  of_several AND NOT timed AS is_unordered,
  CASE WHEN of_several AND timed THEN row_number() OVER (ORDER BY c.value, t.source, of_file)
    ELSE of_file END AS line,
  coalesce(t.rank, try_cast(regexp_extract(regexp_replace(t.value, 'rank ?= ?\[(\d{1,7})\]', 'rank \1'),
    '(?:(?:^ ?|[^A-Za-z_ ]|[^l] )(?:[Rr]ank|RANK)|(?:[Gg]lobal|GLOBAL)[_ -]?(?:[Rr]ank|RANK))'
    || '(?: ?[:=#] ?| )?(\d{1,7})\b', 1) AS INTEGER)) AS printer,
  coalesce(try_cast(regexp_extract(t.value, 'timeout from {1,3}rank (\d{1,7})\b', 1) AS INTEGER),
    printer) AS rank, coalesce(p.value, w.value) AS trained_on
FROM topology t LEFT JOIN rank_host h ON h.rank = t.rank
LEFT JOIN topology p ON p.kind = 'progress'
  AND regexp_replace(p.source, ':\d{1,9}$', '') = regexp_replace(t.source, ':\d{1,9}$', '')
LEFT JOIN topology c ON c.kind = 'said-at' AND c.source = t.source
LEFT JOIN topology w ON w.kind = 'survived' AND w.source = t.source
WHERE t.kind = 'warning';

-- What torch's watchdog says of a rank's progress in a process group. Sequence numbers count the
-- calls of a group; of sends and receives each rank counts its own.
--   pg: the group's id, as all ranks have it; 'local 3' where only this rank calls it that, '' where
--     the line names none
--   waits_in: number of the call that did not end in time
--   enqueued: of the last call that the rank made
CREATE VIEW said_progress AS
SELECT printer AS rank, host, source, line,
  coalesce(nullif(regexp_extract(value, 'PG GUID (\w{1,40})', 1), ''),
    nullif(regexp_extract(value, '\[PG (?:ID )?(0)\b', 1), ''),
    regexp_replace(regexp_extract(value, '\[PG (?:ID )?\d{1,9}\b'), '^\D{4,7}', 'local ')) AS pg,
  try_cast(coalesce(nullif(regexp_extract(value, 'SeqNum=(\d{1,15})', 1), ''),
    regexp_extract(value, '(?:Timeout at NCCL work|by watchdog at work|sequence id): (\d{1,15})', 1))
    AS BIGINT) AS waits_in,
  try_cast(regexp_extract(value, '[Ll]ast enqueued (?:NCCL )?work: (\d{1,15})', 1) AS BIGINT) AS enqueued
FROM said_line WHERE printer IS NOT NULL AND name IN ('watchdog-timeout', 'watchdog-says');

-- One row: which process group the watchdogs name.
--   of_all: that of all ranks, or none
CREATE VIEW said_group AS
SELECT coalesce(max(pg), '') IN ('', '0') AS of_all FROM said_progress;

-- The first call in which each rank's watchdog gave up, or which it only joined by torch's report of
-- who is where. That the call is one in which a watchdog gave up tells ranks that wait from late ones.
--   said: the line
--   seq: number of the call in its group
--   op: operation; null, as the elements, where no line says it
--   elements: that this rank puts in
CREATE VIEW abandoned_call AS
WITH gave_up AS (
SELECT printer AS rank, min_by(value, (is_late, line)) AS said, min(line) AS line,
  min_by(source, (is_late, line)) AS source, min_by(host, (is_late, line)) AS host,
  coalesce(try_cast(regexp_extract(said,
      '(?:SeqNum=|Timeout at NCCL work: |watchdog at work: |sequence id: )(\d{1,15})', 1) AS BIGINT),
    try_cast(regexp_extract(said, '[Ll]ast completed (?:NCCL )?work: (\d{1,15})', 1) AS BIGINT) + 1)
    AS seq,
  nullif(regexp_extract(said, 'OpType=(\w{1,60})', 1), '') AS op,
  nullif(regexp_extract(said, 'NumelIn=(\d{1,18})', 1), '') AS elements
FROM (SELECT *, NOT contains(value, 'WorkNCCL(') AS is_late FROM said_line
  WHERE printer IS NOT NULL AND (name = 'watchdog-timeout'
      -- What a rank that gave up itself tells before it takes the job down.
      AND (contains(value, 'WorkNCCL(') OR contains(value, 'timeout from this local rank'))
    OR name IN ('watchdog-says', 'watchdog-timeout')
      AND regexp_matches(value, '(?:Timeout at NCCL work|by watchdog at work|sequence id): \d')))
GROUP BY 1)
FROM gave_up UNION ALL BY NAME
SELECT r.rank, min(said) AS said, min(r.line) AS line, min(r.source) AS source, seq, any_value(g.op) AS op
FROM (SELECT unnest(regexp_extract_all(
      regexp_extract(value, '\[([\d, ]+)\] joined but', 1), '\d{1,7}'))::INTEGER AS rank, line, source,
    try_cast(regexp_extract(value, 'finish collective #(\d{1,15})', 1) AS BIGINT) AS seq
  FROM said_line WHERE name = 'missing-rank') r
JOIN (SELECT seq, min(op) AS op, min(said) AS said FROM gave_up GROUP BY seq) g USING (seq)
WHERE r.rank NOT IN (SELECT rank FROM gave_up) GROUP BY r.rank, seq;

-- All calls in which ranks wait, beside each other: one row.
--   gap: between the first and the last of them
--   ops: different operations
--   sizes: different numbers of elements
--   alike: of operations to which every rank brings as much as the others
--   one_sided: one of them is no collective of all ranks
--   groups: process groups that the watchdogs name
--   of_all: the only one is that of all ranks
--   first_seq: the number of the first
--   lines: ranks that wait
--   ranks: they
--   said: what each waits in
CREATE VIEW abandoned_calls AS
WITH named AS (SELECT count(DISTINCT pg) AS groups, coalesce(min(pg) = '0', false) AS of_all
  FROM said_progress WHERE pg <> '')
SELECT max(seq) - min(seq) AS gap, count(DISTINCT op) AS ops, count(DISTINCT elements) AS sizes,
  string_agg('rank ' || rank || ' waits in call ' || seq
    || coalesce(' (' || op || ' of ' || elements || ')', ''), ', ' ORDER BY seq, rank) AS said,
  min_by(source, line) AS source, list(rank ORDER BY rank) AS ranks,
  list(DISTINCT host) FILTER (host IS NOT NULL) AS hosts, min(line) AS line, count(*) AS lines,
  bool_and(op IN ('ALLREDUCE', 'ALLGATHER', '_ALLGATHER_BASE', 'REDUCE_SCATTER',
    '_REDUCE_SCATTER_BASE', 'BROADCAST', 'REDUCE')) AS alike,
  bool_or(op IN ('SEND', 'RECV', 'COALESCED', 'BROADCAST', 'REDUCE', 'SCATTER', 'GATHER')) AS one_sided,
  min(seq) AS first_seq,
  (SELECT groups FROM named) AS groups, (SELECT of_all FROM named) AS of_all
FROM abandoned_call WHERE seq IS NOT NULL HAVING count(*) > 0;

-- How many ranks the job has, as far as a line says so: null where none does.
CREATE VIEW said_size AS
SELECT max(try_cast(regexp_extract(value, '(?:"ranks": |world_size[=: ]{1,3})(\d{1,7})\b', 1) AS BIGINT))
  AS ranks -- of the largest communicator or group
FROM topology WHERE kind IN ('communicator', 'warning');

-- Ends that a launcher brought after a rank that gave up waiting had ended: no rows where none did.
--   line: of the first of them
CREATE VIEW killed_with AS
SELECT min(k.line) AS line, any_value(k.source ORDER BY k.line) AS source
FROM said_line k WHERE k.name IN ('stopped', 'rank-killed')
  AND k.line > (SELECT min(line) FROM abandoned_call)
-- torch's watchdogs look ten times a second: seconds later all that waited had told.
HAVING count(*) > 0 AND NOT coalesce(
  epoch(try_cast(min(regexp_extract(k.value, '\b[EWI]\d{4} (\d\d:\d\d:\d\d)', 1)) AS TIME))
  - (SELECT epoch(try_cast(max(regexp_extract(said, '\b[EWI]\d{4} (\d\d:\d\d:\d\d)', 1)) AS TIME))
    FROM abandoned_call) > 5, false);

-- Ranks that never came to a collective in which others wait: torch names them, or they made fewer
-- calls, or of the group of all they alone report no time-out.
--   known_from: 'named', 'fewer calls' or 'silent'
--   rank: that did not come
--   said: what tells so
CREATE VIEW missing_rank AS
WITH named AS (
  SELECT unnest(regexp_extract_all(coalesce(
      nullif(regexp_extract(value, 'Ranks? ([\d, ]+) failed to pass monitoredBarrier', 1), ''),
      nullif(regexp_extract(value, '\branks? \[([\d, ]+)\] are the lagging', 1), ''),
      nullif(regexp_extract(value, '(?:[Mm]issing ranks: |is NOT connected to: \[)([\d, ]+)[:\]]', 1), ''),
      nullif(regexp_extract(value, 'ncclUniqueId from \[(\d{1,7})\].{1,120}[Tt]imeout', 1), ''),
      regexp_extract(value, '\[([\d, ]+)\] (?:joined but|finished collective)', 1)),
      '\d{1,7}'))::INTEGER AS rank, value AS said, source, line
  FROM said_line WHERE name IN ('barrier-timeout', 'missing-rank', 'store-timeout')
    AND coalesce(try_cast(regexp_extract(value, 'finish collective #(\d{1,15})', 1) AS BIGINT)
      NOT IN (SELECT seq FROM abandoned_call WHERE seq IS NOT NULL), true)),
-- Of the group of all where the lines name no other.
of_all AS (
  SELECT max(seq) AS seq, max_by(source, seq) AS source, min(line) AS line, count(*) AS waiting,
    max(rank) AS last_rank, list(rank) AS ranks
  FROM abandoned_call
  HAVING min(seq) = max(seq) AND count(*) > 1
    AND (SELECT of_all FROM said_group)
    AND coalesce(bool_and(op NOT IN ('SEND', 'RECV', 'COALESCED')), true)),
-- A launcher that ends all when one ends leaves the others no time to tell that they wait.
silent AS (
  SELECT unnest(range(greatest(coalesce(s.ranks, 0), a.last_rank + 1)))::INTEGER AS rank, a.*
  FROM of_all a, said_size s WHERE NOT EXISTS (FROM killed_with)
    -- Where the watchdogs' first lines are the last, others may have told below.
    AND EXISTS (FROM said_line l WHERE l.line > a.line AND NOT contains(l.value, 'Watchdog caught'))),
behind AS (
  SELECT p.rank, w.waits_in, max(p.enqueued) AS enqueued, max_by(p.source, p.enqueued) AS source,
    min(p.line) AS line
  FROM said_progress p JOIN (
    SELECT pg, max(waits_in) AS waits_in FROM said_progress
    WHERE pg <> '' AND NOT starts_with(pg, 'local') GROUP BY pg) w USING (pg)
  GROUP BY p.rank, p.pg, w.waits_in HAVING max(p.enqueued) < w.waits_in
    -- Who waits in a call came to it: others that passed a broadcast have what this rank waits for.
    AND NOT EXISTS (FROM abandoned_call a WHERE a.rank = p.rank AND a.op = 'BROADCAST'))
SELECT 'named' AS known_from, rank, any_value(said) AS said, min_by(source, line) AS source,
  min(line) AS line FROM named GROUP BY rank
UNION ALL
SELECT 'fewer calls', rank, 'rank ' || rank || ' made ' || enqueued || ' calls, others wait in call '
  || waits_in, source, line
FROM behind WHERE NOT EXISTS (FROM named)
  AND NOT EXISTS (FROM abandoned_call WHERE op IN ('SEND', 'RECV', 'COALESCED'))
UNION ALL
SELECT 'silent', rank, waiting || ' other ranks wait in call ' || seq, source, line
FROM silent WHERE NOT list_contains(ranks, rank) AND NOT EXISTS (FROM named) AND NOT EXISTS (FROM behind)
QUALIFY count(*) OVER () < waiting;

-- What was said, by message: the lines that one entry of the catalogue names, and what several lines
-- tell only together.
--   message: entry of the catalogue, or 'unlisted'
--   lines: of it
--   said: the first of them, or what they tell
--   first_line: file and line
--   line: number of that line in its file
CREATE VIEW said_message AS
SELECT coalesce(nullif(name, ''), 'unlisted') AS message, count(value) AS lines,
  min_by(value, (is_over, line)) AS said, min_by(source, (is_over, line)) AS first_line,
  list(DISTINCT rank ORDER BY rank) FILTER (rank IS NOT NULL) AS ranks,
  list(DISTINCT host ORDER BY host) FILTER (host IS NOT NULL) AS hosts,
  coalesce(min(line) FILTER (NOT is_over), min(line)) AS line
FROM (
  SELECT *, trained_on IS NOT NULL AS is_over FROM said_line
  UNION ALL BY NAME
  -- Two ranks are of it that are on one GPU.
  SELECT * REPLACE (NULL AS value, NULL AS line,
    try_cast(regexp_extract(value, 'rank \d{1,7} and rank (\d{1,7})\b', 1) AS INTEGER) AS rank),
    true AS is_over
  FROM said_line WHERE name = 'duplicate-gpu' AND contains(value, ' and rank '))
WHERE name <> 'missing-rank' AND (name <> 'barrier-timeout' OR NOT EXISTS (FROM missing_rank))
  -- A failure of CUDA's is not for lack of shared memory.
  AND (name <> 'shm-small' OR EXISTS (FROM said_line
    WHERE name = 'unhandled' AND regexp_matches(value, 'ystem ?[Ee]rror')))
GROUP BY 1
UNION ALL
SELECT CASE known_from WHEN 'silent' THEN 'silent-rank' ELSE 'missing-rank' END, count(*),
  any_value(m.said), min_by(source, line), list(rank ORDER BY rank),
  list(DISTINCT h.host) FILTER (h.host IS NOT NULL), min(line)
FROM missing_rank m LEFT JOIN rank_host h USING (rank) GROUP BY 1
UNION ALL
-- The only rank that says of no connection that it closed, where others ended for it.
SELECT 'first-gone', 1, 'all other ranks lost a connection', min(source), [s.rank],
  list(DISTINCT h.host) FILTER (h.host IS NOT NULL), min(l.line)
FROM (SELECT unnest(range(ranks))::INTEGER AS rank FROM said_size) s LEFT JOIN rank_host h USING (rank), (
  SELECT list(DISTINCT rank) AS ranks, min(source) AS source, min(line) AS line FROM said_line
  WHERE name = 'peer-closed' AND rank IS NOT NULL
    AND EXISTS (FROM said_line WHERE name IN ('aborted', 'child-failed', 'first-failed'))) l
WHERE NOT list_contains(l.ranks, s.rank) AND len(l.ranks) > 1
GROUP BY s.rank QUALIFY count(*) OVER () = 1
UNION ALL
-- Some report that they wait, and the launcher ended the rest before it could.
SELECT 'reporting-ranks-wait', count(*), 'ranks ' || string_agg(a.rank, ', ' ORDER BY a.rank) || ' of '
    || any_value(s.ranks) || ' wait in call ' || max(a.seq) || '; then the launcher ended the others',
  min_by(a.source, a.line), NULL, NULL, min(a.line)
FROM abandoned_call a, said_size s WHERE EXISTS (FROM killed_with) AND NOT EXISTS (FROM missing_rank)
HAVING count(*) > 1 AND min(a.seq) = max(a.seq) AND count(*) < any_value(s.ranks)
  AND coalesce(bool_and(a.op NOT IN ('SEND', 'RECV', 'COALESCED')), true)
  AND (SELECT of_all FROM said_group)
UNION ALL
-- The root of a broadcast passes it alone; that others do not get what it sent is the network's.
SELECT 'broadcast-not-arrived', count(*), 'ranks ' || string_agg(a.rank, ', ' ORDER BY a.rank)
    || ' wait in broadcast ' || min(a.seq) || ', another in call ' || any_value(f.seq),
  min_by(a.source, a.line), NULL, NULL, min(a.line)
FROM abandoned_call a, (SELECT max(seq) AS seq FROM abandoned_call) f
WHERE a.op = 'BROADCAST' AND a.seq < f.seq AND NOT EXISTS (FROM missing_rank)
  AND (SELECT of_all FROM said_group)
HAVING count(*) > 0 AND min(a.seq) = max(a.seq)
UNION ALL
SELECT 'all-ranks-wait', count(*), 'all of ranks 0 to ' || max(rank) || ' wait in call ' || max(seq),
  min_by(source, line), NULL, list(DISTINCT host) FILTER (host IS NOT NULL), min(line)
FROM abandoned_call WHERE seq IS NOT NULL
HAVING count(*) > 1 AND min(rank) = 0 AND max(rank) = count(*) - 1 AND min(seq) = max(seq)
  -- Where nothing tells how many there are, three are more likely four without one.
  AND coalesce(count(*) >= (SELECT max(ranks) FROM said_size), count(*) IN (2, 4) OR count(*) % 8 = 0)
  AND (SELECT of_all FROM said_group)
  AND NOT EXISTS (FROM missing_rank)
UNION ALL
SELECT 'first-collective', count(*),
  min_by(regexp_extract(value,
    '(?:[Ll]ast enqueued (?:NCCL )?work: \d{1,15}, )?[Ll]ast completed .*'), line),
  min_by(source, line),
  list(DISTINCT rank ORDER BY rank) FILTER (rank IS NOT NULL),
  list(DISTINCT host ORDER BY host) FILTER (host IS NOT NULL), min(line)
FROM said_line WHERE name IN ('watchdog-timeout', 'watchdog-says')
  AND regexp_matches(value, '[Ll]ast completed (?:NCCL )?work: -1\b')
  AND NOT EXISTS (FROM missing_rank)
HAVING count(*) > 0
UNION ALL
-- Hosts that each load one release, and not the same, are refused by NCCL or hang.
SELECT 'version-mismatch', count(*), string_agg(host || ' ' || release, ', ' ORDER BY host),
  min(source), NULL, list(host ORDER BY host), NULL
FROM (SELECT host, min(value) AS release, min(source) AS source FROM topology
  WHERE kind = 'version' AND name = 'nccl' AND host IS NOT NULL
  GROUP BY host HAVING count(DISTINCT value) = 1)
WHERE NOT EXISTS (FROM said_line WHERE name = 'version-mismatch')
HAVING count(DISTINCT release) > 1
UNION ALL
-- A runtime of CUDA asks for a driver of its own major release or a later one; minor ones are compatible
-- (NVIDIA's guide to CUDA's compatibility). A package cuda-compat reports its own release.
SELECT 'driver-too-old', count(*), string_agg(DISTINCT coalesce(d.host || ': ', '') || 'the driver is of CUDA '
    || d.release // 1000 || '.' || d.release % 1000 // 10 || ', NCCL''s runtime of ' || c.value, ', '),
  min(d.source), NULL, list(DISTINCT d.host) FILTER (d.host IS NOT NULL), min(d.line)
FROM (SELECT host, source, value::BIGINT AS release,
    try_cast(regexp_extract(source, ':(\d{1,9})$', 1) AS BIGINT) AS line
  FROM topology WHERE kind = 'version' AND name = 'driver') d
JOIN topology c ON c.kind = 'version' AND c.name = 'cuda' AND c.host IS NOT DISTINCT FROM d.host
WHERE d.release // 1000 < try_cast(split_part(c.value, '.', 1) AS BIGINT)
  AND NOT EXISTS (FROM said_line WHERE name = 'driver-too-old')
  -- What talks or trains has a driver that does.
  AND NOT EXISTS (FROM link) AND NOT EXISTS (FROM topology WHERE kind IN ('progress', 'channels', 'connected'))
HAVING count(*) > 0
UNION ALL
-- So do hosts of which each uses one network, and not the same.
SELECT 'network-differs', count(*), string_agg(host || ' ' || network, ', ' ORDER BY host),
  min(source), NULL, list(host ORDER BY host), NULL
FROM (SELECT host, min(value) AS network, min(source) AS source FROM topology
  WHERE kind = 'net' AND name = 'network' AND host IS NOT NULL
  GROUP BY host HAVING count(DISTINCT value) = 1)
HAVING count(DISTINCT network) > 1
UNION ALL
-- Bridges of containers among the interfaces, where connections fail.
SELECT 'bridge-interfaces', count(*),
  'NET/Socket : Using ' || string_agg(DISTINCT name, ', ' ORDER BY name),
  min(source), NULL, list(DISTINCT host ORDER BY host), NULL
FROM topology WHERE kind = 'nic' AND value LIKE '%"net": "Socket"%'
  AND EXISTS (FROM said_line WHERE name IN ('connection-timed-out', 'connection-refused',
    'connection-aborted') OR name = 'unhandled' AND regexp_matches(value, 'ystem ?[Ee]rror'))
HAVING bool_or(regexp_matches(name, '^(br-|veth|docker|virbr|cni|flannel|cali|lxc)'))
  AND NOT bool_and(regexp_matches(name, '^(br-|veth|docker|virbr|cni|flannel|cali|lxc)'))
UNION ALL
-- In one group ranks wait in the same call, or in neighbours: a rank that is two calls ahead of
-- another has finished one that the other never made. Nothing is said of what not all take part in.
SELECT 'mismatched-collective', lines, said, source, ranks, hosts, line FROM abandoned_calls
WHERE lines > 1 AND (groups = 1 AND of_all AND (gap >= 2 AND NOT one_sided OR gap = 0 AND ops > 1
    OR gap = 0 AND alike AND sizes > 1)
  OR groups = 0 AND gap = 0 AND ops = 1 AND alike AND sizes > 1 AND first_seq > 20);
