-- Calls of collectives in the steps that count, and what is summed over them.

-- Collective calls of used steps; exposed_transfer_ns leaves out waiting for peers that were
-- read.
-- No rows without collective.
CREATE VIEW call AS
SELECT c.* EXCLUDE (exposed_transfer_ns),
  c.end_ns - c.start_ns AS dur_ns,                                            -- on this rank
  coalesce(c.exposed_ns, c.end_ns - c.start_ns) AS exposed_all_ns,            -- not under compute
  coalesce(c.exposed_transfer_ns,
    greatest(0, coalesce(c.exposed_ns, c.end_ns - c.start_ns) - coalesce(c.wait_ns, 0)))
    AS exposed_transfer_ns, -- the same without waiting; time that calls share is split between them
  coalesce(c.t_is = 'upper bound'
    AND CASE WHEN c.group_size IS NULL THEN (SELECT ranks_read < coalesce(world_size, 2) FROM facts)
      ELSE c.group_size > 1 END, false)
    AS partly_read -- a rank of the call is missing: waiting for it may be all of that time
FROM collective c SEMI JOIN used_step USING (step) SEMI JOIN whole_rank USING (rank);

-- The same calls with what of them is exposed waiting, ns: calls of a rank that wait at once share its
-- step's waiting in proportion to theirs. Where nothing tells that, it is what transfer leaves of all that
-- is exposed.
-- No rows without call.
CREATE VIEW waiting_call AS
SELECT c.* EXCLUDE (own_ns, moved_ns),
  coalesce(least(1, coalesce(b.exposed_wait_ns, greatest(0, b.exposed_comm_ns - moved_ns))
    / sum(own_ns) OVER (PARTITION BY c.rank, c.step)), 1) * own_ns AS exposed_wait_ns
FROM (SELECT *, greatest(0, exposed_all_ns - exposed_transfer_ns) AS own_ns,
    sum(exposed_transfer_ns) OVER (PARTITION BY rank, step) AS moved_ns FROM call) c
  LEFT JOIN (SELECT rank, step, exposed_wait_ns, exposed_comm_ns FROM rank_step) b USING (rank, step);

