-- Views that rules select from, beside the tables of schema.sql. They exist only in the engine's
-- sandbox, which holds a single run: nothing here filters by run. All per-step figures rest on used
-- steps alone: metrics/steps/used.py says which those are, table step holds what it found.

-- Ranks that count in steps.
CREATE VIEW whole_rank AS
SELECT DISTINCT rank FROM step WHERE left_out IS DISTINCT FROM 'cut-rank';

-- Step times of the run: one row per step number, before warm-up is set apart.
CREATE VIEW all_step AS
SELECT step,                                        -- step number
  median(end_ns - start_ns)::BIGINT AS step_ns,     -- median over ranks
  bool_and(left_out IS DISTINCT FROM 'partial') AS complete, -- on all ranks that count
  any_value(source) AS source                       -- how steps were told apart
FROM step WHERE left_out IS DISTINCT FROM 'cut-rank' GROUP BY step;

-- Leading steps that took much longer than the median.
CREATE VIEW warm_up_step AS
SELECT DISTINCT step FROM step WHERE left_out = 'warm-up';

-- Later steps that took many times the median: one of them would rule every mean per step.
CREATE VIEW odd_step AS
SELECT step, step_ns / (SELECT median(step_ns) FROM all_step WHERE complete) AS times
FROM all_step SEMI JOIN (SELECT step FROM step WHERE left_out = 'odd') USING (step);

-- Steps that count.
CREATE VIEW used_step AS
SELECT step, step_ns, source FROM all_step SEMI JOIN (SELECT step FROM step WHERE used) USING (step);

-- One row: the run at a glance. noise_ns is what two measurements of this same run would differ by
-- at the 95 % level: 1.96 * sqrt(2) standard errors of a median (1.2533 sigma / sqrt(n)), with
-- sigma = 1.4826 * median absolute deviation of the step times; at least 0.5 % of the step, which
-- no A/B of practical length resolves. With under four steps the spread cannot be told: 3 %.
CREATE VIEW facts AS
WITH spread AS (
  SELECT count(*) AS n, median(step_ns) AS typical_ns, mad(step_ns) AS mad_ns FROM used_step
)
SELECT
  (SELECT count(*) FROM rank) AS ranks_read,                      -- recordings
  (SELECT max(world_size) FROM rank) AS world_size,               -- ranks of the job; null if unknown
  (SELECT count(DISTINCT host) FROM rank) AS hosts,               -- host names seen
  (SELECT max(timeline) FROM rank) AS timeline,                   -- 'device' or 'host'
  (SELECT max(backend) FROM rank) AS backend,                     -- 'nccl', 'gloo', ...
  coalesce((SELECT max(clock_residual_ns) FROM rank), 0) AS residual_ns, -- clock error left
  n AS steps,                                                     -- used steps
  typical_ns::BIGINT AS step_ns,                                  -- their median
  CASE WHEN n >= 4 THEN greatest(0.005 * typical_ns, 1.96 * sqrt(2) * 1.2533 * 1.4826 * mad_ns / sqrt(n))
       ELSE 0.03 * typical_ns END::BIGINT AS noise_ns             -- smallest change that would show
FROM spread;

-- Breakdown of used steps only.
CREATE VIEW rank_step AS
SELECT * FROM step_breakdown WHERE used;

-- One row: how much the waiting of all ranks varies from step to step. When pauses move between
-- ranks, each rank's own cost varies widely and what all of them wait in a step hardly at all.
CREATE VIEW wait_spread AS
SELECT CASE WHEN count(wait_ns) >= 3 THEN
    least(0.9, greatest(0.2, 1.96 * stddev_samp(wait_ns) / sqrt(count(*)) / nullif(avg(wait_ns), 0)))
  END AS relative -- half width of the 95 % interval of the mean; at least 0.2: other waiting follows
FROM (SELECT step, coalesce(avg(exposed_wait_ns), any_value(partly)) AS wait_ns FROM rank_step
  LEFT JOIN (SELECT step, sum(wait_ns) / count(DISTINCT rank) AS partly -- some of the ranks were not read
    FROM collective WHERE wait_ns IS NOT NULL GROUP BY step) USING (step) GROUP BY step);

-- Collective calls of used steps; exposed_transfer_ns leaves out waiting for peers that were read.
CREATE VIEW call AS
SELECT c.* EXCLUDE (exposed_transfer_ns),
  c.end_ns - c.start_ns AS dur_ns,                                            -- on this rank
  coalesce(c.exposed_ns, c.end_ns - c.start_ns) AS exposed_all_ns,            -- not under compute
  coalesce(c.exposed_transfer_ns, greatest(0, coalesce(c.exposed_ns, c.end_ns - c.start_ns) - coalesce(c.wait_ns, 0)))
    AS exposed_transfer_ns, -- the same without waiting; time that calls share is split between them
  coalesce(c.t_is = 'upper bound' AND CASE WHEN c.group_size IS NULL THEN (SELECT ranks_read < coalesce(world_size, 2) FROM facts) ELSE c.group_size > 1 END, false)
    AS partly_read -- a rank of the call is missing: waiting for it may be all of that time
