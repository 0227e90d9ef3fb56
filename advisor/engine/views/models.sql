-- Fitted costs of operations, and what replayed changes give back.

-- The cost of a wire operation on a group of ranks, one fit each; the trace's own fit first. With
-- one rank's trace alone that has none: waiting for the others would count as latency.
CREATE VIEW fit AS
SELECT op, group_size, alpha_ns, alpha_low_ns, alpha_high_ns, beta_ns_per_byte, k, m,
  n_star_bytes, largest_bytes, origin, r2, samples
FROM alpha_beta WHERE CASE origin WHEN 'trace' THEN (SELECT ranks_read FROM facts) <> 1
  WHEN 'probe' THEN NOT EXISTS (SELECT 1 FROM topology WHERE kind = 'probe-use' AND name = 'other')
    ELSE true END
QUALIFY row_number() OVER (PARTITION BY op, group_size
  ORDER BY origin <> 'trace', samples DESC) = 1;

-- What replayed changes give back per step, with a 90 % interval.
-- No rows without whatif.
--   unparted: the trace does not part latency from time per byte, and the gain depends on it
--   gain_ns: per step, measured less predicted
--   missed_ns: by how much the replay of the unchanged step misses the measured one
CREATE VIEW whatif_gain AS
SELECT setting, value, is_current, extrapolates, coalesce(inconclusive, false) AS unparted,
  coalesce(measured_step_ns, replayed_step_ns) - step_ns AS gain_ns,
  coalesce(gain_low_ns, coalesce(measured_step_ns, replayed_step_ns) - step_high_ns) AS gain_low_ns,
  coalesce(gain_high_ns, coalesce(measured_step_ns, replayed_step_ns) - step_low_ns) AS gain_high_ns,
  coalesce(abs(replayed_step_ns - measured_step_ns), 0) AS missed_ns
FROM whatif;

-- Replayed bucket caps against the present one (its setting, else its median size). Replays
-- beyond twice the largest size seen count only where no other was made.
--   cap_mb: the cap that was tried, MiB
--   current_mb: the present cap, MiB
--   gain_ns: per step, measured less predicted
--   unparted: as in whatif_gain
CREATE VIEW bucket_gain AS
WITH caps AS (
  SELECT try_cast(value AS DOUBLE) AS cap_mb, * FROM whatif_gain WHERE setting = 'bucket_cap_mb'
), present AS (
  SELECT coalesce((SELECT max(cap_mb) FROM caps WHERE is_current),
    (SELECT median(bytes) / 1048576 FROM gradient_call)) AS current_mb)
SELECT cap_mb, current_mb, gain_ns, gain_low_ns, gain_high_ns, extrapolates, unparted FROM caps, present
WHERE NOT is_current AND gain_ns IS NOT NULL
  AND (NOT extrapolates OR NOT EXISTS (SELECT 1 FROM caps WHERE NOT extrapolates AND NOT is_current));

-- The replayed bucket cap above the present one that gives back most.
CREATE VIEW larger_bucket AS
SELECT * FROM bucket_gain WHERE cap_mb > current_mb ORDER BY gain_ns DESC, cap_mb LIMIT 1;

-- The replayed bucket cap below the present one that gives back most.
CREATE VIEW smaller_bucket AS
SELECT * FROM bucket_gain WHERE cap_mb < current_mb ORDER BY gain_ns DESC LIMIT 1;

-- The fewest neighbouring units of sharded parameters that, wrapped as one, give back about what the
-- best number of them does; the high end is the best one's. Beyond twice the largest size seen as in
-- bucket_gain.
--   units: present units in each new one
--   gain_ns: per step, measured less predicted
--   unparted: as in whatif_gain
CREATE VIEW coarser_units AS
WITH tried AS (
  SELECT try_cast(value AS INTEGER) AS units, gain_ns, gain_low_ns, extrapolates, unparted,
    max(gain_high_ns) OVER () AS gain_high_ns, max(gain_ns) OVER () AS most_ns
  FROM whatif_gain WHERE setting = 'wrapping' AND gain_ns IS NOT NULL)
SELECT * EXCLUDE (most_ns) FROM tried WHERE gain_ns >= 0.9 * most_ns ORDER BY units LIMIT 1;