-- Lateness over all groups. summed_cost_ns is METRICS' cost, per used step: the sum over the
-- calls in which the rank is last, and over the other ranks, of last start less own start (calls
-- that run at once count each, hidden waits too). peer_cost_ns and peer_wait_ns are cost_ns_per_step
-- and wait_ns_per_step as mean over those that share calls with it.
-- No rows without lateness.
--   late_ranks: it, and the ranks of its host, or at its place of other groups, that are late as it is
--   summed_cost_ns: per used step, over all calls in which it is last and all other ranks
--   all_ns: all ranks' cost per used step, ns
--   of_peers: ranks over those that share calls with it
--   peer_cost_ns: per used step, mean over the ranks that share calls with it
--   peer_wait_ns: of that the waiting of a breakdown: no other call of the peer transfers
--   clock_ns: by how much clocks that are off may make it late; 0 where ranks of its own host, which have
--     the same clock, wait as long for it as all others do
CREATE VIEW late_rank AS
WITH summed AS (
  SELECT last_rank AS rank, sum(wait_ns) / (SELECT count(*) FROM used_step) AS ns FROM call
  WHERE last_rank IS NOT NULL
    AND op IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier') GROUP BY last_rank)
SELECT l.*, r.host,
  coalesce(TRY_CAST(TRY_CAST(l.reason_evidence AS JSON) -> '$.with' AS INTEGER[]), [l.rank]) AS late_ranks,
  coalesce(s.ns, 0)::BIGINT AS summed_cost_ns, sum(cost_ns_per_step) OVER () AS all_ns,
  coalesce(TRY_CAST(l.reason_evidence ->> 'others_per_peer' AS DOUBLE), 1) AS of_peers,
  (cost_ns_per_step * of_peers)::BIGINT AS peer_cost_ns,
  (coalesce(wait_ns_per_step, cost_ns_per_step) * of_peers)::BIGINT AS peer_wait_ns,
  CASE WHEN EXISTS (FROM lateness i JOIN group_host g USING (process_group) WHERE i.rank = l.rank
      AND g.hosts = 1 AND i.systematic AND i.cost_ns_per_step >= l.cost_ns_per_step) THEN 0
    ELSE (SELECT greatest(median(clock_residual_ns), max(clock_residual_ns) FILTER (rank = l.rank), 0)
      FROM rank) END AS clock_ns
FROM lateness l LEFT JOIN rank r ON r.rank = l.rank LEFT JOIN summed s ON s.rank = l.rank
WHERE l.process_group IS NULL;

-- Gradient reductions: known buckets; of a group and operation without any, reductions in the backward
-- pass where the group does not reduce in the forward pass (tensor parallelism does). What is reduced
-- beside known buckets is the model's own (SyncBatchNorm).
-- No rows without call.
CREATE VIEW gradient_call AS
WITH bucket AS (SELECT rank, call_id FROM param_bucket),
bucketed AS (SELECT DISTINCT op, process_group FROM call SEMI JOIN bucket USING (rank, call_id)),
summing AS (
  SELECT DISTINCT process_group FROM call WHERE op IN ('all_reduce', 'reduce_scatter') AND phase = 'forward')
SELECT c.* FROM call c
WHERE c.op IN ('all_reduce', 'reduce_scatter', 'reduce') AND (
  (c.rank, c.call_id) IN (FROM bucket)
  OR (c.phase = 'backward'
    AND NOT EXISTS (FROM bucketed b WHERE b.op = c.op AND b.process_group IS NOT DISTINCT FROM c.process_group)
    AND NOT EXISTS (FROM summing s WHERE s.process_group IS NOT DISTINCT FROM c.process_group)));

-- Used steps of the ranks that call in a group: groups side by side wait at once, so that each one's
-- time per step is its own members'.
-- No rows without call.
--   n: used steps, summed over those ranks
CREATE VIEW group_step AS
SELECT process_group, count(*) AS n FROM (SELECT DISTINCT process_group, rank FROM call)
JOIN rank_step USING (rank) GROUP BY process_group;

-- Groups that scatter activations (sequence parallelism), not gradients, or that say they are
-- tensor-parallel: what they gather and reduce is for the next operator. Where no rank trains
-- there are no gradients, and whatever a group reduces is activations.
CREATE VIEW activation_group AS
SELECT process_group FROM process_group
WHERE regexp_matches(lower(description), '(^|[^a-z])(tp|tensor)([^a-z]|$)')
  AND NOT regexp_matches(lower(description), '(^|[^a-z])(dp|data)([^a-z]|$)')
UNION
SELECT process_group FROM call WHERE op = 'reduce_scatter' GROUP BY process_group
HAVING bool_or(phase IN ('forward', 'other'))
  AND NOT bool_or((rank, call_id) IN (SELECT (rank, call_id) FROM param_bucket))
UNION
SELECT process_group FROM call WHERE op IN ('all_reduce', 'reduce_scatter')
  AND (SELECT purpose FROM facts) IN ('inference', 'forward');

-- Gradient buckets per rank and step-independent place, with the part of the fitted time that is
-- latency. median over used steps.
-- No rows without gradient_call.
--   worst_call: call_id of the call with the most exposed transfer
--   passes: backward passes that reduce, per rank and step; no bucket holds gradients of two
CREATE VIEW gradient_group AS
SELECT g.process_group, g.op, any_value(coalesce(g.wire_op, g.op)) AS wire_op,
  any_value(g.group_size) AS group_size,
  count(*) / count(DISTINCT (g.rank, g.step)) AS calls,              -- per rank and step
  sum(g.bytes)::DOUBLE / count(DISTINCT (g.rank, g.step)) AS bytes,  -- per rank and step
  median(g.bytes) AS median_bytes,                                   -- of a call
  sum(g.exposed_transfer_ns)::DOUBLE / count(DISTINCT (g.rank, g.step)) AS exposed_ns,
  bool_and(g.op = 'all_reduce' AND g.phase IS DISTINCT FROM 'backward') AS by_hand, -- after backward
  by_hand OR bool_and(g.op = 'reduce_scatter' AND coalesce(g.phase, '') = 'other')
    AS after_backward, -- by hand, or by an optimizer that shards its state
  list(DISTINCT g.rank ORDER BY g.rank) AS ranks,
  arg_max(g.call_id, g.exposed_transfer_ns) AS worst_call,
  greatest(1, count(DISTINCT (g.rank, g.step, b.backward_pass)) FILTER (b.backward_pass IS NOT NULL)
    / count(DISTINCT (g.rank, g.step))) AS passes
FROM gradient_call g LEFT JOIN param_bucket b ON b.rank = g.rank AND b.step = g.step AND b.call_id = g.call_id
GROUP BY g.process_group, g.op;

-- Operations that could run under other compute: gradient reductions and parameter gathers. A
-- group that reduces in the forward pass too (tensor parallelism) hands its result to the next
-- operator. Without device streams FSDP2 waits for every reduce-scatter (and HSDP for the
-- all-reduce after it), and FSDP1, whose calls carry no unit's name, for every gather as well: no
-- setting overlaps them there.
-- No rows without call.
CREATE VIEW overlappable AS
SELECT op, process_group FROM call
WHERE op IN ('all_reduce', 'reduce_scatter', 'all_gather', 'reduce')
GROUP BY op, process_group
HAVING (op <> 'all_reduce' OR NOT bool_or(coalesce(phase, '') = 'forward'))
  AND coalesce(process_group, '') NOT IN (SELECT coalesce(process_group, '') FROM activation_group)
  AND NOT (op IN ('all_reduce', 'reduce_scatter') AND (SELECT timeline FROM facts) = 'host'
    AND EXISTS (SELECT 1 FROM call WHERE op = 'reduce_scatter'))
  AND NOT (op = 'all_gather' AND (SELECT timeline FROM facts) = 'host' AND bool_and(module IS NULL)
    AND bool_or(phase IN ('forward', 'backward')));

-- Per group and operation, the time of a step in which the stream that runs it on a device transfers nothing.
-- No call can be moved there from where it is exposed if there is none: calls of one communicator do
-- not run beside each other. What waits for a rank that was not read is no transfer.
-- No rows without call.
--   free_ns: mean over ranks and steps
CREATE VIEW stream_room AS
WITH busy AS (
  SELECT rank, step, stream,
    sum(CASE WHEN partly_read THEN 0 ELSE coalesce(transfer_ns, 0) END) AS busy_ns
  FROM call WHERE stream IS NOT NULL AND (SELECT timeline FROM facts) = 'device' GROUP BY ALL)
SELECT process_group, op, avg(greatest(0, window_ns - busy_ns)) AS free_ns
FROM (SELECT DISTINCT rank, step, stream, process_group, op FROM call) JOIN busy USING (rank, step, stream)
  JOIN rank_step USING (rank, step)
GROUP BY process_group, op;

-- What a device idles between two calls of a stream, the second of which was asked for before the first
-- ended: a part of each call that no call's own time holds. A CPU has none. Longer gaps wait for compute.
--   gap_ns: median
CREATE VIEW between_calls AS
SELECT coalesce(median(gap_ns) FILTER (gap_ns BETWEEN 0 AND 20000), 0) AS gap_ns FROM (
  SELECT lead(start_ns) OVER queue - end_ns AS gap_ns, lead(enqueue_ns) OVER queue < end_ns AS queued
  FROM call WHERE stream IS NOT NULL AND (SELECT timeline FROM facts) = 'device'
  WINDOW queue AS (PARTITION BY rank, stream ORDER BY start_ns))
WHERE queued;

-- Groups whose calls run on the stream that computes: whatever is asked for when, nothing overlaps.
-- No rows without call.
CREATE VIEW in_line AS
SELECT c.process_group FROM call c JOIN device_queue q USING (rank)
WHERE c.op IN ('all_reduce', 'reduce_scatter', 'all_gather') GROUP BY c.process_group
HAVING avg((c.stream = q.compute_stream)::INT) > 0.5;

-- How long each device stream of calls stood idle before a call and all before it; what queued calls
-- leave between them is none.
-- No rows without call.
--   stood_ns: ns
CREATE VIEW stream_stood AS
SELECT rank, call_id, sum(CASE WHEN idle_ns > 20000 THEN idle_ns ELSE 0 END)
  OVER (PARTITION BY rank, stream ORDER BY start_ns) AS stood_ns
FROM (SELECT rank, stream, call_id, start_ns, start_ns - max(end_ns) OVER (PARTITION BY rank, stream
    ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_ns
  FROM call WHERE stream IS NOT NULL AND (SELECT timeline FROM facts) = 'device');

-- Gradient reductions per rank and step: how much is exposed, and the time between the calls,
-- which holds the work that could have run meanwhile.
-- No rows without gradient_call.
--   worst_call: call_id of the call with the most exposed transfer
CREATE VIEW gradient_gap AS
WITH ordered AS (
  SELECT rank, step, process_group, op, bytes, call_id, exposed_transfer_ns,
    dur_ns - coalesce(wait_ns, 0) AS took_ns,
    coalesce(hidden_ns, 0) AS hidden_ns, end_ns, row_number() OVER w = 1 AS is_first,
    (stood_ns > lag(stood_ns) OVER w)::INT AS stood, -- null of the first, and where no stream is known
    greatest(0, lead(start_ns) OVER w - end_ns) AS gap_ns,
    start_ns - lag(end_ns) OVER w AS before_ns,
    row_number() OVER w = count(*) OVER (PARTITION BY rank, step, process_group, op) AS is_last,
    lead(start_ns) OVER w < end_ns AS side_by_side, to_gather, to_sum
  FROM gradient_call LEFT JOIN (SELECT rank, call_id, bucket AND next_sums AND left_ns < 20000 AS to_sum,
      next_op = 'all_gather' AND left_ns < 20000 OR coalesce(beside, false) AS to_gather
    FROM (SELECT rank, call_id, lead(op) OVER n AS next_op, lead(start_ns) OVER n - end_ns AS left_ns,
        lag(op) OVER n = 'all_gather' AND lag(end_ns) OVER n > start_ns AS beside,
        bucket, lead(op = 'all_reduce' AND bucket IS NULL) OVER n AS next_sums
      FROM call LEFT JOIN (SELECT DISTINCT rank, call_id, true AS bucket FROM param_bucket) USING (rank, call_id)
      WINDOW n AS (PARTITION BY rank, step, process_group ORDER BY start_ns))) USING (rank, call_id)
    LEFT JOIN stream_stood USING (rank, call_id)
  WINDOW w AS (PARTITION BY rank, step, process_group, op ORDER BY start_ns)
), per AS (
  SELECT rank, step, process_group, op, count(*) AS calls, sum(exposed_transfer_ns) AS exposed_ns,
    avg(stood) AS stood, max(hidden_ns / nullif(took_ns, 0)) FILTER (is_first) AS first_hidden,
    sum(hidden_ns) AS hidden_ns, sum(bytes) AS step_bytes,
    sum(coalesce(gap_ns, 0)) AS gap_ns, sum(exposed_transfer_ns) FILTER (is_last) AS last_exposed_ns,
    max(bytes) FILTER (is_last) AS last_bytes, max(before_ns) FILTER (is_last) AS before_last_ns,
    median(bytes) FILTER (NOT is_last) AS median_bytes, min(bytes) FILTER (NOT is_last) AS least_bytes,
    max(took_ns) FILTER (is_last) AS last_ns, median(took_ns) FILTER (NOT is_last) AS middle_ns,
    min(took_ns) FILTER (NOT is_last) AS least_ns,
    avg(coalesce(to_gather, false)::INT) AS to_gather, avg(coalesce(to_sum, false)::INT) AS to_sum,
    avg(side_by_side::INT) AS side_by_side, arg_max(call_id, exposed_transfer_ns) AS worst_call
  FROM ordered GROUP BY rank, step, process_group, op)
SELECT process_group, op,
  median(calls) AS calls,                     -- per rank and step
  median(exposed_ns) AS exposed_ns,           -- not under compute, waiting left out
  median(hidden_ns) AS hidden_ns,             -- under compute
  median(gap_ns) AS gap_ns,                   -- between the end of one call and the start of the next
  median(last_exposed_ns) AS last_exposed_ns, -- of the last call of the step
  median(last_bytes) AS last_bytes,           -- its size
  median(step_bytes) AS step_bytes,           -- of all of them
  median(before_last_ns) AS before_last_ns,   -- between the end of the call before it and its start
  median(median_bytes) AS median_bytes,       -- of the calls before it; null where there are none
  median(least_bytes) AS least_bytes,         -- of the smallest of them
  median(last_ns) AS last_ns,                 -- what the last takes, waiting left out
  median(middle_ns) AS median_ns,             -- what the calls before it do; null where there are none
  median(least_ns) AS least_ns,               -- the shortest of them
  coalesce(median(stood), 0) AS stood,        -- share before which, since the one before, the stream idled
  median(first_hidden) AS first_hidden,       -- share of the step's first that compute runs beside
  median(to_gather) AS to_gather,             -- share beside or right behind which a gather runs
  median(to_sum) AS to_sum,                   -- the same of a reduction that is no gradients'
  median(side_by_side) AS side_by_side,       -- share that ends after the next has begun; null of a single call
  any_value(worst_call) AS worst_call,
  list(DISTINCT rank ORDER BY rank) AS ranks
FROM per GROUP BY process_group, op;

-- Parameter gathers (FSDP, ZeRO-3) per rank and step: exposed part, and the time between gathers.
-- What an optimizer gathers (ZeRO-1, Shampoo) is not for the next layer to compute, nor does a group that
-- sums gradients whole shard parameters (SyncBatchNorm gathers statistics).
-- No rows without call WHERE op = 'all_gather'.
--   worst_call: call_id of the call with the most exposed transfer
--   first_call: call_id of a step's first gather
CREATE VIEW gather_gap AS
WITH ordered AS (
  SELECT rank, step, process_group, phase, call_id, exposed_transfer_ns, exposed_all_ns, ahead,
    coalesce(hidden_ns, 0) AS hidden_ns,
    greatest(0, lead(start_ns) OVER w - end_ns) AS gap_ns, row_number() OVER w = 1 AS is_first,
    phase = 'backward' AND lag(phase) OVER w = 'forward' AS is_turn,
    (stood_ns > lag(stood_ns) OVER w)::INT AS stood -- null of the first, and where no stream is known
  FROM call LEFT JOIN stream_stood USING (rank, call_id)
  WHERE (op, process_group) IN (SELECT (op, process_group) FROM overlappable)
    AND op = 'all_gather' AND coalesce(phase, '') NOT IN ('optimizer', 'other')
    AND coalesce(process_group, '') NOT IN (SELECT coalesce(process_group, '') AS name FROM gradient_call
      GROUP BY name HAVING bool_and(op = 'all_reduce'))
  WINDOW w AS (PARTITION BY rank, step, process_group ORDER BY start_ns)
), per AS (
  SELECT rank, step, process_group, count(*) AS calls, sum(exposed_transfer_ns) AS exposed_ns,
    sum(exposed_all_ns) AS stopped_ns, sum(hidden_ns) AS hidden_ns,
    sum(coalesce(gap_ns, 0)) AS gap_ns, avg(coalesce(ahead, false)::INT) AS ahead,
    avg(stood) AS stood, avg(stood) FILTER (phase = 'backward') AS backward_stood,
    sum(exposed_transfer_ns) FILTER (is_first) AS first_exposed_ns,
    sum(exposed_transfer_ns) FILTER (phase = 'forward') AS forward_ns,
    sum(exposed_transfer_ns) FILTER (phase = 'backward') AS backward_ns,
    sum(exposed_all_ns) FILTER (phase = 'backward') AS backward_stopped_ns,
    coalesce(sum(hidden_ns) FILTER (phase = 'backward' AND NOT coalesce(is_turn, false)), 0)
      AS backward_hidden_ns,
    sum(coalesce(gap_ns, 0)) FILTER (phase = 'backward') AS backward_gap_ns,
    avg(coalesce(ahead, false)::INT) FILTER (phase = 'backward') AS backward_ahead,
    count(*) FILTER (phase = 'backward') AS backward_calls,
    arg_max(call_id, exposed_transfer_ns) AS worst_call, max(call_id) FILTER (is_first) AS first_call
  FROM ordered GROUP BY rank, step, process_group)
SELECT process_group,
  median(calls) AS calls,                       -- per rank and step
  median(exposed_ns) AS exposed_ns,             -- not under compute, waiting left out
  median(stopped_ns) AS stopped_ns,             -- the same with waiting
  median(hidden_ns) AS hidden_ns,               -- under compute
  median(gap_ns) AS gap_ns,                     -- between the end of one gather and the start of the next
  median(ahead) AS ahead,                       -- share of the gathers asked for in another unit's turn
  median(stood) AS stood,                       -- share before which, since the gather before, the stream idled
  median(first_exposed_ns) AS first_exposed_ns, -- of the first gather of the step
  coalesce(median(forward_ns), 0) AS forward_ns,   -- exposed in the forward pass
  coalesce(median(backward_ns), 0) AS backward_ns, -- exposed in the backward pass
  median(backward_stopped_ns) AS backward_stopped_ns, -- exposed in the backward pass, with waiting
  median(backward_hidden_ns) AS backward_hidden_ns,   -- under compute in the backward pass, without its first
  median(backward_gap_ns) AS backward_gap_ns,         -- between gathers of the backward pass
  median(backward_ahead) AS backward_ahead,           -- share asked for ahead in the backward pass
  median(backward_stood) AS backward_stood,           -- the same of the backward pass
  median(backward_calls) AS backward_calls,           -- in the backward pass, per rank and step
  any_value(worst_call) AS worst_call,
  any_value(first_call) AS first_call,
  list(DISTINCT rank ORDER BY rank) AS ranks
FROM per GROUP BY process_group;

-- Whether all streams of the devices share one hardware queue: nothing overtakes what was launched
-- before it, and a fifth of the kernels whose stream was free (five at least, as two may meet by
-- accident) start with the kernel before them, or gathers are asked for ahead and wait all the same.
CREATE VIEW device_order AS
SELECT coalesce(bool_and(overtaken = 0 AND (in_order >= greatest(5, 0.2 * waiting)
    OR ahead AND waiting >= 5)), false) AS one_queue, -- nothing was overtaken
  sum(waiting) AS waiting
FROM device_queue, (SELECT coalesce(max(ahead), 0) > 0.2 AS ahead FROM gather_gap);

-- What a transfer gives back that compute comes to hide: compute on a device slows beside it, as
-- far as this recording shows, else by what is ordinary (5 to 25 % in jobs with nothing wrong).
CREATE VIEW hiding AS
SELECT CASE WHEN timeline = 'device'
  THEN 1 / greatest(1, coalesce((SELECT median(slowdown) FROM overlap_slowdown), 1.15))
  ELSE 1.0 END AS gained -- share of the transfer
FROM facts;

-- Groups that shard parameters: gathers and reductions, and no activations.
CREATE VIEW sharded_group AS
SELECT coalesce(process_group, '') AS name -- of the process group
FROM call WHERE op IN ('all_gather', 'reduce_scatter')
  AND coalesce(process_group, '') NOT IN (SELECT coalesce(process_group, '') FROM activation_group)
GROUP BY name HAVING count(DISTINCT op) = 2;

-- One row: whether groups carry the names that Megatron-LM gives them (megatron/core/parallel_state.py). Its
-- distributed optimizer shards the optimizer's state alone.
--   is_megatron: of any group
CREATE VIEW megatron AS
SELECT coalesce(bool_or(regexp_matches(description, '^[A-Z_]+_PARALLEL_GROUP')), false) AS is_megatron
FROM process_group;

-- One row: what wraps the model, as far as calls and ranges show. FSDP2 alone names its units.
--   trainer: 'DeepSpeed', 'FSDP2', 'FSDP1' or 'torch.compile'; null where no range of theirs was recorded
--   sharded: gradients are reduced and scattered: FSDP, ZeRO
--   named_units: gathers carry the name of the unit that they are for
--   made_by: the library that builds it, '' where the script itself does; null where the recorder did not see
CREATE VIEW wrapper AS
SELECT (SELECT max(engine) FROM rank_content) AS trainer,
  (SELECT max(list_max(try_cast(metadata AS JSON) ->> '$.advisor.built_by.*')) FROM rank) AS made_by,
  EXISTS (SELECT 1 FROM gradient_call WHERE op = 'reduce_scatter') AS sharded,
  EXISTS (SELECT 1 FROM call WHERE op = 'all_gather' AND module IS NOT NULL) AS named_units;

-- Anything in which the order of collectives on different ranks can be compared.
CREATE VIEW sequence_evidence AS
SELECT rank FROM flight WHERE op IS NOT NULL
UNION ALL SELECT rank FROM collective WHERE matched_ranks > 1;

-- Anything that compares links: calls that several ranks share, or a place already found (a
-- probe).
CREATE VIEW link_evidence AS
SELECT call_id FROM collective WHERE matched_ranks > 1
UNION ALL SELECT NULL FROM link_excess;

-- Large transfers inside one host, from benchmarks and from matched calls: bus bandwidth in GB/s.
-- Over PCIe a quarter of what NVLink needs is enough: 16 MB take it 0.5 ms at best.
--   origin: where the time was measured: 'trace', 'nccl-tests' or 'probe'
CREATE VIEW large_transfer AS
WITH large AS (SELECT if(count(link_gbps) = 0 AND count(pcie_gbps) > 0, 16000000, 64000000) AS least_bytes
  FROM run_device)
SELECT tool AS origin, op, ranks, bytes, busbw_gbps, NULL::BIGINT AS call_id FROM bench, large
WHERE bytes >= least_bytes AND busbw_gbps IS NOT NULL AND src IS NULL AND ranks BETWEEN 2 AND 8
  AND (SELECT hosts FROM facts) <= 1 -- else it may have run between hosts
  AND (tool <> 'probe' OR NOT EXISTS (SELECT 1 FROM topology WHERE kind = 'probe-use' AND name = 'other'))
  AND device IS NULL AND coalesce(len(hosts), 1) = 1 -- else bench_curve holds it against its own
UNION ALL
SELECT 'trace', op, group_size, bytes, busbw_gbps, call_id FROM call, large
WHERE bytes >= least_bytes AND t_is = 'matched' AND group_size BETWEEN 2 AND 8 AND busbw_gbps IS NOT NULL
  AND op IN ('all_reduce', 'all_gather', 'reduce_scatter') AND (SELECT hosts FROM facts) = 1;

-- Exposed transfers that have other work after them in the same queue of calls. Calls at the end
-- of the queue (the last bucket, and what waits in line before it) have none left to hide under, nor has
-- a gradient behind its backward pass: the optimizer, and what follows it, wait for all of them.
--   hideable_ns: exposed transfer that could run under other compute, ns
CREATE VIEW hideable_call AS
WITH ordered AS (
  SELECT rank, step, process_group, op, backward_pass, call_id, start_ns, dur_ns, exposed_transfer_ns,
    coalesce(greatest(0, lead(start_ns) OVER w - end_ns), 0) AS gap_ns
  FROM call LEFT JOIN (SELECT rank, step, call_id, backward_pass FROM param_bucket) USING (rank, step, call_id)
  WINDOW w AS (PARTITION BY rank, step, process_group, op, backward_pass ORDER BY start_ns)
), later AS (
  SELECT *, sum(gap_ns) OVER (PARTITION BY rank, step, process_group, op, backward_pass ORDER BY start_ns
    ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS later_gap_ns
  FROM ordered)
SELECT rank, step, process_group, op, call_id, least(exposed_transfer_ns, later_gap_ns) AS hideable_ns
FROM later WHERE later_gap_ns > 0.25 * dur_ns;

-- Calls of the step whose critical path was walked, with the time for which the path runs through
-- them, on whichever rank: 0 says that the step would not have been shorter without them alone.
--   longest_ns: of any rank, ns
--   longest_wait_ns: of any rank, ns
--   on_path_ns: of it on the step's critical path, ns (0: off the path)
CREATE VIEW path_call AS
SELECT c.step, c.call_id, c.op, c.process_group, max(c.bytes) AS bytes, count(*) AS ranks,
  any_value(c.last_rank) AS last_rank,
  max(c.end_ns - c.start_ns) AS longest_ns, max(c.wait_ns) AS longest_wait_ns,
  sum(coalesce(p.path_ns, 0))::BIGINT AS on_path_ns
FROM collective c LEFT JOIN (
  SELECT rank, event_id, sum(end_ns - start_ns) AS path_ns FROM critical_path
  WHERE kind IN ('comm', 'wait') GROUP BY rank, event_id) p
  USING (rank, event_id)
WHERE c.step IN (SELECT step FROM critical_path) GROUP BY c.step, c.call_id, c.op, c.process_group;
