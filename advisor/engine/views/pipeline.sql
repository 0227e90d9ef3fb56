-- Stages of a pipeline.

-- Ranks of a pipeline beside the others of their stage, which hold the same layers. What a stage
-- takes is what most of its ranks take (of two the faster): one slow rank is no heavy stage.
--   peers: other ranks of its stage
--   slowest_in_stage: whether its compute is the longest of its stage
--   even_ns: the step without this rank: all micro-batches on the slowest other rank, and one on each
--     stage before and behind it, which fills and drains the pipeline
CREATE VIEW stage_rank AS
WITH beside AS (
  SELECT a.rank, a.stage, any_value(a.stages) AS stages, any_value(a.micro_batches) AS micro_batches,
    any_value(a.micro_batches * coalesce(a.chunks, 1)) AS passes, any_value(a.step_ns) AS step_ns,
    any_value(a.compute_ns) AS compute_ns, any_value(a.bubble_ns) AS bubble_ns, a.stage = b.stage AS own,
    max(b.compute_ns) AS slowest_ns, quantile_disc(b.compute_ns, 0.5) AS usual_ns, count(*) AS ranks
  FROM pipeline_stage a JOIN pipeline_stage b ON a.rank <> b.rank GROUP BY a.rank, a.stage, b.stage)
SELECT rank, stage, any_value(stages) AS stages, any_value(micro_batches) AS micro_batches,
  any_value(step_ns) AS step_ns, any_value(compute_ns) AS compute_ns, any_value(bubble_ns) AS bubble_ns,
  max(usual_ns) FILTER (own) AS peer_ns, -- the others of its stage
  coalesce(max(ranks) FILTER (own), 0) AS peers,
  any_value(compute_ns) > coalesce(max(slowest_ns) FILTER (own), 0) AS slowest_in_stage,
  max(slowest_ns) AS slowest_other_ns, -- of all other ranks the one that computes longest
  slowest_other_ns + coalesce((sum(slowest_ns) - slowest_other_ns) / nullif(count(*) - 1, 0)
    * (any_value(stages) - 1) / nullif(any_value(passes), 0), 0) AS even_ns
FROM beside GROUP BY rank, stage;

-- Ranks of stages that take a tenth longer than the mean stage: who waits for one of them does so
-- whatever the number of micro-batches.
CREATE VIEW heavy_stage AS
SELECT unnest(ranks) AS rank FROM (
  SELECT list(rank) AS ranks, quantile_disc(compute_ns, 0.5) AS own_ns FROM pipeline_stage GROUP BY stage)
QUALIFY own_ns > 1.1 * avg(own_ns) OVER ();

-- Calls within a stage that come with each micro-batch: activations and tokens, not gradients.
CREATE VIEW inner_call AS
WITH often AS (
  SELECT rank, op, process_group FROM call JOIN pipeline_stage USING (rank)
  WHERE op NOT IN ('send', 'recv')
    AND (op = 'all_to_all' OR process_group IN (SELECT process_group FROM activation_group))
  GROUP BY rank, op, process_group
  HAVING count(*) >= any_value(micro_batches) * (SELECT count(*) FROM used_step))
SELECT c.* FROM call c JOIN often o ON o.rank = c.rank AND o.op = c.op
  AND o.process_group IS NOT DISTINCT FROM c.process_group;
