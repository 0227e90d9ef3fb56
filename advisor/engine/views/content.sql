-- What recordings hold: how much of them is understood, ranks without a device, copies of memory.

-- One row: the share of the devices' time in kernels that is understood.
--   share: null where no kernel was recorded; 1 where a GPU works alone: nobody is there to communicate with
--   unknown_ns: time of the other kernels
--   unknown_kernels: the longest of them on the rank with most, JSON
CREATE VIEW coverage AS
SELECT CASE WHEN bool_and(launches > 0) AND (SELECT world_size FROM facts) = 1 AND sum(kernel_ns) > 0 THEN 1.0
  ELSE sum(known_ns)::DOUBLE / nullif(sum(kernel_ns), 0) END AS share,
  least(sum(kernel_ns - known_ns), 9223372036854775807)::BIGINT AS unknown_ns,
  arg_max(unknown_kernels, kernel_ns - known_ns) AS unknown_kernels
FROM rank_content;

-- What the device computes longest, on the rank that computes most: kernels by name without arguments.
-- No rows without rank_content.
--   name: of the kernels
--   share: of that rank's time in kernels
CREATE VIEW longest_kernel AS
SELECT kernel.name AS name, kernel.ns / kernel_ns AS share
FROM (SELECT kernel_ns, unnest(from_json(longest_kernels, '[{"name": "VARCHAR", "ns": "BIGINT"}]')) AS kernel
  FROM (FROM rank_content WHERE kernel_ns > 0 ORDER BY kernel_ns DESC, rank LIMIT 1));

-- Ranks that recorded nothing of a device (or a few copies alone), nor of a backend that works on the host
-- beside operators: no ground for shares of a step. Recordings of our own say that they are of a CPU.
CREATE VIEW without_device AS
SELECT rank, cpu_ops, runtime_calls, annotations, python_calls
FROM rank_content JOIN rank USING (rank)
WHERE kernel_ns = 0 AND 2 * device_events <= launches
  AND CASE WHEN cpu_ops = 0 THEN runtime_calls + backend_spans > 0
  ELSE backend_spans = 0 AND NOT coalesce(json_exists(try_cast(metadata AS JSON), '$.advisor'), false) END;

-- Of these the ranks whose peers recorded devices: as if they had not been recorded.
CREATE VIEW blind_rank AS
SELECT rank FROM without_device WHERE (SELECT count(*) FROM without_device) < (SELECT count(*) FROM rank);

-- Copies per step by direction: median over ranks of the mean over used steps. What one rank copies in a
-- pause of its own goes with that.
--   copies: how many
--   tiny: of them 64 KiB or less
--   bytes: sum of their sizes
--   copy_ns: sum of their durations
--   exposed_ns: under no compute and no communication
--   edge_ns: of that, before the first kernel or after the last of a trace without steps
--   launched_by: the operator that copies most on the device
--   memory: the kind of host memory of most bytes
--   ranks: that copy
--   useful_ns: what else the device does, under which copies could hide
CREATE VIEW exposed_copy AS
WITH used AS (SELECT count(*) AS steps FROM used_step),
per AS (
  SELECT rank, direction, sum(copies) / any_value(steps) AS copies, sum(tiny) / any_value(steps) AS tiny,
    sum(bytes) / any_value(steps) AS bytes, sum(copy_ns) / any_value(steps) AS copy_ns,
    sum(exposed_ns) / any_value(steps) AS exposed_ns, arg_max(memory, bytes) AS memory,
    coalesce(sum(edge_ns), 0) / any_value(steps) AS edge_ns, arg_max(launched_by, bytes) AS launched_by
  FROM (FROM memory_copy m SEMI JOIN used_step USING (step) ANTI JOIN one_rank_pause p
    ON p.rank = m.rank AND p.step = m.step AND p.pause_ns >= m.exposed_ns), used GROUP BY rank, direction)
SELECT direction, median(copies) AS copies, median(tiny) AS tiny, median(bytes)::BIGINT AS bytes,
  median(copy_ns)::BIGINT AS copy_ns, median(exposed_ns)::BIGINT AS exposed_ns,
  median(edge_ns)::BIGINT AS edge_ns, arg_max(launched_by, bytes) AS launched_by, arg_max(memory, bytes) AS memory, list(rank ORDER BY rank) AS ranks,
  (SELECT median(compute_ns + exposed_comm_ns)::BIGINT FROM rank_step) AS useful_ns
FROM per GROUP BY direction;

-- Compute that a setting or another kernel spares, per step: medians over the ranks that do it.
--   kind: as in avoidable_compute
--   ranks: that do it
--   bare_share: of their time (where that is unknown, of all compute's), what hides no communication: only
--     this surely shortens the step
CREATE VIEW avoidable AS
SELECT kind, median(kernels) AS kernels, median(ns)::BIGINT AS ns, median(rest_ns)::BIGINT AS rest_ns,
  mode(operator) AS operator, bool_or(checkpoint) AS checkpoint, list(rank ORDER BY rank) AS ranks,
  coalesce(median(bare_share), (SELECT 1 - coalesce(least(1,
    median(hidden_comm_ns::DOUBLE / nullif(compute_ns, 0))), 0) FROM rank_step)) AS bare_share
FROM avoidable_compute GROUP BY kind;
