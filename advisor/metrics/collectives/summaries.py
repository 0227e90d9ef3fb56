"""Tables that are plain queries over ``collective``: traffic, balance of experts."""

from advisor.vocabulary.bandwidth import bus_factor_sql

# Calls of used steps, with the factor from message size to bytes that each rank
# sends (METRICS section 4), and exposure without the part that is waiting for a late rank.
CALLS = f"""
WITH used AS (
  SELECT rank, step FROM step WHERE run = $1 AND used),
call AS (
  SELECT c.*,
    CASE WHEN c.op = 'recv' THEN 0.0 ELSE {bus_factor_sql("c.op", "c.group_size")} END AS factor
  FROM collective c JOIN used s ON s.rank = c.rank AND s.step = c.step WHERE c.run = $1),
steps AS (SELECT rank, count(*) AS steps FROM used GROUP BY rank)
"""

TRAFFIC = f"""
INSERT INTO traffic BY NAME
{CALLS},
per_rank AS (
  SELECT process_group, op, phase, dtype, rank, any_value(group_size) AS group_size,
    count(*) AS calls, sum(bytes) AS bytes, sum(bytes * factor) AS wire_bytes,
    max(bytes) AS largest, min(bytes) AS smallest, sum(transfer_ns) AS transfer_ns,
    sum(exposed_transfer_ns) AS exposed_ns
  FROM call GROUP BY ALL)
SELECT $1 AS run, process_group, op, phase, dtype, max(group_size) AS group_size,
  median(calls / steps) AS calls_per_step,
  round(median(bytes / steps))::BIGINT AS bytes_per_step,
  round(median(wire_bytes / steps))::BIGINT AS wire_bytes_per_step,
  max(largest) AS largest_bytes, min(smallest) AS smallest_bytes,
  round(median(transfer_ns / steps))::BIGINT AS transfer_ns_per_step,
  round(median(exposed_ns / steps))::BIGINT AS exposed_ns_per_step
FROM per_rank JOIN steps USING (rank)
GROUP BY process_group, op, phase, dtype ORDER BY ALL
"""

# torch's FSDP2 gathers a module into one buffer and copies its parameters out of it
# (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, wait_for_unshard); FSDP1 uses views.
# Where no range on the device says so, the copies are the kernels of its operator
# (fsdp::split_with_sizes_copy of _fsdp_collectives.py).
PARAMETER_COPIES = """
INSERT INTO parameter_copy BY NAME
WITH copy AS (
  SELECT *, class = 'annotation' AS is_range FROM event
  WHERE run = $1 AND device IS NOT NULL AND (
    class = 'annotation' AND starts_with(name, 'FSDP::all_gather_copy_out')
    OR class = 'compute' AND contains(name, 'split_with_sizes_copy')))
SELECT e.run, e.rank, s.step, count(*) AS copies, sum(e.dur_ns)::BIGINT AS copies_ns
FROM copy e JOIN step s ON s.run = e.run AND s.rank = e.rank
  AND e.start_ns >= s.start_ns AND e.start_ns < s.end_ns
WHERE is_range OR NOT (SELECT bool_or(is_range) FROM copy)
GROUP BY ALL ORDER BY ALL
"""

