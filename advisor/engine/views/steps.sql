-- Steps: which ranks and steps count, their times, their breakdown, and the run at a glance.

-- Ranks that count in steps.
CREATE VIEW whole_rank AS
SELECT DISTINCT rank FROM step WHERE coalesce(left_out, '') NOT IN ('cut-rank', 'no-device');

-- Step times of the run: one row per step number, before warm-up is set apart.
CREATE VIEW all_step AS
SELECT step,                                        -- step number
  median(end_ns - start_ns)::BIGINT AS step_ns,     -- median over ranks
  bool_and(coalesce(left_out NOT IN ('partial', 'lost-thread'), true)) AS complete, -- on all ranks that count
  any_value(source) AS source                       -- how steps were told apart
FROM step SEMI JOIN whole_rank USING (rank) GROUP BY step;

-- Leading steps that took much longer than the median.
CREATE VIEW warm_up_step AS
SELECT DISTINCT step FROM step WHERE left_out = 'warm-up';

-- Later steps that took many times the median: one of them would rule every mean per step.
--   times: its length over the median step
CREATE VIEW odd_step AS
SELECT step, step_ns / (SELECT median(step_ns) FROM all_step WHERE complete) AS times
FROM all_step SEMI JOIN (SELECT step FROM step WHERE left_out = 'odd') USING (step);

-- Steps that count.
CREATE VIEW used_step AS
SELECT step, step_ns, source FROM all_step SEMI JOIN (SELECT step FROM step WHERE used) USING (step);

-- One row: the run at a glance. noise_ns is what two measurements of this same run would differ
-- by at the 95 % level: 1.96 * sqrt(2) standard errors of a median (1.2533 sigma / sqrt(n)), with
-- sigma = 1.4826 * median absolute deviation of the step times; at least 0.5 % of the step, which
-- no A/B of practical length resolves. With under four steps the spread cannot be told: 3 %.
CREATE VIEW facts AS
WITH spread AS (
  SELECT count(*) AS n, median(step_ns) AS typical_ns, mad(step_ns) AS mad_ns FROM used_step
)
SELECT r.*,
  n AS steps,                                                     -- used steps
  typical_ns::BIGINT AS step_ns,                                  -- their median
  CASE WHEN n >= 4 THEN greatest(0.005 * typical_ns, 1.96 * sqrt(2) * 1.2533 * 1.4826 * mad_ns / sqrt(n))
       ELSE 0.03 * typical_ns END::BIGINT AS noise_ns,            -- smallest change that would show
  greatest(0, typical_ns - (SELECT max(list_median(try_cast(try_cast(metadata AS JSON)
    -> '$.advisor.steps_before_ns' AS BIGINT[]))) FROM rank))::BIGINT
    AS profiler_ns, -- by which recorded steps are longer than those before; 0: not known
  (SELECT max(purpose) FROM rank_content) AS purpose,             -- 'training' 'inference' 'forward'; null: unknown
  coalesce((SELECT bool_or(by_torch) FROM rank_content), true) AS is_torch -- false: nothing of PyTorch was recorded
FROM spread, (
  SELECT count(*) - (SELECT count(*) FROM blind_rank) AS ranks_read, -- recordings of a device's work
    -- ranks of the job; null if unknown. torch's profiler notes a job of several, and so do its calls.
    coalesce(max(world_size), CASE WHEN count(*) = 1 AND max(rank) = 0 AND max(timeline) = 'device'
      AND (SELECT bool_and(alone) FROM rank_content) THEN 1 END) AS world_size,
    count(DISTINCT host) AS hosts,                                -- host names seen
    min(timeline) AS timeline,    -- 'device' where one rank or more has device events, else 'host'
    max(backend) AS backend,                                      -- 'nccl', 'gloo', ...
    coalesce(bool_or(regexp_matches(device_name, '\bAMD\b|Instinct|Radeon|\bMI\d{2,3}', 'i')), false)
      OR EXISTS (FROM topology WHERE kind = 'version' AND name = 'rccl') AS is_amd, -- AMD's GPUs
    coalesce(max(clock_residual_ns), 0) AS residual_ns            -- clock error left
  FROM rank) r;

-- One row: whether all that was recorded is the first pass of its process, which loads and tries out.
--   only_pass: one pass, shorter than the set-up before it
CREATE VIEW first_pass AS
SELECT steps < 2 AND EXISTS (FROM edge_gap WHERE edge = 'leading' AND kind = 'loading'
  AND end_ns - start_ns > step_ns) AS only_pass FROM facts;

-- Breakdown of used steps only.
CREATE VIEW rank_step AS
SELECT * FROM step_breakdown WHERE used;

-- One row: how much the waiting of all ranks varies from step to step. When pauses move between
-- ranks, each rank's own cost varies widely and what all of them wait in a step hardly at all.
CREATE VIEW wait_spread AS
SELECT CASE WHEN count(wait_ns) >= 3 THEN
    least(1, greatest(0.2, 1.96 * stddev_samp(wait_ns) / sqrt(count(*)) / nullif(avg(wait_ns), 0)))
  END AS relative -- half width of the 95 % interval of the mean; at least 0.2: other waiting follows
FROM (SELECT step, coalesce(avg(exposed_wait_ns), any_value(partly)) AS wait_ns FROM rank_step
  LEFT JOIN (SELECT step, sum(wait_ns) / count(DISTINCT rank) AS partly -- some of the ranks were not read
    FROM collective WHERE wait_ns IS NOT NULL GROUP BY step) USING (step) GROUP BY step);
