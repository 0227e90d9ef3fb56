-- Who comes last to calls of which only the length is known (flight recorder, NCCL's Inspector).
-- All ranks leave a synchronising call within about the time of its transfer, so that who came last
-- is in it for the shortest time: no clocks are compared.

-- Synchronising calls that two ranks or more have timed, once each.
-- No rows without timed_call.
--   last_rank: the rank that was in it for the shortest time
--   shortest_ns: that time
--   kept_ns: how much longer each other rank was in it, at least
--   apart: whether that is more than its transfer takes, so that it is no order of leaving
CREATE VIEW timed_meeting AS
SELECT process_group, seq, op, count(*) AS ranks, arg_min(rank, dur_ns) AS last_rank,
  min(dur_ns) AS shortest_ns, min(dur_ns, 2)[2] - shortest_ns AS kept_ns, kept_ns >= shortest_ns AS apart
FROM timed_call
WHERE seq IS NOT NULL
  AND op IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier')
GROUP BY process_group, seq, op HAVING count(*) > 1 AND count(DISTINCT rank) = count(*);

-- Per rank, what the others waited for it in these calls and what it waited itself.
--   calls: its calls that others have timed too
--   times_last: calls that all others entered before it
--   even_share: share of its calls in which it would be the last by chance
--   kept_ns: how long all others waited for it alone, in all calls
--   waited_ns: how long it waited itself, at most: a receive, and a call that nobody else timed, may
--     be waiting as a whole
--   span_ns: from its first call to its last; null where that is not known
--   chance: at most so likely is it by chance the last so often, corrected for the number of ranks
--     (Hoeffding 1963)
CREATE VIEW late_in_timed AS
WITH timed AS (
  SELECT c.rank, c.dur_ns, c.at_ns, m.ranks, m.last_rank IS NOT NULL AS met,
    coalesce(m.last_rank = c.rank AND m.apart, false) AS is_last,
    CASE WHEN is_last THEN m.kept_ns ELSE 0 END AS kept_ns,
    CASE WHEN c.op = 'send' THEN 0 ELSE c.dur_ns - coalesce(m.shortest_ns, 0) END AS waited_ns
  FROM timed_call c LEFT JOIN timed_meeting m
    ON m.process_group IS NOT DISTINCT FROM c.process_group AND m.seq = c.seq AND m.op = c.op),
of_rank AS (
  SELECT rank, count(*) FILTER (met) AS calls, count(*) FILTER (is_last) AS times_last,
    avg(1 / ranks) FILTER (met) AS even_share, sum(kept_ns)::BIGINT AS kept_ns,
    sum(waited_ns)::BIGINT AS waited_ns, nullif(max(at_ns) - min(at_ns), 0) AS span_ns
  FROM timed GROUP BY rank HAVING calls > 0)
SELECT *, CASE WHEN times_last > even_share * calls
  THEN least(1, count(*) OVER () * exp(-2 * calls * power(times_last / calls - even_share, 2)))
  ELSE 1 END AS chance
FROM of_rank;
