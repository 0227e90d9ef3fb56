"""The table of calls that a step repeats or could do without."""

from advisor.metrics.collectives.summaries import CALLS
from advisor.vocabulary.operations import PICKLES, UNPICKLES

# A scalar or a handful of them: what logging a metric sends.
TINY_BYTES = 1024
_NUMBER_BYTES = 8  # one number: what a trainer's log averages, of which each takes a barrier
# What follows a call after computing for less than this is of the same burst, and what the rank
# idles between two operators for less is Python (Lightning's log idles 1.1 to 1.7 ms between two
# values, in stretches of 0.1); the forward pass of a real model computes longer, a pause is one.
_BURST_NS = 1_000_000
# Broadcasts of a step whose bytes are those of its gradients, but for this share, hand out the
# parameters, and reductions behind the gradients' own average them: a ZeRO-1 optimizer has to hand
# them out, where every rank updates its own copy nobody needs it. Gathers of as many bytes between
# sharded gradients and the optimizer make them whole, which a norm does not need; elsewhere, beside
# those of the forward pass, they make the weights whole once more (an average of them, a log).
_AS_MANY_BYTES = 0.1


def may_be_redundant(op: str, size: int | None) -> bool:
    """Whether REDUNDANT has to look at such a call: to plan it takes the database long."""
    if op in ("all_reduce", "reduce"):
        return size is not None and size <= TINY_BYTES
    return op in ("barrier", "broadcast", "all_gather", "gather")


