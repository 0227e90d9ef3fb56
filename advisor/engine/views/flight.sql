-- Flight-recorder dumps: how far each rank came, who waits for whom, where a hang starts.

-- Records of dumps that were read whole. One that lost records may have lost the last ones: how far
-- its rank came is not known, as where there is no dump.
CREATE VIEW flight_whole AS
FROM flight WHERE rank IS NULL OR rank NOT IN (
  SELECT rank FROM rank WHERE contains(drop_reasons::VARCHAR, '"flight-recorder: '));

-- How far each rank came in each group, from flight-recorder dumps: what it asked for and what
-- ended.
--   enqueued: sequence number of the last call asked for, -1 where none
--   completed: of the last call that ended, -1 where none
--   first_open: operation of the oldest call that has not ended
CREATE VIEW flight_progress AS
SELECT process_group, rank,
  coalesce(max(seq) FILTER (state = 'last_enqueued'), max(seq) FILTER (op IS NOT NULL), -1) AS enqueued,
  coalesce(max(seq) FILTER (state = 'last_completed'),
    max(seq) FILTER (op IS NOT NULL AND state = 'completed'), -1) AS completed,
  -- the oldest call that has not ended
  arg_min(op, seq) FILTER (op IS NOT NULL AND state <> 'completed') AS first_open
FROM flight_whole GROUP BY process_group, rank;

-- Sends and receives in dumps, by sender's and receiver's global rank.
--   kind: 'send' or 'recv'
--   peer: global rank of the other end
CREATE VIEW flight_message AS
WITH said AS (SELECT rank, process_group, state,
  regexp_extract(op, '^(send|recv) \d+(->|<-)(\d+)', ['kind', 'way', 'peer']) AS told
  FROM flight_whole WHERE starts_with(op, 'send ') OR starts_with(op, 'recv '))
SELECT s.rank, s.process_group, s.state, told.kind AS kind,
  g.ranks[try_cast(told.peer AS INTEGER) + 1] AS peer
FROM said s LEFT JOIN process_group g USING (process_group);

-- Groups whose counters count the same calls on every rank. Sends and receives are counted by
-- each rank for itself: a middle stage of a pipeline counts twice as many as its ends. Nor do
-- counters count the same where one rank ended more calls than another asked for.
--   most: calls asked for, of the rank that asked for most
--   least: of the rank that asked for fewest
--   completed: of the rank that ended most
CREATE VIEW flight_group AS
SELECT process_group, max(enqueued) AS most, min(enqueued) AS least, max(completed) AS completed
FROM flight_progress WHERE process_group NOT IN (SELECT process_group FROM flight_message)
GROUP BY process_group HAVING max(completed) <= min(enqueued);

-- Groups of a rank whose counters say that more calls are open than its dump holds: some were lost,
-- or fell out of the recorder's ring.
CREATE VIEW flight_lost AS
SELECT process_group, rank FROM flight_whole GROUP BY process_group, rank
HAVING max(seq) FILTER (state = 'last_enqueued') - max(seq) FILTER (state = 'last_completed')
  > count(*) FILTER (op IS NOT NULL AND state <> 'completed');

-- Who waits for whom by messages: of a pair's open sends (receives) the peer has asked for fewer
-- receives (sends). A dump that also holds messages which ended says nothing here: they may be
-- the counterparts. Nor does one that lost open calls of the group.
--   peer: the rank that is waited for
--   missing_calls: calls that it has not asked for
CREATE VIEW flight_message_wait AS
WITH open_message AS (
  SELECT process_group, rank, peer, kind, count(*) AS calls FROM flight_message
  WHERE state <> 'completed' AND peer IS NOT NULL GROUP BY ALL)
SELECT m.process_group, m.rank, m.peer, m.calls - coalesce(p.calls, 0) AS missing_calls
FROM open_message m LEFT JOIN open_message p
  ON p.process_group = m.process_group AND p.rank = m.peer AND p.peer = m.rank AND p.kind <> m.kind
WHERE m.calls > coalesce(p.calls, 0) AND m.peer IN (SELECT rank FROM flight_whole)
  AND (m.process_group, m.peer) NOT IN (SELECT (process_group, rank) FROM flight_lost)
  AND NOT EXISTS (SELECT 1 FROM flight_message d WHERE d.state = 'completed' AND d.rank = m.peer
    AND d.peer = m.rank AND d.process_group = m.process_group);