FROM collective c SEMI JOIN used_step USING (step) SEMI JOIN whole_rank USING (rank);

-- Lateness over all groups. summed_cost_ns is METRICS' cost, per used step: the sum over the calls in which
-- the rank is last, and over the other ranks, of last start less own start (calls that run at once count
-- each, hidden waits too). peer_wait_ns is cost_ns_per_step as mean over those that share calls with it.
CREATE VIEW late_rank AS
WITH summed AS (
  SELECT last_rank AS rank, sum(wait_ns) / (SELECT count(*) FROM used_step) AS ns FROM call
  WHERE last_rank IS NOT NULL AND op IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier') GROUP BY last_rank)
SELECT l.*, r.host, coalesce(s.ns, 0)::BIGINT AS summed_cost_ns, sum(cost_ns_per_step) OVER () AS all_ns,
  coalesce(TRY_CAST(l.reason_evidence ->> 'others_per_peer' AS DOUBLE), 1) AS of_peers, (cost_ns_per_step * of_peers)::BIGINT AS peer_wait_ns
FROM lateness l LEFT JOIN rank r ON r.rank = l.rank LEFT JOIN summed s ON s.rank = l.rank WHERE l.process_group IS NULL;

-- Gradient reductions: known buckets, else reductions in the backward pass of a group that does
-- not reduce in the forward pass (tensor parallelism does).
CREATE VIEW gradient_call AS
SELECT c.* FROM call c
WHERE c.op IN ('all_reduce', 'reduce_scatter', 'reduce') AND (
  (c.rank, c.call_id) IN (SELECT rank, call_id FROM param_bucket)
  OR (c.phase = 'backward' AND coalesce(c.process_group, '') NOT IN (
        SELECT coalesce(process_group, '') FROM call
        WHERE op IN ('all_reduce', 'reduce_scatter') AND phase = 'forward')));

-- The cost of a wire operation on a group of ranks, one fit each; the trace's own fit first. With one
-- rank's trace alone that has none: waiting for the others would count as latency.
CREATE VIEW fit AS
SELECT op, group_size, alpha_ns, alpha_low_ns, alpha_high_ns, beta_ns_per_byte, k, m,
  n_star_bytes, largest_bytes, origin, r2, samples
FROM alpha_beta WHERE CASE origin WHEN 'trace' THEN (SELECT ranks_read FROM facts) <> 1
  WHEN 'probe' THEN NOT EXISTS (SELECT 1 FROM topology WHERE kind = 'probe-use' AND name = 'other') ELSE true END
QUALIFY row_number() OVER (PARTITION BY op, group_size
  ORDER BY origin <> 'trace', samples DESC) = 1;

-- Gradient buckets per rank and step-independent place, with the part of the fitted time that is
-- latency. median over used steps.
CREATE VIEW gradient_group AS
SELECT g.process_group, g.op, any_value(coalesce(g.wire_op, g.op)) AS wire_op,
  any_value(g.group_size) AS group_size,
  count(*) / count(DISTINCT (g.rank, g.step)) AS calls,              -- per rank and step
  sum(g.bytes)::DOUBLE / count(DISTINCT (g.rank, g.step)) AS bytes,  -- per rank and step
  median(g.bytes) AS median_bytes,                                   -- of a call
  sum(g.exposed_transfer_ns)::DOUBLE / count(DISTINCT (g.rank, g.step)) AS exposed_ns,
  list(DISTINCT g.rank ORDER BY g.rank) AS ranks,
  arg_max(g.call_id, g.exposed_transfer_ns) AS worst_call
FROM gradient_call g GROUP BY g.process_group, g.op;

-- Operations that could run under other compute: gradient reductions and parameter gathers. A group
-- that reduces in the forward pass too (tensor parallelism) hands its result to the next operator.
-- Without device streams FSDP2 waits for every reduce-scatter (and HSDP for the all-reduce after it):
-- no setting overlaps them there.
CREATE VIEW overlappable AS
SELECT op, process_group FROM call
WHERE op IN ('all_reduce', 'reduce_scatter', 'all_gather', 'reduce')
GROUP BY op, process_group
HAVING (op <> 'all_reduce' OR NOT bool_or(coalesce(phase, '') = 'forward'))
  AND NOT (op IN ('all_reduce', 'reduce_scatter') AND (SELECT timeline FROM facts) = 'host'
    AND EXISTS (SELECT 1 FROM call WHERE op = 'reduce_scatter'));

-- What replayed changes give back per step, with a 90 % interval.
CREATE VIEW whatif_gain AS
SELECT setting, value, is_current, extrapolates, coalesce(untold, false) AS unparted,
  coalesce(measured_step_ns, replayed_step_ns) - step_ns AS gain_ns,
  coalesce(gain_low_ns, coalesce(measured_step_ns, replayed_step_ns) - step_high_ns) AS gain_low_ns,
  coalesce(gain_high_ns, coalesce(measured_step_ns, replayed_step_ns) - step_low_ns) AS gain_high_ns
FROM whatif;

-- Replayed bucket caps against the present one (its setting, else its median size). Replays beyond
-- twice the largest size seen count only where no other was made.
CREATE VIEW bucket_gain AS
WITH caps AS (
  SELECT try_cast(value AS DOUBLE) AS cap_mb, * FROM whatif_gain WHERE setting = 'bucket_cap_mb'
), present AS (
  SELECT coalesce((SELECT max(cap_mb) FROM caps WHERE is_current), (SELECT median(bytes) / 1048576 FROM gradient_call)) AS current_mb)
SELECT cap_mb, current_mb, gain_ns, gain_low_ns, gain_high_ns, extrapolates, unparted FROM caps, present
WHERE NOT is_current AND gain_ns IS NOT NULL
  AND (NOT extrapolates OR NOT EXISTS (SELECT 1 FROM caps WHERE NOT extrapolates AND NOT is_current));

CREATE VIEW larger_bucket AS
SELECT * FROM bucket_gain WHERE cap_mb > current_mb ORDER BY gain_ns DESC, cap_mb LIMIT 1;

CREATE VIEW smaller_bucket AS
SELECT * FROM bucket_gain WHERE cap_mb < current_mb ORDER BY gain_ns DESC LIMIT 1;

-- Gradient reductions per rank and step: how much is exposed, and the time between the calls, which
-- holds the work that could have run meanwhile.
CREATE VIEW gradient_gap AS
WITH ordered AS (
  SELECT rank, step, process_group, op, bytes, call_id, exposed_transfer_ns, coalesce(hidden_ns, 0) AS hidden_ns, end_ns,
    greatest(0, lead(start_ns) OVER w - end_ns) AS gap_ns, row_number() OVER w = count(*) OVER (PARTITION BY rank, step, process_group, op) AS is_last
  FROM gradient_call WINDOW w AS (PARTITION BY rank, step, process_group, op ORDER BY start_ns)
), per AS (
  SELECT rank, step, process_group, op, count(*) AS calls, sum(exposed_transfer_ns) AS exposed_ns, sum(hidden_ns) AS hidden_ns,
    sum(coalesce(gap_ns, 0)) AS gap_ns, sum(exposed_transfer_ns) FILTER (is_last) AS last_exposed_ns, max(bytes) FILTER (is_last) AS last_bytes,
    arg_max(call_id, exposed_transfer_ns) AS worst_call
  FROM ordered GROUP BY rank, step, process_group, op)
SELECT process_group, op,
  median(calls) AS calls,                     -- per rank and step
  median(exposed_ns) AS exposed_ns,           -- not under compute, waiting left out
  median(hidden_ns) AS hidden_ns,             -- under compute
  median(gap_ns) AS gap_ns,                   -- between the end of one call and the start of the next
  median(last_exposed_ns) AS last_exposed_ns, -- of the last call of the step
  median(last_bytes) AS last_bytes,           -- its size
  any_value(worst_call) AS worst_call,
  list(DISTINCT rank ORDER BY rank) AS ranks
FROM per GROUP BY process_group, op;

-- Parameter gathers (FSDP, ZeRO-3) per rank and step: exposed part, and the time between gathers.
CREATE VIEW gather_gap AS
WITH ordered AS (
  SELECT rank, step, process_group, phase, call_id, exposed_transfer_ns, exposed_all_ns, coalesce(hidden_ns, 0) AS hidden_ns,
    greatest(0, lead(start_ns) OVER w - end_ns) AS gap_ns, row_number() OVER w = 1 AS is_first
  FROM call WHERE op = 'all_gather' WINDOW w AS (PARTITION BY rank, step, process_group ORDER BY start_ns)
), per AS (
  SELECT rank, step, process_group, count(*) AS calls, sum(exposed_transfer_ns) AS exposed_ns, sum(exposed_all_ns) AS stopped_ns, sum(hidden_ns) AS hidden_ns,
    sum(coalesce(gap_ns, 0)) AS gap_ns, sum(exposed_transfer_ns) FILTER (is_first) AS first_exposed_ns,
    sum(exposed_transfer_ns) FILTER (phase = 'forward') AS forward_ns, sum(exposed_transfer_ns) FILTER (phase = 'backward') AS backward_ns,
    arg_max(call_id, exposed_transfer_ns) AS worst_call, max(call_id) FILTER (is_first) AS first_call
  FROM ordered GROUP BY rank, step, process_group)
SELECT process_group,
  median(calls) AS calls,                       -- per rank and step
  median(exposed_ns) AS exposed_ns,             -- not under compute, waiting left out
  median(stopped_ns) AS stopped_ns,             -- the same with waiting
  median(hidden_ns) AS hidden_ns,               -- under compute
  median(gap_ns) AS gap_ns,                     -- between the end of one gather and the start of the next
  median(first_exposed_ns) AS first_exposed_ns, -- of the first gather of the step
  coalesce(median(forward_ns), 0) AS forward_ns,   -- exposed in the forward pass
  coalesce(median(backward_ns), 0) AS backward_ns, -- exposed in the backward pass
  any_value(worst_call) AS worst_call,
  any_value(first_call) AS first_call,
  list(DISTINCT rank ORDER BY rank) AS ranks
FROM per GROUP BY process_group;

-- Device time lost to the host per step, by kind: median over ranks of the mean over used steps.
CREATE VIEW gap_kind AS
WITH used AS (SELECT count(*) AS steps FROM used_step),
in_step AS (
  SELECT rank, kind, step, sum(idle_ns) AS idle_ns, count(*) AS gaps, arg_max(name, idle_ns) AS name, max(idle_ns) AS longest_ns
  FROM host_gap g SEMI JOIN used_step USING (step) GROUP BY rank, kind, step),
-- A gap of every step is cut off at one end of the recording: missing once, it counts as never missing.
per AS (
  SELECT rank, kind, sum(idle_ns) / any_value(over) AS idle_ns, sum(gaps) / any_value(over) AS gaps,
    sqrt(greatest(0, sum(idle_ns::DOUBLE * idle_ns) / any_value(over) - (sum(idle_ns) / any_value(over)) ** 2) / any_value(over)) AS error_ns,
    arg_max(name, longest_ns) AS name, max(longest_ns) AS longest_ns, arg_max(step, longest_ns) AS worst_step
  FROM (SELECT i.*, CASE WHEN steps >= 4 AND count(*) OVER (PARTITION BY i.rank, i.kind) = steps - 1 THEN steps - 1 ELSE steps END AS over
        FROM in_step i, used)
  GROUP BY rank, kind)
SELECT kind,
  median(idle_ns) AS idle_ns,               -- per step
  min(idle_ns) AS least_ns,                 -- of the rank that lost least
  max(idle_ns) AS most_ns,                  -- of the rank that lost most
  arg_max(rank, idle_ns) AS worst_rank,     -- that rank
  arg_max(error_ns, idle_ns) AS most_error_ns, -- standard error over steps of its mean
  arg_max(name, idle_ns) AS name,           -- what its host did in the longest gap
  arg_max(worst_step, longest_ns) AS worst_step,
  max(longest_ns) AS longest_ns,            -- longest single gap
  median(gaps) AS gaps,                     -- per step
  list(rank ORDER BY rank) AS ranks
FROM per GROUP BY kind;

-- Environment settings, from NCCL's log and from recordings that keep an allow-list of them.
CREATE VIEW setting AS
SELECT DISTINCT name, value, rank, host, 'nccl-log' AS origin FROM topology WHERE kind = 'env'
UNION
SELECT DISTINCT e.key, e.value ->> '$', r.rank, r.host, 'recording'
FROM rank r, json_each(try_cast(r.metadata AS JSON), '$.advisor.environment') e
WHERE json_type(try_cast(r.metadata AS JSON), '$.advisor.environment') = 'OBJECT';

-- Versions of components, as text and as a number that can be compared (2.19.3 is 2019003).
CREATE VIEW version AS
WITH raw AS (
  SELECT 'nccl' AS component, nccl_version AS version FROM rank WHERE nccl_version IS NOT NULL
  UNION SELECT name, value FROM topology WHERE kind = 'version' AND name IN ('nccl', 'torch')
  UNION SELECT e.key, e.value ->> '$' FROM rank r, json_each(try_cast(r.metadata AS JSON), '$.advisor.versions') e
  WHERE e.key IN ('nccl', 'torch') AND json_type(try_cast(r.metadata AS JSON), '$.advisor.versions') = 'OBJECT')
SELECT component, version,
  list_sum(list_transform(regexp_extract_all(split_part(version, '+', 1), '\d+')[1:3],
    lambda part, place: part::BIGINT * [1000000, 1000, 1][place]))::BIGINT AS version_key
FROM raw;

-- Ranks with the host that a log or a trace names.
CREATE VIEW rank_host AS
SELECT rank, arg_min(host, origin) AS host FROM ( -- what a log says of the fabric comes first
  SELECT rank, host, 0 AS origin FROM topology WHERE kind = 'rank' AND rank IS NOT NULL
  UNION ALL SELECT rank, host, 1 FROM rank) WHERE host IS NOT NULL GROUP BY rank;

-- What check-env says of the settings (setting_issues), but for what is only worth knowing: one row
-- per setting, value and remark. NCCL's count where NCCL runs, or where its own log prints them.
CREATE VIEW setting_issue AS
WITH used AS (
  SELECT rank, host, name, max(value) AS value FROM setting
  WHERE name NOT LIKE 'NCCL%' OR origin = 'nccl-log' OR (SELECT backend FROM facts) = 'nccl' GROUP BY ALL),
environment AS (
  SELECT rank, host, to_json(map(list(name ORDER BY name), list(coalesce(value, '') ORDER BY name)))::VARCHAR AS settings FROM used GROUP BY ALL),
judged AS (
  SELECT e.rank, e.host, unnest(from_json(setting_issues(e.settings,
    (SELECT max(version) FROM version WHERE component = 'nccl'), (SELECT nullif(count(DISTINCT host), 0) FROM rank_host)),
    '[{"variable":"VARCHAR","value":"VARCHAR","severity":"VARCHAR","title":"VARCHAR","why":"VARCHAR","action":"VARCHAR","source":"VARCHAR","effect":"VARCHAR"}]')) AS issue
  FROM environment e)
SELECT issue.variable AS name, issue.value, issue.severity, issue.title, issue.why, issue.action, issue.source, issue.effect,
  list(DISTINCT rank ORDER BY rank) FILTER (rank IS NOT NULL) AS ranks, list(DISTINCT host ORDER BY host) FILTER (host IS NOT NULL) AS hosts
FROM judged GROUP BY ALL;

-- NCCL's printed choices beside the best entry of its own tuning table at that size.
CREATE VIEW choice_cost AS
WITH cost AS (
  SELECT c.op, c.bytes, c.ranks, c.algorithm, c.protocol, c.calls, t.algorithm AS other, t.protocol AS other_protocol,
    t.latency_us + c.bytes / (1000 * t.bandwidth_gbps) AS time_us
  FROM nccl_choice c JOIN nccl_choice t
    ON t.source = 'table' AND t.op = c.op AND t.bandwidth_gbps > 0 AND t.ranks IS NOT DISTINCT FROM c.ranks
  WHERE c.source = 'call' AND c.bytes > 0)
SELECT op, bytes, ranks, algorithm, protocol, any_value(calls) AS calls,
  min(time_us) FILTER (other = algorithm AND other_protocol = protocol) AS chosen_us, -- as the table predicts
  min(time_us) FILTER (other = algorithm) AS same_algorithm_us, -- the best protocol of that algorithm
  min(time_us) AS best_us,                                      -- the best of all
  arg_min(other, time_us) AS best_algorithm,
  arg_min(other_protocol, time_us) AS best_protocol,
  arg_min(other_protocol, time_us) FILTER (other = algorithm) AS best_protocol_here
FROM cost GROUP BY op, bytes, ranks, algorithm, protocol;

-- Ranks of a pipeline beside the others of their stage, which hold the same layers. What a stage takes is what
-- most of its ranks take (of two the faster): one slow rank is no heavy stage.
CREATE VIEW stage_rank AS
SELECT a.rank, a.stage, any_value(a.stages) AS stages, any_value(a.micro_batches) AS micro_batches, any_value(a.step_ns) AS step_ns,
  any_value(a.compute_ns) AS compute_ns, any_value(a.bubble_ns) AS bubble_ns,
  quantile_disc(b.compute_ns, 0.5) FILTER (b.stage = a.stage) AS peer_ns, -- the others of its stage
  count(*) FILTER (b.stage = a.stage) AS peers,
  any_value(a.compute_ns) > coalesce(max(b.compute_ns) FILTER (b.stage = a.stage), 0) AS slowest_in_stage,
  max(b.compute_ns) AS slowest_other_ns,
  1 + coalesce((any_value(a.stages) - 1) / nullif(any_value(a.micro_batches), 0), 0) AS fill, -- what filling and draining adds
  max(b.compute_ns) * fill AS even_ns -- the pipeline without this rank
FROM pipeline_stage a JOIN pipeline_stage b ON a.rank <> b.rank GROUP BY a.rank, a.stage;

-- How far each rank came in each group, from flight-recorder dumps: what it asked for and what ended.
CREATE VIEW flight_progress AS
SELECT process_group, rank,
  coalesce(max(seq) FILTER (state = 'last_enqueued'), max(seq) FILTER (op IS NOT NULL), -1) AS enqueued,
  coalesce(max(seq) FILTER (state = 'last_completed'), max(seq) FILTER (op IS NOT NULL AND state = 'completed'), -1) AS completed,
  arg_min(op, seq) FILTER (op IS NOT NULL AND state <> 'completed') AS first_open -- the oldest call that has not ended
FROM flight GROUP BY process_group, rank;

-- Sends and receives in dumps, by sender's and receiver's global rank.
CREATE VIEW flight_message AS
WITH said AS (SELECT rank, process_group, state, regexp_extract(op, '^(send|recv) \d+(->|<-)(\d+)', ['kind', 'way', 'peer']) AS told
  FROM flight WHERE starts_with(op, 'send ') OR starts_with(op, 'recv '))
SELECT s.rank, s.process_group, s.state, told.kind AS kind, g.ranks[try_cast(told.peer AS INTEGER) + 1] AS peer
FROM said s LEFT JOIN process_group g USING (process_group);

-- Groups whose counters count the same calls on every rank. Sends and receives are counted by each rank
-- for itself: a middle stage of a pipeline counts twice as many as its ends. Nor do counters count the
-- same where one rank ended more calls than another asked for.
CREATE VIEW flight_group AS
SELECT process_group, max(enqueued) AS most, min(enqueued) AS least, max(completed) AS completed
FROM flight_progress WHERE process_group NOT IN (SELECT process_group FROM flight_message)
GROUP BY process_group HAVING max(completed) <= min(enqueued);

-- Who waits for whom by messages: of a pair's open sends (receives) the peer has asked for fewer receives
-- (sends). A dump that also holds messages which ended says nothing here: they may be the counterparts.
CREATE VIEW flight_message_wait AS
WITH open_message AS (
  SELECT process_group, rank, peer, kind, count(*) AS calls FROM flight_message WHERE state <> 'completed' AND peer IS NOT NULL GROUP BY ALL)
SELECT m.process_group, m.rank, m.peer, m.calls - coalesce(p.calls, 0) AS missing_calls
FROM open_message m LEFT JOIN open_message p
  ON p.process_group = m.process_group AND p.rank = m.peer AND p.peer = m.rank AND p.kind <> m.kind
WHERE m.calls > coalesce(p.calls, 0) AND m.peer IN (SELECT rank FROM flight)
  AND NOT EXISTS (SELECT 1 FROM flight_message d WHERE d.state = 'completed' AND d.rank = m.peer AND d.peer = m.rank AND d.process_group = m.process_group);

-- Per rank: groups in which it has not asked for what a peer waits for (behind_in), groups in which it
-- waits itself (waits_in): for a peer that has not asked, or for one without a dump where nobody's dump
-- says that the call ended; and calls that need all ranks, ended at a peer and did not here (unfinished:
-- its device, or the way to it, stopped). A rank that holds others up while waiting for nobody, or that
-- stopped, is where a hang starts. A rank without a dump may hold up all its groups: what it does is not known.
CREATE VIEW flight_blame AS
WITH silent AS (
  SELECT DISTINCT m.rank, g.process_group FROM process_group g, unnest(g.ranks) AS m(rank)
  WHERE m.rank NOT IN (SELECT rank FROM flight)
    AND g.process_group IN (SELECT process_group FROM flight_progress GROUP BY process_group HAVING max(enqueued) > max(completed))),
place AS (
  SELECT p.rank, p.process_group, CASE WHEN s.most > s.completed THEN s.most - p.enqueued ELSE 0 END AS missing_calls,
    CASE WHEN p.first_open IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier') THEN s.completed - p.completed ELSE 0 END AS unfinished,
    s.most > s.completed AND (p.enqueued > s.least OR (p.enqueued > s.completed AND p.process_group IN (SELECT process_group FROM silent))) AS waits
  FROM flight_progress p JOIN flight_group s USING (process_group)
  UNION ALL
  SELECT peer, process_group, max(missing_calls), 0, false FROM flight_message_wait GROUP BY peer, process_group
  UNION ALL
  SELECT rank, process_group, 0, 0, true FROM flight_message_wait
  UNION ALL
  SELECT m.rank, m.process_group, 0, 0, true FROM flight_message m SEMI JOIN silent s ON s.rank = m.peer AND s.process_group = m.process_group WHERE m.state <> 'completed')
SELECT rank, false AS no_dump,
  count(DISTINCT process_group) FILTER (missing_calls > 0) AS behind_in,
  count(DISTINCT process_group) FILTER (waits) AS waits_in,
  list(process_group ORDER BY missing_calls DESC, process_group) FILTER (missing_calls > 0) AS behind_groups,
  max(missing_calls) FILTER (missing_calls > 0) AS missing_calls,
  max(unfinished) AS unfinished
FROM place GROUP BY rank
UNION ALL
SELECT rank, true, count(*), 0, list(process_group ORDER BY process_group), NULL, 0 FROM silent GROUP BY rank;

-- Where a hang starts; ranks without a dump only where every rank in the dumps waits itself, and only where
-- the dumps of most ranks are here: of a few files nobody can say.
CREATE VIEW flight_origin AS
WITH shown AS (SELECT rank FROM flight_blame WHERE NOT no_dump AND (unfinished > 0 OR (behind_in > 0 AND waits_in = 0)))
SELECT * FROM flight_blame WHERE rank IN (FROM shown) OR (no_dump AND NOT EXISTS (FROM shown)
  AND (SELECT count(DISTINCT rank) FROM flight) > (SELECT count(*) FROM flight_blame WHERE no_dump));

-- Calls of one group and sequence number whose operation or size differs between ranks.
CREATE VIEW mismatch AS
SELECT process_group, seq, list(DISTINCT op ORDER BY op) AS ops, list(DISTINCT sizes ORDER BY sizes) AS sizes,
  list(rank ORDER BY rank) AS ranks, 'flight-recorder' AS origin
FROM (SELECT process_group, seq, rank, op, CASE WHEN op IN ('all_reduce', 'broadcast', 'reduce') THEN input_sizes ELSE '' END AS sizes
      FROM flight WHERE op IS NOT NULL AND op NOT LIKE 'send%' AND op NOT LIKE 'recv%')
GROUP BY process_group, seq HAVING count(DISTINCT op) > 1 OR count(DISTINCT sizes) > 1
UNION ALL
SELECT process_group, NULL, NULL, NULL, list(rank ORDER BY rank), 'trace' FROM unmatched
WHERE reason = 'mismatched signature' GROUP BY process_group;

-- Anything in which the order of collectives on different ranks can be compared.
CREATE VIEW sequence_evidence AS
SELECT rank FROM flight WHERE op IS NOT NULL
UNION ALL SELECT rank FROM collective WHERE matched_ranks > 1;

-- Anything that compares links: calls that several ranks share, or a place already found (a probe).
CREATE VIEW link_evidence AS
SELECT call_id FROM collective WHERE matched_ranks > 1
UNION ALL SELECT NULL FROM link_excess;

-- Slow links with what restoring them gives: replayed where it could be, else from the calls alone.
CREATE VIEW slow_place AS
WITH placed AS (
  SELECT *, coalesce(excess_low_ns, excess_ns_per_step / 2) AS own_low_ns, -- low end from the calls alone
    try_cast(evidence AS JSON) -> '$.share' AS share, try_cast(evidence AS JSON) ->> '$.probe' AS probe,
    (try_cast(evidence AS JSON) ->> '$.probe_gbps')::DOUBLE AS probe_gbps, (try_cast(evidence AS JSON) ->> '$.probe_expected_gbps')::DOUBLE AS probe_expected_gbps,
    try_cast(evidence AS JSON) ->> '$.direction' AS direction, -- what is slow of a rank or host: 'send', 'receive', 'both', null
    try_cast(candidates AS INTEGER[]) AS open_ranks,
    CASE direction WHEN 'send' THEN 'sending' WHEN 'receive' THEN 'receiving' WHEN 'both' THEN 'sending and receiving' ELSE 'sending or receiving' END AS way,
    CASE kind WHEN 'edge' THEN 'the link from rank ' || src || ' to rank ' || dst WHEN 'rank' THEN 'rank ' || src || coalesce(' on ' || host, '') || ' (' || way || ')'
      WHEN 'host' THEN 'host ' || host || ' (' || way || ')' END AS place_words,
    CASE kind WHEN 'edge' THEN 0 WHEN 'rank' THEN 1 WHEN 'host' THEN 2 WHEN 'group' THEN 3 ELSE 4 END AS precision_order
  FROM link_excess)
SELECT p.*, (share ->> 0)::DOUBLE AS share_low, (share ->> 2)::DOUBLE AS share_high, -- excess, of a call's time
  CASE WHEN w.gain_ns IS NULL THEN 'modelled' ELSE 'replayed' END AS confidence,
  CASE WHEN w.gain_ns IS NULL THEN excess_ns_per_step ELSE greatest(w.gain_ns, 0) END AS savings_ns,
  greatest(coalesce(w.gain_low_ns, own_low_ns), least(own_low_ns, excess_ns_per_step) / 2) AS savings_low_ns,
  greatest(w.gain_high_ns, excess_high_ns, excess_ns_per_step) AS savings_high_ns,
  CASE kind WHEN 'edge' THEN [src, dst] WHEN 'rank' THEN [src] WHEN 'candidates' THEN coalesce(open_ranks, [])
    WHEN 'host' THEN (SELECT list(r.rank ORDER BY r.rank) FROM rank r WHERE r.host = p.host) ELSE [] END AS ranks,
  CASE WHEN kind <> 'candidates' THEN [p.host] ELSE (SELECT list(DISTINCT r.host) FROM rank r WHERE list_contains(open_ranks, r.rank)) END AS hosts,
  CASE WHEN kind = 'edge' THEN src || ' -> ' || dst END AS link,
  CASE WHEN kind IN ('edge', 'rank') THEN src END AS culprit_rank,
  (SELECT any_value(r.host) FROM rank r WHERE r.rank = p.src) AS src_host,
  (SELECT any_value(r.host) FROM rank r WHERE r.rank = p.dst) AS dst_host,
  -- Places that only a probe finds slow.
  (SELECT string_agg(o.place_words || ', ' || printf('%.3g', o.probe_gbps) || ' GB/s where other links give ' || printf('%.3g', o.probe_expected_gbps) || ' GB/s', '; ' ORDER BY o.probe_gbps, o.src, o.dst)
    FROM placed o WHERE o.probe = 'names') AS probe_names
FROM placed p LEFT JOIN whatif_gain w
  ON w.setting = 'restore-link' AND w.value = p.src::VARCHAR AND expected_from IS DISTINCT FROM 'stalls' AND probe IS DISTINCT FROM 'names';

-- What a recording says of its own workload; empty for other people's traces.
CREATE VIEW workload AS
SELECT any_value(m ->> '$.advisor.workload.precision') AS precision,
  any_value(m ->> '$.advisor.strategy') AS strategy,
  any_value(try_cast(m ->> '$.advisor.workload.micro_batch' AS BIGINT)
    * try_cast(m ->> '$.advisor.workload.gradient_accumulation' AS BIGINT)
    * try_cast(m ->> '$.advisor.workload.sequence_length' AS BIGINT)) AS tokens, -- per rank and step
  any_value(list_sum(try_cast(m -> '$.advisor.buckets[*].bytes' AS BIGINT[]))) AS gradient_bytes -- of one backward pass
FROM (SELECT try_cast(metadata AS JSON) AS m FROM rank WHERE metadata IS NOT NULL)
WHERE json_exists(m, '$.advisor.workload');

-- Hosts of each process group's ranks. Where ranks were not read, the host with most of them shows
-- how many one has.
CREATE VIEW group_host AS
SELECT g.process_group, any_value(g.size) AS group_size, any_value(g.ranks) AS ranks, count(DISTINCT h.host) AS hosts,
  (SELECT CASE WHEN sum(n) < (SELECT world_size FROM facts) THEN max(n) ELSE min(n) END
   FROM (SELECT count(*) AS n FROM rank_host GROUP BY host)) AS ranks_per_host
FROM process_group g, unnest(g.ranks) AS m(rank) JOIN rank_host h ON h.rank = m.rank
GROUP BY g.process_group HAVING count(*) = any_value(len(g.ranks));

-- Large transfers inside one host, from benchmarks and from matched calls: bus bandwidth in GB/s.
CREATE VIEW large_transfer AS
SELECT tool AS origin, op, ranks, bytes, busbw_gbps, NULL::BIGINT AS call_id FROM bench
WHERE bytes >= 64000000 AND busbw_gbps IS NOT NULL AND src IS NULL AND ranks BETWEEN 2 AND 8
  AND (SELECT hosts FROM facts) <= 1 -- else it may have run between hosts
  AND (tool <> 'probe' OR NOT EXISTS (SELECT 1 FROM topology WHERE kind = 'probe-use' AND name = 'other'))
  AND NOT EXISTS (SELECT 1 FROM topology WHERE kind = 'bench-host')
UNION ALL
SELECT 'trace', op, group_size, bytes, busbw_gbps, call_id FROM call
WHERE bytes >= 64000000 AND t_is = 'matched' AND group_size BETWEEN 2 AND 8 AND busbw_gbps IS NOT NULL
  AND op IN ('all_reduce', 'all_gather', 'reduce_scatter') AND (SELECT hosts FROM facts) = 1;

-- The device of this run in the hardware table; matched by whole words, the longest phrase first.
CREATE VIEW run_device AS
SELECT r.device_name, d.name, d.peak_bf16_flops, d.peak_fp32_flops, d.memory_bytes, d.link_gbps, d.source
FROM (SELECT DISTINCT device_name FROM rank WHERE device_name IS NOT NULL) r
JOIN (SELECT *, unnest(phrases) AS phrase FROM ref_device) d
  ON regexp_matches(r.device_name, '(^|[^a-z0-9])' || regexp_escape(d.phrase) || '($|[^a-z0-9])', 'i')
  AND NOT regexp_matches(r.device_name, '\b(laptop|max-q|mig)\b', 'i')
QUALIFY row_number() OVER (PARTITION BY r.device_name ORDER BY length(d.phrase) DESC) = 1;

-- Exposed transfers that have other work after them in the same queue of calls. Calls at the end of
-- the queue (the last bucket, and what waits in line before it) have none left to hide under.
CREATE VIEW hideable_call AS
WITH ordered AS (
  SELECT rank, step, process_group, op, call_id, start_ns, dur_ns, exposed_transfer_ns,
    coalesce(greatest(0, lead(start_ns) OVER w - end_ns), 0) AS gap_ns
  FROM call WINDOW w AS (PARTITION BY rank, step, process_group, op ORDER BY start_ns)
), later AS (
  SELECT *, sum(gap_ns) OVER (PARTITION BY rank, step, process_group, op ORDER BY start_ns
    ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS later_gap_ns
  FROM ordered)
SELECT rank, step, process_group, op, call_id, least(exposed_transfer_ns, later_gap_ns) AS hideable_ns
FROM later WHERE later_gap_ns > 0.25 * dur_ns;

-- Calls of the step whose critical path was walked, with the time for which the path runs through
-- them, on whichever rank: 0 says that the step would not have been shorter without them alone.
CREATE VIEW path_call AS
SELECT c.step, c.call_id, c.op, c.process_group, max(c.bytes) AS bytes, count(*) AS ranks, any_value(c.last_rank) AS last_rank,
  max(c.end_ns - c.start_ns) AS longest_ns, max(c.wait_ns) AS longest_wait_ns, sum(coalesce(p.path_ns, 0))::BIGINT AS on_path_ns
FROM collective c LEFT JOIN (
  SELECT rank, event_id, sum(end_ns - start_ns) AS path_ns FROM critical_path WHERE kind IN ('comm', 'wait') GROUP BY rank, event_id) p
  USING (rank, event_id)
WHERE c.step IN (SELECT step FROM critical_path) GROUP BY c.step, c.call_id, c.op, c.process_group;