REDUNDANT = f"""
INSERT INTO redundant BY NAME
{CALLS},
gradients AS (
  SELECT DISTINCT rank, call_id, true AS gradient FROM param_bucket WHERE run = $1),
optimizing AS (
  SELECT rank, start_ns FROM event
  WHERE run = $1 AND class = 'annotation' AND starts_with(name, 'Optimizer.step')
    AND device IS NULL),
reduced AS (
  SELECT c.*, max(coalesce(enqueue_ns, start_ns)) FILTER (gradient AND op = 'reduce_scatter') OVER (
      PARTITION BY c.rank, step, process_group ORDER BY start_ns) AS reduced_ns,
    sum(bytes) FILTER (op = 'all_gather' AND phase = 'forward') OVER own
      >= {1 - _AS_MANY_BYTES} * sum(bytes) FILTER (gradient) OVER own AS in_forward
  FROM call c LEFT JOIN gradients USING (rank, call_id)
  WINDOW own AS (PARTITION BY c.rank, step, process_group)),
-- What is gathered after shards of the gradients were made and before the optimizer takes them, and
-- what is gathered beside the weights that the forward pass gathers
whole AS (
  SELECT c.rank, c.call_id, CASE
    WHEN coalesce(phase, 'other') = 'other' AND o.start_ns IS NOT NULL AND reduced_ns IS NOT NULL
      AND (p.start_ns IS NULL OR reduced_ns > p.start_ns) THEN 'gradients'
    WHEN in_forward THEN 'weights' END AS whole
  FROM reduced c ASOF LEFT JOIN optimizing o
    ON o.rank = c.rank AND o.start_ns >= coalesce(c.enqueue_ns, c.start_ns)
  ASOF LEFT JOIN optimizing p
    ON p.rank = c.rank AND p.start_ns <= coalesce(c.enqueue_ns, c.start_ns)
  WHERE op = 'all_gather' AND coalesce(phase NOT IN ('forward', 'backward'), true)),
sent AS (
  SELECT * FROM (SELECT c.rank, step, process_group, op, phase, bytes, whole,
      (rank, call_id) NOT IN (SELECT (rank, call_id) FROM gradients) AS handed
    FROM call c LEFT JOIN whole USING (rank, call_id))
  WHERE NOT handed OR whole IS NOT NULL OR op = 'broadcast' AND phase IS DISTINCT FROM 'forward'
    OR op = 'all_reduce' AND coalesce(phase NOT IN ('forward', 'backward'), true)),
handing AS (
  SELECT s.rank, s.step, s.process_group, s.op, s.whole FROM sent s JOIN (
    SELECT rank, step, process_group, sum(bytes) AS bytes FROM sent WHERE NOT handed GROUP BY ALL) g
    ON g.rank = s.rank AND g.step = s.step AND g.process_group IS NOT DISTINCT FROM s.process_group
  WHERE handed GROUP BY s.rank, s.step, s.process_group, s.op, s.whole
  HAVING abs(sum(s.bytes) / nullif(any_value(g.bytes), 0) - 1) <= {_AS_MANY_BYTES}),
in_most AS ( -- in few steps they are saved or shown: no step of training needs them
  SELECT process_group, whole FROM handing WHERE whole IS NOT NULL GROUP BY ALL
  HAVING 2 * count(DISTINCT step) >= (SELECT max(steps) FROM steps)),
own_copies AS ( -- without a mark of any optimizer, it may be what hands them out
  SELECT process_group FROM sent SEMI JOIN handing USING (rank, step, op) WHERE handed
    AND EXISTS (FROM optimizing)
  GROUP BY process_group HAVING avg((phase IS NOT DISTINCT FROM 'optimizer')::INTEGER) < 0.5),
reducing AS ( -- groups of data parallelism: others reduce in the forward pass too
  SELECT DISTINCT process_group, true AS reduces FROM sent WHERE NOT handed AND NOT EXISTS (
    FROM call c WHERE c.phase = 'forward' AND c.op IN ('all_reduce', 'reduce_scatter')
      AND c.process_group IS NOT DISTINCT FROM sent.process_group)),
forwards AS (
  SELECT rank, start_ns AS forward_ns FROM event
  WHERE run = $1 AND name = 'DistributedDataParallel.forward'),
copies AS ( -- of them those of whole models, where nothing is sent back of what was gathered
  SELECT process_group, true AS whole_models FROM reducing WHERE NOT EXISTS (
    FROM call c LEFT JOIN gradients USING (rank, call_id)
    WHERE c.process_group IS NOT DISTINCT FROM reducing.process_group AND (c.op = 'reduce_scatter'
      OR c.phase = 'backward' AND gradient IS NULL AND coalesce(dtype <> 'int32', true)))),
ordered AS (
  SELECT c.* EXCLUDE in_bytes, coalesce(enqueue_ns, start_ns) AS asked_ns,
    h.rank IS NOT NULL AND (c.op = 'broadcast' AND phase IS DISTINCT FROM 'forward'
      OR c.op = 'all_reduce' AND coalesce(phase NOT IN ('forward', 'backward'), true)
        AND gradient IS NULL OR e.whole IS NOT NULL) AS handed, e.whole,
    -- DistributedDataParallel hands out the first rank's buffers before each forward pass, whole
    -- numbers among them. Megatron hands out token ids to its tensor-parallel ranks: not buffers.
    -- As many bytes as the gradients' are parameters, of which no annotation tells the optimizer.
    c.op = 'broadcast' AND coalesce(phase = 'forward', false)
      AND coalesce(abs(sum(c.bytes) FILTER (c.op = 'broadcast') OVER own
        / nullif(sum(c.bytes) FILTER (gradient) OVER own, 0) - 1) > {_AS_MANY_BYTES}, true)
      AND (NOT coalesce(dtype IN ('int64', 'int32'), false)
        OR coalesce(reduces, false)) AS buffer,
    -- Right after sharded gradients ranks add up their parts of the gradients' norm, to clip by it:
    -- a floating-point number. One byte is a barrier.
    c.op = 'barrier' OR (c.op IN ('all_reduce', 'broadcast', 'all_gather', 'reduce', 'gather')
      AND NOT handed AND NOT buffer
      AND NOT (c.op = 'all_reduce' AND coalesce(phase, 'other') = 'other' AND bytes > 1
        AND coalesce(lag(c.op = 'reduce_scatter') OVER turn, false))
      AND bytes <= {TINY_BYTES} AND gradient IS NULL) AS small, gradient, whole_models,
    -- No forward pass since: no loss of this update is computed of it
    EXISTS (FROM forwards) AND coalesce(forward_ns < max(end_ns) FILTER (gradient) OVER (
      PARTITION BY c.rank, c.process_group ORDER BY c.start_ns), forward_ns IS NULL)
      AS behind_gradients,
    lead(coalesce(enqueue_ns, start_ns)) OVER turn AS next_ns,
    lead(c.op = 'all_reduce' AND bytes <= {_NUMBER_BYTES}) OVER turn AS next_scalar,
    lead(bytes) OVER turn AS next_bytes, lead(c.op) OVER turn AS next_op,
    lag(c.op = 'barrier') OVER turn AS after_barrier,
    -- Python objects: their sizes go ahead of their bytes, whose type the ranks know that have all
    c.op IN ('all_gather', 'broadcast') AND c.dtype = 'int64' AND bytes <= {TINY_BYTES}
      AND coalesce(lead(c.in_bytes AND c.op IN ('all_gather', 'broadcast', 'gather', 'scatter'))
        OVER turn, false) AS sizes_ahead
  FROM (SELECT * REPLACE (coalesce(bytes, max(bytes) OVER of_call) AS bytes),
      bool_or(dtype = 'uint8') OVER of_call AS in_bytes
    FROM call WINDOW of_call AS (PARTITION BY call_id)) c
    LEFT JOIN whole e ON e.rank = c.rank AND e.call_id = c.call_id
    LEFT JOIN handing h ON h.rank = c.rank AND h.step = c.step AND h.op = c.op
      AND h.process_group IS NOT DISTINCT FROM c.process_group
      AND h.whole IS NOT DISTINCT FROM e.whole
    LEFT JOIN gradients b ON b.rank = c.rank AND b.call_id = c.call_id
    LEFT JOIN reducing r ON r.process_group IS NOT DISTINCT FROM c.process_group
    ASOF LEFT JOIN forwards f
      ON f.rank = c.rank AND forward_ns <= coalesce(c.enqueue_ns, c.start_ns)
    LEFT JOIN copies m ON m.process_group IS NOT DISTINCT FROM c.process_group
  WINDOW turn AS (PARTITION BY c.rank, c.step, c.process_group ORDER BY start_ns),
    own AS (PARTITION BY c.rank, c.step, c.process_group)),
no_core AS (
  SELECT rank, step, waits[row_number() OVER (PARTITION BY rank ORDER BY start_ns)] AS no_core_ns
  FROM step JOIN (SELECT rank,
      try_cast(try_cast(metadata AS JSON) -> '$.advisor.core_wait_ns' AS BIGINT[]) AS waits
    FROM rank WHERE run = $1 AND timeline = 'host') USING (rank)
  WHERE run = $1 QUALIFY len(waits) = count(*) OVER (PARTITION BY rank)),
between AS (
  SELECT o.rank, o.step, o.call_id, g.idle_ns, g.idle_ns > {_BURST_NS} AS long
  FROM ordered o JOIN rank k ON k.run = $1 AND k.rank = o.rank AND k.timeline = 'host'
  JOIN host_gap g ON g.run = $1 AND g.rank = o.rank
    AND g.start_ns >= o.end_ns AND g.end_ns <= o.next_ns
  WHERE kind = 'other' AND (o.small OR g.idle_ns <= {_BURST_NS})),
python AS ( -- a thread that is woken by a call and gets no core looks idle as well
  SELECT rank, call_id, sum(idle_ns) AS python_ns FROM (
    SELECT *, sum(idle_ns) OVER (
      PARTITION BY rank, step, long ORDER BY idle_ns, call_id ROWS UNBOUNDED PRECEDING) AS until_ns
    FROM between)
  LEFT JOIN no_core USING (rank, step) WHERE NOT long OR until_ns <= no_core_ns GROUP BY ALL),
objects AS (
  SELECT rank, call_id, asked_ns, start_ns FROM (
    SELECT *, lag(sizes_ahead) OVER turn AS payload FROM ordered
    WINDOW turn AS (PARTITION BY rank, step, process_group ORDER BY start_ns))
  WHERE sizes_ahead OR payload),
pickling AS (
  SELECT e.rank, e.start_ns, e.dur_ns, ends_with(name, '{PICKLES}') AS before FROM event e
  JOIN step s ON s.run = $1 AND s.rank = e.rank AND s.used
    AND e.start_ns >= s.start_ns AND e.start_ns < s.end_ns
  WHERE e.run = $1 AND class IN ('annotation', 'python') AND device IS NULL
    AND (ends_with(name, '{PICKLES}') OR ends_with(name, '{UNPICKLES}'))
    AND EXISTS (FROM objects)),
pickled AS (
  SELECT rank, call_id, sum(dur_ns) AS pickled_ns FROM (
    SELECT o.rank, call_id, dur_ns FROM pickling p ASOF JOIN objects o
      ON o.rank = p.rank AND o.asked_ns >= p.start_ns WHERE before
    UNION ALL
    SELECT o.rank, call_id, dur_ns FROM pickling p ASOF JOIN objects o
      ON o.rank = p.rank AND o.start_ns <= p.start_ns WHERE NOT before) GROUP BY ALL),
near AS (
  SELECT o.* REPLACE (small AND b.rank IS NULL AS small), b.rank IS NOT NULL AS object,
    coalesce(pickled_ns, 0) AS pickled_ns, coalesce(next_ns >= end_ns
    AND next_ns - end_ns - coalesce(python_ns, 0) <= {_BURST_NS}, false) AS is_near,
    k.timeline = 'host' AS on_host
  FROM ordered o JOIN rank k ON k.run = $1 AND k.rank = o.rank
  LEFT JOIN python p ON p.rank = o.rank AND p.call_id = o.call_id
  LEFT JOIN objects b ON b.rank = o.rank AND b.call_id = o.call_id
  LEFT JOIN pickled l ON l.rank = o.rank AND l.call_id = o.call_id),
-- On a host's timeline what is gathered with numbers, by the same lines of a script, is for them
-- too (logits beside their loss), unless it is as much as the parameters. Whatever else ranks with
-- whole models gather outside backward is no parameter, in its own or another width; nor is what
-- one rank alone gathers.
shown AS (
  SELECT * REPLACE (small OR with_numbers AND abs(of_gradients - 1) > {_AS_MANY_BYTES} AS small),
    values AND NOT (small OR with_numbers) AND (op = 'gather' OR whole_models AND coalesce(least(
      abs(of_gradients - 0.5), abs(of_gradients - 1), abs(of_gradients - 2)) > {_AS_MANY_BYTES},
      phase = 'forward')) AS kept
  FROM (
    SELECT *, coalesce(values AND coalesce(phase, 'other') = 'other'
        AND (is_near AND lead(small AND op = 'all_gather') OVER turn
          OR lag(is_near AND small AND op = 'all_gather') OVER turn), false) AS with_numbers,
      sum(bytes) FILTER (op = 'all_gather' AND coalesce(phase, 'other') = 'other') OVER one
        / nullif(sum(bytes) FILTER (gradient) OVER one, 0) AS of_gradients
    FROM (SELECT *, on_host AND op IN ('all_gather', 'gather') AND NOT handed AND NOT small
      AND NOT object AND module IS NULL
        AND coalesce(phase, 'other') IN ('other', 'forward') AS values
      FROM near)
    WINDOW turn AS (PARTITION BY rank, step, process_group ORDER BY start_ns),
      one AS (PARTITION BY rank, step, process_group))),
joined AS (
  SELECT *, is_near AND small AND lead(small) OVER turn AS goes_on
  FROM shown WINDOW turn AS (PARTITION BY rank, step, process_group ORDER BY start_ns)),
timed AS (
  -- On a host's timeline Python between two of them is part of the step, and goes with them. One
  -- alone (DDP's map of unused parameters) is the replay's to judge.
  SELECT o.* REPLACE (CASE WHEN op = 'barrier' AND next_scalar THEN 'all_reduce' ELSE op END AS op),
    op = 'barrier' AS barrier,
    small AND (op = 'barrier' AND coalesce(next_scalar, false)
      OR op = 'all_reduce' AND bytes <= {_NUMBER_BYTES} AND coalesce(after_barrier, false))
      AS logged,
    CASE WHEN on_host THEN CASE
        WHEN object THEN pickled_ns - coalesce(wait_ns, 0)
          + CASE WHEN sizes_ahead THEN next_ns ELSE end_ns END - asked_ns
        WHEN handed THEN CASE WHEN lead(handed) OVER turn THEN next_ns ELSE end_ns END - asked_ns
        WHEN kept THEN end_ns - asked_ns
        WHEN goes_on THEN next_ns - asked_ns
        WHEN lag(goes_on) OVER turn THEN end_ns - asked_ns ELSE 0 END END AS span_ns
  FROM joined o
  WINDOW turn AS (PARTITION BY o.rank, o.step, o.process_group ORDER BY o.start_ns)),
gathered AS (
  -- In one step the same module's parameters gathered more than once. Where modules are not named
  -- (FSDP1), a gather of the backward pass repeats one of as many bytes in the forward pass; where
  -- gradients are not reduced in the group, activations are gathered (sequence parallelism).
  SELECT *, CASE WHEN module IS NOT NULL THEN row_number() OVER (
      PARTITION BY rank, step, process_group, module, bytes ORDER BY start_ns)
    WHEN phase = 'backward' AND row_number() OVER (
        PARTITION BY rank, step, process_group, module, bytes, phase ORDER BY start_ns)
      <= count(*) FILTER (phase = 'forward') OVER (
        PARTITION BY rank, step, process_group, module, bytes) THEN 2 END AS turn
  FROM timed WHERE op = 'all_gather' AND phase IN ('forward', 'backward')
    AND (module IS NOT NULL OR process_group IN (SELECT process_group
      FROM call JOIN param_bucket b USING (rank, call_id) WHERE b.run = $1
      AND op = 'reduce_scatter'))),
needless AS (
  SELECT 'logged' AS kind, process_group, op,
    CASE WHEN barrier THEN next_bytes ELSE bytes END AS bytes,
    rank, exposed_transfer_ns, wait_ns, span_ns, NOT barrier AS counts
  FROM timed WHERE logged
  UNION ALL
  SELECT 'barrier', process_group, op, NULL, rank, exposed_transfer_ns, wait_ns, span_ns, true
  FROM timed WHERE barrier AND NOT logged
    -- Barriers inside a library's own calls are nobody's to leave out.
    AND coalesce(library, 'nccl') IN ('nccl', 'rccl', 'gloo', 'mpi', 'ucc', 'xccl', 'hccl')
  UNION ALL
  SELECT 'tiny', process_group, op, bytes, rank, exposed_transfer_ns, wait_ns, span_ns, true
  FROM timed WHERE small AND NOT barrier AND NOT logged
  UNION ALL
  SELECT 'objects', process_group, CASE WHEN sizes_ahead THEN next_op ELSE op END,
    max(CASE WHEN sizes_ahead THEN next_bytes ELSE bytes END) OVER (PARTITION BY process_group),
    rank, exposed_transfer_ns, wait_ns,
    span_ns, NOT sizes_ahead
  FROM timed WHERE object
  UNION ALL
  SELECT 'buffers', process_group, op, bytes, rank, exposed_transfer_ns, wait_ns, NULL, true
  FROM timed WHERE buffer
  UNION ALL
  SELECT 'parameters', process_group, op, bytes, rank, exposed_transfer_ns, wait_ns, span_ns, true
  FROM timed WHERE handed AND op <> 'all_gather'
    AND EXISTS (FROM own_copies o WHERE o.process_group IS NOT DISTINCT FROM timed.process_group)
  UNION ALL
  SELECT whole, process_group, op, bytes, rank, exposed_transfer_ns, wait_ns, span_ns, true
  FROM timed WHERE handed AND op = 'all_gather' AND EXISTS (FROM in_most m
    WHERE m.whole = timed.whole AND m.process_group IS NOT DISTINCT FROM timed.process_group)
  UNION ALL
  SELECT CASE WHEN behind_gradients THEN 'shown' ELSE 'gathered' END,
    process_group, op, bytes, rank, exposed_transfer_ns, wait_ns, span_ns, true
  FROM timed WHERE kept
  UNION ALL
  SELECT 'repeated-gather', process_group, op, bytes, rank, exposed_transfer_ns, wait_ns, NULL, true
  FROM gathered WHERE turn > 1),
per_rank AS (
  SELECT kind, process_group, op, bytes, rank, count(*) FILTER (counts) AS calls,
    sum(exposed_transfer_ns) AS exposed_ns, sum(coalesce(wait_ns, 0)) AS wait_ns,
    sum(span_ns) AS span_ns
  FROM needless GROUP BY ALL)
SELECT $1 AS run, kind, process_group, op, bytes, median(calls / steps) AS calls_per_step,
  round(median(exposed_ns / steps))::BIGINT AS exposed_ns_per_step,
  round(median(per_rank.wait_ns / steps))::BIGINT AS wait_ns_per_step,
  -- one rank pickles what is broadcast, and unpickles what is gathered to it
  round(CASE WHEN kind = 'objects' THEN max(span_ns / steps)
    ELSE median(span_ns / steps) END)::BIGINT AS span_ns_per_step
FROM per_rank JOIN steps USING (rank) GROUP BY kind, process_group, op, bytes ORDER BY ALL
"""