-- Per rank: groups in which it has not asked for what a peer waits for (behind_in), groups in
-- which it waits itself (waits_in): for a peer that has not asked, or for one without a dump
-- where nobody's dump says that the call ended; and calls that need all ranks, ended at a peer
-- and did not here (unfinished: its device, or the way to it, stopped). A rank that holds others
-- up while waiting for nobody, or that stopped, is where a hang starts. A rank without a dump may
-- hold up all its groups: what it does is not known.
--   no_dump: whether its dump is missing, or lost records
--   behind_in: groups in which it has not asked for what a peer waits for
--   waits_in: groups in which it waits itself
--   behind_groups: those it is behind in, worst first
--   missing_calls: most calls it has not asked for, in one group
--   unfinished: calls that ended at a peer and not here
CREATE VIEW flight_blame AS
WITH silent AS (
  SELECT DISTINCT rank, process_group FROM group_member
  WHERE rank NOT IN (SELECT rank FROM flight_whole)
    AND process_group IN (SELECT process_group FROM flight_progress GROUP BY process_group
      HAVING max(enqueued) > max(completed))),
place AS (
  SELECT p.rank, p.process_group, CASE WHEN s.most > s.completed THEN s.most - p.enqueued
    ELSE 0 END AS missing_calls,
    CASE WHEN p.first_open IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier')
      THEN s.completed - p.completed ELSE 0 END AS unfinished,
    s.most > s.completed
      AND (p.enqueued > s.least
        OR (p.enqueued > s.completed AND p.process_group IN (SELECT process_group FROM silent))) AS waits
  FROM flight_progress p JOIN flight_group s USING (process_group)
  UNION ALL
  SELECT peer, process_group, max(missing_calls), 0, false FROM flight_message_wait
  GROUP BY peer, process_group
  UNION ALL
  SELECT rank, process_group, 0, 0, true FROM flight_message_wait
  UNION ALL
  SELECT m.rank, m.process_group, 0, 0, true FROM flight_message m SEMI
  JOIN silent s ON s.rank = m.peer AND s.process_group = m.process_group WHERE m.state <> 'completed')
SELECT rank, false AS no_dump,
  count(DISTINCT process_group) FILTER (missing_calls > 0) AS behind_in,
  count(DISTINCT process_group) FILTER (waits) AS waits_in,
  list(process_group ORDER BY missing_calls DESC, process_group)
    FILTER (missing_calls > 0) AS behind_groups,
  max(missing_calls) FILTER (missing_calls > 0) AS missing_calls,
  max(unfinished) AS unfinished
FROM place GROUP BY rank
UNION ALL
SELECT rank, true, count(*), 0, list(process_group ORDER BY process_group), NULL, 0 FROM silent
GROUP BY rank;

-- Where a hang starts; ranks without a dump only where every rank in the dumps waits itself, and
-- only where the dumps of most ranks are here: of a few files nobody can say.
CREATE VIEW flight_origin AS
WITH shown AS (SELECT rank FROM flight_blame
  WHERE NOT no_dump AND (unfinished > 0 OR (behind_in > 0 AND waits_in = 0)))
SELECT * FROM flight_blame WHERE rank IN (FROM shown) OR (no_dump AND NOT EXISTS (FROM shown)
  AND (SELECT count(DISTINCT rank) FROM flight_whole) > (SELECT count(*) FROM flight_blame WHERE no_dump));

-- Calls of one group and sequence number whose operation or size differs between ranks that know it.
--   ops: the operations asked for
--   sizes: the sizes asked for
--   origin: 'flight-recorder' or 'trace'
CREATE VIEW mismatch AS
SELECT process_group, seq, list(DISTINCT op ORDER BY op) AS ops,
  list(DISTINCT sizes ORDER BY sizes) AS sizes,
  list(rank ORDER BY rank) AS ranks, 'flight-recorder' AS origin
FROM (SELECT process_group, seq, rank, op,
  CASE WHEN op IN ('all_reduce', 'broadcast', 'reduce') THEN nullif(input_sizes, '[]') ELSE '' END AS sizes
      FROM flight WHERE op IS NOT NULL AND op NOT LIKE 'send%' AND op NOT LIKE 'recv%')
GROUP BY process_group, seq HAVING count(DISTINCT op) > 1 OR count(DISTINCT sizes) > 1
UNION ALL
SELECT process_group, NULL, NULL, NULL, list(rank ORDER BY rank), 'trace' FROM unmatched
WHERE reason = 'mismatched signature' GROUP BY process_group;
