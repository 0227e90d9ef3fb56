-- The rows of an op table as they are, with what is wrong with each.

-- The names are Megatron's timers as StragglerAnalysis lists them (analyzer/metatypes.py); `kind` is
-- which ranks an operation joins. Clipping needs the gradients' norm over the whole model, which is
-- an all-reduce over all ranks (Megatron-LM, get_grad_norm_fp32).
CREATE TEMP TABLE op_kind AS
SELECT * FROM (VALUES
  ('forward-compute', 'compute', 0, NULL, NULL),
  ('backward-compute', 'compute', 0, NULL, NULL),
  ('optimizer', 'compute', 0, NULL, NULL),
  ('params-all-gather', 'comm', 1, 'all_gather', 'data parallel'),
  ('grads-reduce-scatter', 'comm', 1, 'reduce_scatter', 'data parallel'),
  ('separate-grads-all-reduce', 'comm', 1, 'all_reduce', 'data parallel'),
  ('layernorm-grads-all-reduce', 'comm', 1, 'all_reduce', 'tensor parallel'),
  ('embedding-grads-all-reduce', 'comm', 1, 'all_reduce', 'embedding'),
  ('optimizer-clip-main-grad', 'comm', 1, 'all_reduce', 'world'),
  ('forward-send', 'comm', 2, 'send', 'next'),
  ('forward-recv', 'comm', 3, 'recv', 'previous'),
  ('backward-send', 'comm', 4, 'send', 'previous'),
  ('backward-recv', 'comm', 5, 'recv', 'next')
) AS known (name, class, stream, collective, kind);

CREATE TEMP TABLE op_read AS
SELECT file_row_number AS number, left(try_cast(optype AS VARCHAR), 64) AS name,
  op_whole(rank) AS rank, op_whole(dp_rank) AS replica, op_whole(stage) AS stage,
  op_whole(step) AS step,
  try_cast(start_ts AS DOUBLE) AS start_s, try_cast(duration AS DOUBLE) AS length_s,
  NULL::VARCHAR AS reason
FROM read_parquet($path, file_row_number = true);

-- Of a long table one step of every few is kept, spread over all of them: each in another place of
-- its share (steps of the golden ratio), so that what comes back every so many steps is neither
-- always nor never among them. Rows without a step are kept in proportion.
CREATE TEMP TABLE op_step AS
WITH own AS (SELECT step, count(*) AS rows FROM op_read GROUP BY step),
share AS (SELECT greatest(1, least(
  ceil(sum(rows) / $most_rows), count(step) // $fewest_steps))::BIGINT AS every FROM own),
placed AS (SELECT step, row_number() OVER (ORDER BY step) - 1 AS place FROM own
  WHERE step IS NOT NULL)
SELECT step, every,
  place % every = floor(((place // every) * (sqrt(5) - 1) / 2 % 1) * every) AS kept
FROM placed, share;

CREATE TEMP TABLE op_row AS
SELECT op_read.* FROM op_read LEFT JOIN op_step USING (step)
WHERE coalesce(kept, number % (SELECT coalesce(max(every), 1) FROM op_step) = 0);

DROP TABLE op_read;

-- What is usable. Step numbers and ranks are small; times are seconds. Asked of what was read: in
-- the query above the file's own statistics would answer, and they may be damaged.
UPDATE op_row SET reason = CASE
  WHEN (rank BETWEEN 0 AND $most_ranks - 1) IS NOT TRUE THEN 'no usable rank'
  WHEN (replica BETWEEN 0 AND $most_ranks - 1) IS NOT TRUE THEN 'no usable dp_rank'
  WHEN (stage BETWEEN 0 AND $most_ranks - 1) IS NOT TRUE THEN 'no usable stage'
  WHEN (step >= 0) IS NOT TRUE THEN 'no usable step'
  WHEN name IS NULL THEN 'no optype'
  WHEN start_s IS NULL OR length_s IS NULL OR NOT isfinite(start_s) OR NOT isfinite(length_s)
    OR length_s < 0 OR abs(start_s) > $longest_s OR length_s > $longest_s
    THEN 'no usable time' END;

-- Steps are laid one after the other: where that is longer than a job, lengths are damaged.
UPDATE op_row SET reason = 'no usable time' WHERE reason IS NULL AND step IN (
  SELECT step FROM (
    SELECT step, sum(max(start_s + length_s) - min(start_s)) OVER (ORDER BY step) AS until_s
    FROM op_row WHERE reason IS NULL GROUP BY step)
  WHERE until_s > $longest_run_s);

-- The same row once more, as a copy of a part of the table has it.
UPDATE op_row SET reason = 'repeated row' WHERE reason IS NULL AND number IN (
  SELECT number FROM op_row WHERE reason IS NULL QUALIFY row_number() OVER (
    PARTITION BY rank, replica, stage, step, name, start_s, length_s ORDER BY number) > 1);

-- All ranks of a stage run the same operations in a step, and a rank the same in all steps: who has
-- fewer than both has lost rows, and the time that they took would look like a pause: that step of
-- the rank is not whole, and gets no mark.
CREATE TEMP TABLE op_lack AS
WITH own AS (
  SELECT rank, any_value(stage) AS stage, step, count(*) AS rows
  FROM op_row WHERE reason IS NULL GROUP BY rank, step),
expected AS (
  SELECT rank, step, rows, least(max(rows) OVER (PARTITION BY stage, step),
    median(rows) OVER (PARTITION BY rank)) AS usual FROM own)
SELECT rank, step, 'missing row' AS reason, ceil(usual - rows)::BIGINT AS lost
FROM expected WHERE rows < usual;
