-- Stages of a pipeline.

-- Ranks of a pipeline beside the others of their stage, which hold the same layers. What a stage
-- takes is what most of its ranks take (of two the faster): one slow rank is no heavy stage.
--   peers: other ranks of its stage
--   slowest_in_stage: whether its compute is the longest of its stage
--   fill: factor by which filling and draining the pipeline lengthens the step
CREATE VIEW stage_rank AS
SELECT a.rank, a.stage, any_value(a.stages) AS stages, any_value(a.micro_batches) AS micro_batches,
  any_value(a.step_ns) AS step_ns,
  any_value(a.compute_ns) AS compute_ns, any_value(a.bubble_ns) AS bubble_ns,
  quantile_disc(b.compute_ns, 0.5) FILTER (b.stage = a.stage) AS peer_ns, -- the others of its stage
  count(*) FILTER (b.stage = a.stage) AS peers,
  any_value(a.compute_ns) > coalesce(max(b.compute_ns) FILTER (b.stage = a.stage), 0) AS slowest_in_stage,
  max(b.compute_ns) AS slowest_other_ns,
  -- what filling and draining adds
  1 + coalesce((any_value(a.stages) - 1) / nullif(any_value(a.micro_batches * coalesce(a.chunks, 1)), 0), 0)
    AS fill,
  max(b.compute_ns) * fill AS even_ns -- the pipeline without this rank
FROM pipeline_stage a JOIN pipeline_stage b ON a.rank <> b.rank GROUP BY a.rank, a.stage;

-- Ranks of stages that take a tenth longer than the mean stage: who waits for one of them does so
-- whatever the number of micro-batches.
CREATE VIEW heavy_stage AS
SELECT unnest(ranks) AS rank FROM (
  SELECT list(rank) AS ranks, quantile_disc(compute_ns, 0.5) AS own_ns FROM pipeline_stage GROUP BY stage)
QUALIFY own_ns > 1.1 * avg(own_ns) OVER ();