# What a rank receives is its output, and what it sends back after computing its input: either may
# be the uneven side. The call lasts as long as the busiest rank's part. A rank that was not read
# receives what the others' splits say that they send it, as far as they speak for all.
EXPERT_BALANCE = f"""
INSERT INTO expert_balance BY NAME
{CALLS},
own AS (
  SELECT *, TRY_CAST(split_bytes AS BIGINT[]) AS parts,
    max(bytes / nullif(in_elements, 0)) OVER (PARTITION BY call_id) AS width,
    count(*) OVER (PARTITION BY call_id) AS ranks_read
  FROM call WHERE op = 'all_to_all'),
whole AS (
  SELECT call_id FROM own GROUP BY call_id
  HAVING count(*) = max(group_size) AND bool_and(t_is = 'matched')
    OR count(*) >= 2 AND bool_and(parts IS NOT NULL)),
part AS (
  SELECT call_id, process_group, group_size, ranks_read,
    unnest(parts) AS bytes, generate_subscripts(parts, 1) AS place
  FROM own WHERE ranks_read < group_size),
told AS (
  SELECT call_id, g.ranks[place] AS rank,
    sum(bytes) * any_value(group_size)::DOUBLE / any_value(ranks_read) AS received
  FROM part JOIN process_group g ON g.run = $1 AND g.process_group = part.process_group
  GROUP BY ALL),
load AS (
  SELECT call_id, rank, own.process_group, own.transfer_ns, own.in_elements AS sent,
    coalesce(own.out_elements * coalesce(own.width, 1), told.received) AS received
  FROM own FULL JOIN told USING (call_id, rank) SEMI JOIN whole USING (call_id)),
balance AS (
  SELECT call_id, process_group, transfer_ns, greatest(received, coalesce(sent, 0)) AS imbalance,
    CASE WHEN received >= coalesce(sent, 0) THEN receiver ELSE sender END AS busiest
  FROM (
    SELECT call_id, any_value(process_group) AS process_group, max(transfer_ns) AS transfer_ns,
      max(received) / nullif(avg(received), 0) AS received, arg_max(rank, received) AS receiver,
      max(sent) / nullif(avg(sent), 0) AS sent, arg_max(rank, sent) AS sender
    FROM load GROUP BY call_id)
  WHERE received > 0),
top AS (
  SELECT process_group, busiest, count(*) AS times,
    row_number() OVER (PARTITION BY process_group ORDER BY count(*) DESC, busiest) AS place
  FROM balance WHERE imbalance > 1 GROUP BY process_group, busiest)
SELECT $1 AS run, b.process_group, count(*) AS calls, median(imbalance) AS imbalance,
  any_value(t.busiest) AS busiest_rank, any_value(t.times) / count(*) AS busiest_share,
  round(sum(transfer_ns * (1 - 1 / imbalance)) / (SELECT max(steps) FROM steps))::BIGINT
    AS excess_ns_per_step
FROM balance b LEFT JOIN top t
  ON t.process_group IS NOT DISTINCT FROM b.process_group AND t.place = 1
GROUP BY b.process_group ORDER BY ALL
"""

# Where no size tells it: who comes last to combine what the experts made, and has more rows in its
# multiplications, has the busiest experts.
EXPERTS_BY_WORK = """
INSERT INTO expert_balance BY NAME
WITH named AS (
  SELECT call_id, c.process_group, any_value(last_rank) AS last_rank,
    any_value(group_size) AS group_size, bool_or(name ILIKE '%combine%') AS combines
  FROM collective c JOIN event e USING (run, rank, event_id)
  WHERE run = $1 AND last_rank IS NOT NULL GROUP BY ALL),
ends AS (
  SELECT * REPLACE (combines AND NOT coalesce(lag(combines) OVER before, false) AS combines)
  FROM named WINDOW before AS (PARTITION BY process_group ORDER BY call_id)),
late AS (
  SELECT rank, list_product(TRY_CAST(reason_evidence ->> 'own' AS DOUBLE[])) AS own,
    list_product(TRY_CAST(reason_evidence ->> 'usual' AS DOUBLE[])) AS usual
  FROM lateness
  WHERE run = $1 AND process_group IS NULL AND systematic AND reason = 'more-work')
SELECT $1 AS run, process_group, count(*) FILTER (combines) AS calls,
  own * any_value(group_size) / (own + (any_value(group_size) - 1) * usual) AS imbalance,
  rank AS busiest_rank, avg((last_rank = rank)::INTEGER) FILTER (combines) AS busiest_share,
  0 AS excess_ns_per_step
FROM ends, late
WHERE own > usual AND NOT EXISTS (FROM expert_balance b
  WHERE b.run = $1 AND b.process_group IS NOT DISTINCT FROM ends.process_group)
GROUP BY process_group, rank, own, usual
HAVING avg(combines::INTEGER) FILTER (last_rank = rank) > 0.5
ORDER BY ALL
"""
