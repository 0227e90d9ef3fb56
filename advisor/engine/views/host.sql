-- What hosts do between launches, and what a recording says of its own workload.

-- Used steps whose windows hold all their idling. A device's window ends where the next step's work
-- begins; the last one's ends with its own work, and what the device waits for after it is missing.
CREATE VIEW closed_step AS
SELECT step FROM used_step
WHERE step < (SELECT max(step) FROM all_step) OR (SELECT timeline FROM facts) = 'host'
  OR (SELECT count(*) FROM used_step) < 3;

-- Steps in which gaps of a kind count: closed ones, and those of warming up that are long for a gap as in a
-- closed one, half to twice as long. Behind a wait in which all ranks save the saving is what costs.
-- No rows without host_gap.
CREATE VIEW gap_step AS
WITH own AS (SELECT kind, step, sum(idle_ns + coalesce(beside_ns, 0)) AS ns FROM host_gap
  GROUP BY rank, kind, step),
stall AS (SELECT kind, step, max(ns) AS ns FROM own GROUP BY kind, step)
SELECT kind, step FROM closed_step CROSS JOIN (SELECT DISTINCT kind FROM stall)
WHERE kind NOT IN ('synchronisation', 'blocking-copy') OR step NOT IN (SELECT step FROM saving_step)
UNION
SELECT w.kind, w.step FROM warm_up_step JOIN all_step s USING (step) JOIN stall w USING (step)
  JOIN (FROM stall SEMI JOIN closed_step USING (step)) o ON o.kind = w.kind
    AND o.ns BETWEEN w.ns / 2 AND 2 * w.ns, facts f
WHERE s.complete AND 2 * w.ns > s.step_ns - f.step_ns;

-- Device time that each rank loses to its host per step, by kind: mean over the steps in which it counts.
-- No rows without gap_step.
--   rank: null for the rank that lost most in each step
--   gaps: how many, per step
--   error_ns: standard error over steps of the mean; of what comes regularly, of its length
--   period: steps from one to the next, where it comes regularly, but not in every step
--   long_steps: in how many steps it is half of its longest or more
--   longest_ns: longest single gap
--   name: what its host did in most of it
--   worst_step: step of that gap
--   least_often: low end of the share of steps that have a long gap
--   often_error: standard error of that share, 0 where they come at a period
CREATE VIEW rank_gap_kind AS
WITH used AS (SELECT kind, count(*) AS steps FROM gap_step GROUP BY kind),
in_step AS (
  SELECT rank, kind, step, sum(idle_ns + coalesce(beside_ns, 0)) AS idle_ns, count(*) AS gaps,
    max(idle_ns + coalesce(beside_ns, 0)) AS longest_ns
  FROM host_gap g SEMI JOIN gap_step USING (kind, step) GROUP BY rank, kind, step),
doing AS (
  SELECT rank, kind, arg_max_null(name, ns) AS name FROM (
    SELECT rank, kind, name, sum(idle_ns + coalesce(beside_ns, 0)) AS ns FROM host_gap SEMI JOIN gap_step USING (kind, step) GROUP BY ALL)
  GROUP BY rank, kind),
of_all AS (
  FROM in_step UNION ALL BY NAME SELECT kind, step, max(idle_ns) AS idle_ns FROM in_step GROUP BY kind, step),
sized AS (SELECT *, 2 * idle_ns >= max(idle_ns) OVER (PARTITION BY rank, kind) AS long FROM of_all),
spaced AS (
  SELECT *, CASE WHEN long THEN step - max(step) FILTER (long) OVER (PARTITION BY rank, kind ORDER BY step
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) END AS apart FROM sized),
summed AS (
  SELECT rank, kind, any_value(over) AS n, count(*) FILTER (long) AS long_steps,
    CASE WHEN long_steps > 2 AND min(apart) = max(apart) AND min(apart) > 1 THEN min(apart) END AS period,
    avg(idle_ns) FILTER (long) AS each_ns, coalesce(var_pop(idle_ns) FILTER (long), 0) AS each_var,
    sum(idle_ns) AS all_ns, sum(idle_ns::DOUBLE ** 2) AS squares,
    coalesce(sum(idle_ns) FILTER (NOT long), 0) AS short_ns,
    coalesce(sum(idle_ns::DOUBLE ** 2) FILTER (NOT long), 0) AS short_squares,
    -- steps beside each other are one time
    CASE WHEN count(*) FILTER (apart > 1) > 0 AND long_steps < n THEN long_steps / n END AS often,
    sum(gaps) AS gaps, max(longest_ns) AS longest_ns,
    arg_max(step, longest_ns) AS worst_step
  FROM (SELECT i.*, CASE WHEN steps >= 4 AND count(*) OVER (PARTITION BY i.rank, i.kind) = steps - 1
      THEN steps - 1 ELSE steps END AS over FROM spaced i JOIN used USING (kind))
  GROUP BY rank, kind)
-- A gap of every step is cut off at one end of the recording: missing once, it counts as never
-- missing. What comes every so many steps, three times or more, comes not by chance: only its length
-- varies, and how many of them the recording happens to hold says nothing. What came at chance, twice or
-- more, is of Wilson's interval (1927), which is right for few: that of a normal error goes below none.
SELECT s.rank, kind, period, long_steps,
  CASE WHEN period IS NULL THEN all_ns / n ELSE each_ns / period + short_ns / n END AS idle_ns,
  gaps / n AS gaps,
  (often + 1.92 / n - 1.96 * sqrt((often * (1 - often) + 0.96 / n) / n)) / (1 + 3.84 / n) AS least_often,
  CASE WHEN period IS NULL THEN (often - least_often) / 1.96 ELSE 0 END AS often_error,
  least(sqrt(greatest(0, squares / n - (all_ns / n) ** 2) / n), sqrt((often_error * each_ns) ** 2
    + coalesce(1 / period, often) ** 2 * each_var / long_steps + short_squares / n ** 2)) AS error_ns,
  name, longest_ns, worst_step
FROM summed s LEFT JOIN doing d USING (rank, kind);

-- Device time lost to the host per step, by kind: median over ranks (of two the lesser).
-- No rows without rank_gap_kind.
--   worst_step: step of the longest gap
--   every: the period in rank_gap_kind, of the rank that lost most
--   long_steps: as in rank_gap_kind, of the rank that lost most
--   gap_steps: in how many steps gaps of this kind count
--   of_step_ns: mean length of these steps, where it does not come in every step or they lose over half of a
--     typical one: the mean of a few long waits may be longer than it
--   ranks: that lost any
CREATE VIEW gap_kind AS
WITH slowest AS (
  SELECT kind, idle_ns AS slowest_ns, error_ns AS slowest_error_ns FROM rank_gap_kind WHERE rank IS NULL)
SELECT kind,
  quantile_disc(idle_ns, 0.5) AS idle_ns,   -- per step
  (sum(idle_ns) / (SELECT greatest(ranks_read, 1) FROM facts))::BIGINT AS of_all_ns, -- mean of all ranks that were read
  min(idle_ns) AS least_ns,                 -- of the rank that lost least
  max(idle_ns) AS most_ns,                  -- of the rank that lost most
  coalesce(max(idle_ns, 2)[2], 0) AS next_ns, -- of the one after it
  arg_max(rank, idle_ns) AS worst_rank,     -- that rank
  arg_max_null(period, idle_ns) AS every,
  arg_max(error_ns, idle_ns) AS most_error_ns, -- standard error over steps of its mean
  arg_max_null(name, idle_ns) AS name,           -- what its host did in most of it
  arg_max(worst_step, longest_ns) AS worst_step,
  max(longest_ns) AS longest_ns,            -- longest single gap
  median(gaps) AS gaps,                     -- per step
  any_value(slowest_ns) AS slowest_ns,      -- of the rank that lost most in each step
  any_value(slowest_error_ns) AS slowest_error_ns, -- standard error over steps of that
  arg_max(r.long_steps, idle_ns) AS long_steps,
  any_value(steps) AS gap_steps,
  CASE WHEN arg_max(r.long_steps, idle_ns) < any_value(steps) - 1 OR 2 * most_ns > (SELECT step_ns FROM facts)
    THEN any_value(mean_ns) END AS of_step_ns,
  list(rank ORDER BY rank) AS ranks
FROM (FROM rank_gap_kind WHERE rank IS NOT NULL) r JOIN slowest USING (kind) JOIN (
  SELECT kind, avg(step_ns)::BIGINT AS mean_ns, count(*) AS steps
  FROM gap_step JOIN all_step USING (step) GROUP BY kind) USING (kind) GROUP BY kind;

-- What a host does for a millisecond or more between two launches of the one pass that was recorded: a
-- launch takes microseconds, with Python around it less, and nothing tells whether the next pass does so.
--   idle_ns: until it launched the next
CREATE VIEW once_gap AS
SELECT rank, step, host_ns AS idle_ns FROM host_gap SEMI JOIN used_step USING (step)
WHERE kind = 'launch' AND host_ns >= 1000000 AND (SELECT steps < 2 FROM facts);

-- Loading for which all ranks idle alike, none over three times as long as the next: it makes nobody late.
CREATE VIEW loading_of_all AS
SELECT kind FROM gap_kind WHERE kind = 'data-loading' AND most_ns <= 3 * next_ns;

-- How long each rank's device only communicates or copies while its host loads data already, before it
-- idles for that: mean of the closed steps. The next pass might run meanwhile, were its data there.
--   ns: per step
--   beside_ns: per step, beside calls that the compute after them did not wait for: lost as idling is
CREATE VIEW loader_cover AS
SELECT rank, sum(moving_ns) / any_value(n) AS ns, coalesce(sum(beside_ns), 0) / any_value(n) AS beside_ns
FROM host_gap SEMI JOIN closed_step USING (step), (SELECT count(*) AS n FROM closed_step)
WHERE kind = 'data-loading' GROUP BY rank;

-- What a recording says of its own workload; empty for other people's traces.
--   precision: of compute, as the workload's file names it
--   strategy: as the command line names it
--   tokens: per rank and step
--   gradient_bytes: of one backward pass
CREATE VIEW workload AS
SELECT any_value(m ->> '$.advisor.workload.precision') AS precision,
  any_value(m ->> '$.advisor.strategy') AS strategy,
  any_value(try_cast(m ->> '$.advisor.workload.micro_batch' AS BIGINT)
    * try_cast(m ->> '$.advisor.workload.gradient_accumulation' AS BIGINT)
    * try_cast(m ->> '$.advisor.workload.sequence_length' AS BIGINT)) AS tokens, -- per rank and step
  -- of one backward pass
  any_value(list_sum(try_cast(m -> '$.advisor.buckets[*].bytes' AS BIGINT[]))) AS gradient_bytes
FROM (SELECT try_cast(metadata AS JSON) AS m FROM rank WHERE metadata IS NOT NULL)
WHERE json_exists(m, '$.advisor.workload');

-- Complete steps by which others are measured: all of them, but where all steps of one parity are longer
-- than all of the other (of eight or more p is under 0.05), as where every second step saves, the shorter.
CREATE VIEW usual_step AS
WITH phase AS (
  SELECT step % 2 AS parity, min(step_ns) AS least_ns, max(step_ns) AS most_ns, count(*) AS steps
  FROM all_step WHERE complete GROUP BY parity)
SELECT step FROM all_step WHERE complete AND step % 2 NOT IN (
  SELECT l.parity FROM phase l JOIN phase s ON l.least_ns > s.most_ns WHERE l.steps + s.steps >= 8);

-- Per complete step and rank: the stretches in which its host left the device idle, as far as they are
-- longer than the longest of a usual step, or all of them beyond all of a usual step where that is more
-- (many short sleeps); without data loading, but in steps many times as long as usual.
--   idle_ns: all of them together; of a usual step its longest
--   name: what the host did in the longest
--   after_wait: whether that is only where it had waited for the device before
CREATE VIEW step_pause AS
WITH gap AS (
  -- what a device waits for beyond the launch is no doing of the host
  SELECT k.rank, s.step, coalesce(host_ns, g.idle_ns) AS ns, g.name,
    g.kind IN ('synchronisation', 'blocking-copy', 'barrier') AS after_wait,
    max(ns) OVER (PARTITION BY k.rank, s.step) AS longest_ns,
    coalesce(sum(ns) OVER (PARTITION BY k.rank, s.step), 0) AS all_ns
  FROM whole_rank k CROSS JOIN all_step s LEFT JOIN host_gap g ON g.rank = k.rank AND g.step = s.step
    AND (g.kind <> 'data-loading' OR s.step IN (SELECT step FROM odd_step))
  WHERE s.complete)
-- a state that is written in parts is one pause: all that a step has longer
SELECT g.rank, g.step, greatest(coalesce(sum(ns) FILTER (ns > usual_ns), max(ns), 0),
    any_value(all_ns - usual_all_ns)) AS idle_ns,
  arg_max_null(g.name, ns) AS name, arg_max_null(g.after_wait, ns) AS after_wait
FROM gap g JOIN (SELECT rank, coalesce(median(longest_ns), 0) AS usual_ns, median(all_ns) AS usual_all_ns
  FROM (SELECT DISTINCT rank, step, longest_ns, all_ns FROM gap SEMI JOIN usual_step USING (step))
  GROUP BY rank) u USING (rank)
GROUP BY g.rank, g.step;

-- Odd steps that one host or several took longer for: a stretch of at least half of what the step has more.
-- A host that stops before it launches a step's first kernel is still in the step before, by its device.
--   ranks: whose hosts they are
--   pause_ns: the longest stretch
--   name: what its host did, where that is known
CREATE VIEW odd_pause AS
SELECT o.step, list(DISTINCT g.rank ORDER BY g.rank) AS ranks, max(g.idle_ns) AS pause_ns,
  arg_max_null(CASE WHEN g.kind NOT IN ('synchronisation', 'blocking-copy', 'barrier') THEN g.name END,
    g.idle_ns) AS name
FROM odd_step o JOIN host_gap g ON g.step IN (o.step, o.step - 1), facts f
WHERE 2 * g.idle_ns >= (o.times - 1) * f.step_ns GROUP BY o.step;

-- What our recorder notes of threads that were ready to run and had no core.
--   of: training, the thread that runs the script; gloo, all threads that move the bytes of its calls
--   waits: ns, of each recorded step
CREATE VIEW noted_wait AS
SELECT rank, host, of, try_cast(try_cast(metadata AS JSON) -> ('$.advisor.' || name) AS BIGINT[]) AS waits
FROM rank, (VALUES ('training', 'core_wait_ns'), ('gloo', 'gloo_wait_ns')) n(of, name)
WHERE waits IS NOT NULL;

-- What a rank waited for a core in each step. Our recorder writes one time for each step that it records.
-- No rows without noted_wait.
--   wait_ns: how long the training thread was ready to run and had no core
CREATE VIEW step_core_wait AS
SELECT rank, step, waits[row_number() OVER (PARTITION BY rank ORDER BY start_ns)] AS wait_ns
FROM step JOIN (FROM noted_wait WHERE of = 'training') USING (rank)
QUALIFY len(waits) = count(*) OVER (PARTITION BY rank);

-- Per complete step the rank that was kept longest from it by what the others do not do: stretches
-- longer than usual in which its host left the device idle (no data loading), and operators beyond
-- those of its other steps (an evaluation by one rank, copies for a checkpoint). Where its peers do not
-- wait for it at least half as long, their own hosts stood still too: it is nobody's.
--   step: number of the step
--   rank: whose pause is the longest of all
--   pause_ns: how much longer than that of any other rank, and than it waited for a core there
--   code: the function that fills the longest stretch, where stacks were recorded
--   after_wait: whether that is only where its host had waited for the device before
--   works: whether it mostly runs operators
--   shared_ns: what every rank has more of there, beside the pause
CREATE VIEW one_rank_pause AS
WITH counted AS (SELECT k.rank, s.step FROM whole_rank k CROSS JOIN all_step s WHERE complete),
work AS (
  SELECT rank, step, operators, compute_ns AS work_ns, exposed_memory_ns AS copy_ns
  FROM step_breakdown SEMI JOIN counted USING (rank, step)),
usual AS (
  -- of two the less: a rank that works in every second step has as many steps of either kind
  SELECT rank, quantile_disc(operators, 0.5) AS operators, quantile_disc(work_ns, 0.5) AS work_ns,
    quantile_disc(copy_ns, 0.5) AS copy_ns
  FROM work SEMI JOIN usual_step USING (step) GROUP BY rank),
kept AS (
  SELECT l.rank, l.step, l.name, l.after_wait,
    CASE WHEN w.operators > 1.02 * u.operators THEN w.work_ns - u.work_ns ELSE 0 END AS more_ns,
    w.operators,
    -- a state that is written is copied to the host first, where no other step copies
    greatest(0, coalesce(w.copy_ns - u.copy_ns, 0)) AS copied_ns,
    more_ns + l.idle_ns + copied_ns AS all_ns,
    -- a slow device takes longer for as many operators as the others have more
    w.operators > 1.02 * u.operators * min(w.operators / u.operators) OVER (PARTITION BY l.step) AS alone,
    CASE WHEN alone THEN all_ns ELSE l.idle_ns + copied_ns END AS kept_ns,
    alone AND more_ns > l.idle_ns + copied_ns AS works
  FROM step_pause l LEFT JOIN work w USING (rank, step) LEFT JOIN usual u ON u.rank = l.rank),
pause AS ( -- work that every rank has more of there is no pause of one
  SELECT step, arg_max(rank, kept_ns) AS rank, arg_max(copied_ns, kept_ns) AS copied_ns,
    greatest(0, max(kept_ns) - max(CASE WHEN worked THEN all_ns ELSE kept_ns END)
      FILTER (WHERE rank <> most)) AS pause_ns,
    greatest(0, min(all_ns)) AS shared_ns,
    arg_max(works, kept_ns) AS works, arg_max(operators, kept_ns) AS operators,
    CASE WHEN NOT arg_max(works, kept_ns) THEN arg_max_null(name, kept_ns) END AS code,
    arg_max_null(after_wait, kept_ns) AS after_wait,
    step IN (SELECT step FROM warm_up_step) AS first
  FROM (SELECT *, first_value(rank) OVER w AS most, first_value(works) OVER w AS worked FROM kept
    WINDOW w AS (PARTITION BY step ORDER BY kept_ns DESC))
  GROUP BY step HAVING count(*) > 1),
waited AS (
  SELECT rank, step, last_rank, wait_ns,
    lag(step, 1, 0) OVER (PARTITION BY rank ORDER BY start_ns) AS before -- the call before is of that step
  FROM call WHERE wait_ns IS NOT NULL),
again AS ( -- a first step is not warming up where most of what it takes longer comes again
  SELECT p.step, max(o.pause_ns) AS pause_ns
  FROM pause p JOIN all_step s USING (step) JOIN pause o ON o.rank = p.rank AND o.works = p.works, facts f
  WHERE p.first AND NOT o.first AND 2 * p.pause_ns > s.step_ns - f.step_ns AND CASE WHEN p.works
    THEN abs(o.operators / p.operators - 1) < 0.02
    ELSE o.pause_ns BETWEEN p.pause_ns / 2 AND 2 * p.pause_ns END GROUP BY p.step),
whole AS (
  -- a thread that is ready to run and has no core looks idle as well; a usual step lacks one for its share
  SELECT p.step, p.rank, least(p.pause_ns, a.pause_ns) - least(p.pause_ns, greatest(0, more_wait_ns))
    AS pause_ns, code, after_wait, works, shared_ns, copied_ns, operators
  FROM pause p LEFT JOIN again a ON a.step = p.step
    LEFT JOIN (SELECT rank, step, wait_ns - step_ns * (SELECT median(wait_ns / step_ns) FROM step_core_wait u
      JOIN all_step USING (step) SEMI JOIN usual_step USING (step) WHERE u.rank = c.rank) AS more_wait_ns
      FROM step_core_wait c JOIN all_step USING (step)) w
      ON w.rank = p.rank AND w.step = p.step
  WHERE (NOT first OR a.step IS NOT NULL)
    -- who pauses is waited for, by the first call of the next step that has one (of local SGD every so
    -- many): else its peers did nothing either
    AND (p.step NOT IN (SELECT step FROM waited) OR 2 * coalesce((SELECT max(ns) FROM (
      SELECT w.rank, sum(wait_ns) AS ns FROM waited w WHERE w.last_rank = p.rank AND w.rank <> p.rank
        AND (w.step = p.step OR p.step >= before AND p.step < w.step) GROUP BY w.rank)), 0) >= p.pause_ns)
    AND p.pause_ns NOT BETWEEN 1 AND coalesce(more_wait_ns, 0))
SELECT * EXCLUDE (copied_ns, operators) FROM whole
UNION ALL -- one that the recording ends in: it begins with the copies that a whole one holds, or runs as many
-- operators
SELECT * FROM (SELECT p.step, p.rank, o.pause_ns, o.code, o.after_wait, o.works, o.shared_ns
  FROM pause p JOIN whole o ON o.rank = p.rank AND CASE WHEN o.works
    THEN p.works AND p.operators = o.operators ELSE 10 * o.copied_ns >= o.pause_ns AND o.copied_ns > 0
      AND p.copied_ns BETWEEN o.copied_ns / 2 AND 2 * o.copied_ns END
  WHERE p.step = (SELECT max(step) FROM pause) AND p.step NOT IN (SELECT step FROM whole)
  ORDER BY o.step DESC LIMIT 1);

-- All complete steps, those that took many times the median included, and those of warming up where a
-- rank pauses as in others.
CREATE VIEW counted_step AS
SELECT step, step_ns FROM all_step
WHERE complete AND (step NOT IN (SELECT step FROM warm_up_step) OR step IN (SELECT step FROM one_rank_pause));

-- One row: the mean of the counted steps.
--   of_step_ns: their mean length
--   steps_seen: how many they are
CREATE VIEW mean_step AS
SELECT avg(step_ns) AS of_step_ns, count(*) AS steps_seen FROM counted_step;

-- Per step in which all ranks stop for about as long, the longest of their pauses, as in step_pause. What
-- one rank has longer than the others is its own.
--   pause_ns: the step lasts as long as the longest of them
--   code: the function that fills the longest, where stacks were recorded
--   after_wait: as in step_pause, of the longest
CREATE VIEW all_rank_pause AS
SELECT step, max(idle_ns) AS pause_ns, arg_max_null(name, idle_ns) AS code,
  coalesce(arg_max_null(after_wait, idle_ns), false) AS after_wait
FROM step_pause, facts WHERE step NOT IN (SELECT step FROM warm_up_step)
GROUP BY step HAVING count(*) = any_value(ranks_read) AND 2 * min(idle_ns) > max(idle_ns);

-- Steps in which all ranks copy to their hosts, each over twice what its usual step does, and stop: a state
-- is saved. Numbers that are read are no state.
--   bytes: median over ranks
--   copied_ns: what the longest of these copies stop a device for, beyond those of its usual step
CREATE VIEW saving_step AS
WITH own AS (
  SELECT k.rank, s.step, coalesce(sum(bytes), 0) AS bytes, coalesce(sum(exposed_ns), 0) AS exposed_ns
  FROM whole_rank k CROSS JOIN all_step s
    LEFT JOIN memory_copy c ON c.rank = k.rank AND c.step = s.step AND direction = 'device-to-host'
      AND copies > tiny WHERE s.complete GROUP BY k.rank, s.step),
usual AS (
  SELECT rank, quantile_disc(bytes, 0.5) AS bytes, quantile_disc(exposed_ns, 0.5) AS exposed_ns
  FROM own SEMI JOIN usual_step USING (step) GROUP BY rank)
SELECT step, median(o.bytes) AS bytes, greatest(0, max(o.exposed_ns - u.exposed_ns)) AS copied_ns
FROM own o JOIN usual u USING (rank) JOIN all_rank_pause USING (step)
GROUP BY step HAVING bool_and(o.bytes > 2 * u.bytes);

-- Pauses, of one rank or of all, that come too regularly for chance (p under 0.05); one row of each kind.
-- Asked of those longer than a twentieth of the typical step.
--   of_all: whether all ranks pause
--   rank: whose pauses they are; null for all ranks
--   steps: the steps of the habit
--   period: steps from one to the next; null where only the rank tells, beside whose pauses no other
--     rank's are half as long
CREATE VIEW pause_habit AS
WITH pause AS (
  SELECT false AS of_all, step, rank, pause_ns, (SELECT ranks_read FROM facts) AS ranks FROM one_rank_pause
  UNION ALL SELECT true, step, NULL, pause_ns, 1 FROM all_rank_pause),
longer AS (
  SELECT p.*, max(pause_ns) OVER kind AS longest_ns, sum(pause_ns) OVER kind AS all_ns,
    count(*) OVER (kind ORDER BY pause_ns DESC) AS place, step - lag(step) OVER (kind ORDER BY step) AS gap
  FROM pause p, facts WHERE pause_ns > 0.05 * step_ns WINDOW kind AS (PARTITION BY of_all)),
-- all k steps of a period and phase hold some of the m longest pauses in C(m, k) of C(n, k) draws; n^2 / 12
-- periods and phases have three steps or more. Steps beside each other are one time, in which the machine
-- was busy
regular AS (
  SELECT p.of_all, any_value(l.rank) AS rank, list(c.step) AS steps, period, any_value(ranks) AS ranks,
    count(*) AS k, max(place) AS m, (SELECT steps_seen FROM mean_step) AS n
  FROM (SELECT DISTINCT of_all, gap AS period FROM longer WHERE gap > 1) p CROSS JOIN counted_step c
    LEFT JOIN longer l ON l.step = c.step AND l.of_all = p.of_all
  GROUP BY p.of_all, period, c.step % period
  HAVING count(*) > 2 AND count(l.step) = count(*) AND count(DISTINCT coalesce(rank, -1)) = 1
    AND sum(pause_ns) > 0.5 * any_value(all_ns)),
habit AS (
  SELECT of_all, any_value(rank) AS rank, list(step) AS steps, NULL AS period,
    pow(any_value(ranks), 1 - count(*)) -- all in steps that are longer by their parity: by chance one in 20
      * CASE WHEN bool_or(step IN (FROM usual_step)) THEN 1 ELSE 0.05 END AS chance
  FROM longer WHERE 2 * pause_ns >= longest_ns GROUP BY of_all HAVING count(DISTINCT coalesce(rank, -1)) = 1
  UNION ALL
  SELECT of_all, rank, steps, period, pow(ranks, 1 - k) * n ** 2 / 12
    * exp(lgamma(m + 1) - lgamma(m - k + 1) - lgamma(n + 1) + lgamma(n - k + 1)) FROM regular)
SELECT * EXCLUDE (chance) FROM habit WHERE chance < 0.05
QUALIFY row_number() OVER (PARTITION BY of_all ORDER BY chance, period) = 1;

-- How long each rank's threads were ready to run and had no core, of those recorded steps that noted it.
-- Linux keeps that time for every thread and our recorder writes it down; other recordings have none.
-- Where long steps wait and short ones do not, the typical step waits the typical share of a step:
-- the waits' own median may be as long as the median step.
-- No rows without noted_wait.
--   wait_ns: median per step
--   typical_ns: of threads that wait one by one, which is no longer than a step
--   more_ns: than the other ranks, by the mean, as lateness is counted
--   error_ns: standard error of that, over the steps
--   more_each_ns: than the mean of the other ranks, in each noted step
CREATE VIEW thread_wait AS
WITH lasting AS (
  SELECT rank, list(CASE WHEN used THEN end_ns - start_ns END ORDER BY start_ns) AS steps
  FROM step GROUP BY rank),
own AS (
  SELECT rank, host, of, list_median(waits) AS ns, list_avg(waits) AS mean_ns,
    CASE WHEN len(waits) = len(steps) THEN list_median([
    waits[i] / steps[i] FOR i IN range(1, len(steps) + 1)]) END AS share
  FROM noted_wait LEFT JOIN lasting USING (rank)),
each AS (SELECT rank, of, unnest(waits) AS ns, generate_subscripts(waits, 1) AS turn FROM noted_wait),
paired AS ( -- the same step of all ranks: what else runs comes and goes for all of them
  SELECT rank, of, turn, ns - (sum(ns) OVER w - ns) / nullif(count(*) OVER w - 1, 0) AS ns
  FROM each WINDOW w AS (PARTITION BY of, turn)),
spread AS (
  SELECT rank, of, list(ns ORDER BY turn) AS more_each_ns,
    coalesce(stddev_samp(ns) / sqrt(count(*)), 0) AS error_ns FROM paired GROUP BY rank, of)
SELECT rank, host, of, ns::BIGINT AS wait_ns,
  greatest(0, least(ns, step_ns * least(share, 1)))::BIGINT AS typical_ns,
  (mean_ns - (SELECT median(p.mean_ns) FROM own p WHERE p.rank <> o.rank AND p.of = o.of))::BIGINT AS more_ns,
  error_ns, more_each_ns
FROM own o JOIN spread USING (rank, of), facts WHERE ns IS NOT NULL;

-- How long each rank's training thread waits for a core.
-- No rows without thread_wait.
--   wait_ns: per typical step
--   more_high_ns: the high end of the 95 % interval of more_ns
CREATE VIEW core_wait AS
SELECT rank, host, typical_ns AS wait_ns, more_ns, (more_ns + 1.96 * error_ns)::BIGINT AS more_high_ns
FROM thread_wait WHERE of = 'training';

-- How busy the cores are on which a rank runs, over its recorded steps. Our recorder notes it on Linux.
--   cpus: numbers of the cores
--   busy: cores of these that anything keeps busy (mean)
--   own: that the rank's process keeps busy, its loader's workers included
--   threads: that the rank computes with (intra-op)
--   alone: share of the time in which, for sure, nothing else ran on them, or one was idle
CREATE VIEW rank_core AS
SELECT rank, host, try_cast(held -> '$.cpus' AS INTEGER[]) AS cpus,
  try_cast(held ->> '$.busy_ns' AS DOUBLE) / nullif(try_cast(held ->> '$.window_ns' AS DOUBLE), 0) AS busy,
  try_cast(held ->> '$.own_ns' AS DOUBLE) / nullif(try_cast(held ->> '$.window_ns' AS DOUBLE), 0) AS own,
  try_cast(held ->> '$.threads' AS INTEGER) AS threads,
  greatest(0, 1 - (busy - own), 1 - busy / len(cpus)) AS alone
FROM (SELECT rank, host, try_cast(metadata AS JSON) -> '$.advisor.cores' AS held FROM rank)
WHERE busy IS NOT NULL AND own IS NOT NULL;

-- What of each rank's lateness is waiting for a core: it computes longer, or comes to its calls late, as
-- others run on its cores. Who has more to do, in every step or in single ones, waits longer for a core as
-- well. A CPU's compute runs on more threads than the one that is noted, which wait about as often; gloo's
-- threads hold up what follows a call that the rank waits for. The error is that of what they wait together
-- in each step: how far two threads lack cores at once is in it. Equal work that takes longer is surely the
-- rank's own only while nothing else runs on its cores, or one of them is idle: others slow it there, too.
-- No rows without thread_wait.
--   core_ns: of what its peers wait for it, per step
--   core_high_ns: the high end of its 95 % interval
--   mostly: it is the greater part, and no less than the peers surely wait: nothing is surely the rank's own
CREATE VIEW late_for_core AS
WITH part AS (
  SELECT l.rank, peer_wait_ns AS ns, greatest(0, more_ns) AS more_ns, more_each_ns,
    CASE WHEN reason = 'late-launch' OR of = 'gloo' THEN 1 ELSE 2 END AS threads,
    peer_wait_ns * coalesce(cost_low_ns / nullif(cost_ns_per_step, 0), 1) AS low_ns,
    coalesce(TRY_CAST(reason_evidence ->> 'more_by_step' AS DOUBLE), 0)
      * (SELECT avg(compute_ns) FROM rank_step) * 2 < ns AS equal_work,
    CASE WHEN ends_with(reason, '-compute') AND TRY_CAST(reason_evidence ->> 'work' AS DOUBLE)
      <= TRY_CAST(reason_evidence ->> 'pace' AS DOUBLE) THEN 1 - alone ELSE 0 END AS disturbed
  FROM late_rank l JOIN thread_wait USING (rank) LEFT JOIN rank_core USING (rank), facts
  WHERE (timeline = 'host' OR reason IN ('late-launch', 'data-loading'))
    AND NOT (coalesce(systematic, false) AND coalesce(reason IN ('more-work', 'slow-copies'), false))),
each AS (
  SELECT rank, threads * unnest(more_each_ns) AS ns, generate_subscripts(more_each_ns, 1) AS turn FROM part),
spread AS (
  SELECT rank, coalesce(stddev_samp(ns) / sqrt(count(*)), 0) AS error_ns
  FROM (SELECT rank, sum(ns) AS ns FROM each GROUP BY rank, turn) GROUP BY rank)
SELECT rank, least(any_value(ns), sum(more_ns))::BIGINT AS core_ns,
  greatest(any_value(disturbed * ns), least(any_value(ns),
    sum(more_ns * threads) + 1.96 * any_value(error_ns)))::BIGINT AS core_high_ns,
  core_high_ns >= greatest(any_value(low_ns), any_value(ns) / 2) AS mostly
FROM part JOIN spread USING (rank) WHERE coalesce(equal_work, true) GROUP BY rank;

-- Who keeps the cores busy on which ranks run, over the recorded steps: one row per host and set of
-- cores. Our recorder notes it on Linux; only where all ranks are recorded are the others no ranks.
--   ranks: that run on them
--   cores: of the set
--   own_cores: that the ranks' processes keep busy, their loaders' workers included (mean)
--   other_cores: that other programs keep busy
--   threads: that the ranks compute with (intra-op)
CREATE VIEW core_use AS
SELECT host, list(rank ORDER BY rank) AS ranks, len(cpus) AS cores, sum(own) AS own_cores,
  greatest(0, avg(busy) - sum(own)) AS other_cores, sum(threads) AS threads
FROM rank_core, facts WHERE ranks_read = world_size GROUP BY host, cpus;

-- What a peer loses once a rank no longer stands still: on busy cores both then run at the same time, as
-- the peer ran alone. Each thread more on C cores that are all taken makes others take 1/C of their own
-- time longer. Containers of one machine are hosts of their own: peers count whose work may be among what
-- keeps the rank's cores busy.
-- No rows without rank_core.
--   cores: of the rank
--   shared_ns: lost per step at most; of a time that is shorter, its part of one core
CREATE VIEW lent_core AS
SELECT o.rank, len(any_value(o.cpus)) AS cores,
  greatest(0, least(max(p.own), any_value(o.own)) - (cores - any_value(o.busy))) / cores * any_value(step_ns)
    AS shared_ns
FROM rank_core o JOIN rank_core p ON p.rank <> o.rank AND p.cpus = o.cpus AND p.own <= o.busy - o.own, facts
WHERE timeline = 'host' GROUP BY o.rank;

-- What each rank's host costs its device in a step: idle time, and gathers that it asks for too late to
-- be hidden.
--   ns: mean of the used steps; null where launches and kernels are not linked
--   more_ns: than the median of the other ranks
CREATE VIEW host_cost AS
WITH own AS (
  SELECT rank, avg(idle_host_ns + coalesce(late_comm_host_ns, 0)) AS ns FROM rank_step GROUP BY rank)
SELECT rank, ns, ns - (SELECT median(p.ns) FROM own p WHERE p.rank <> o.rank) AS more_ns FROM own o;

-- The same of a machine whose ranks launch late together, whichever of them in a step.
--   rank: of late_rank, which stands for them
--   more_ns: idle until the host launches, by its own pace and after waits, by which the rank with most in
--     a step exceeds all ranks elsewhere; mean of the used steps
CREATE VIEW whole_host_cost AS
SELECT rank, greatest(0, avg(own_ns - others_ns)) AS more_ns FROM (
  SELECT o.rank, s.step, max(ns) FILTER (list_contains(o.late_ranks, s.rank)) AS own_ns,
    max(ns) FILTER (NOT list_contains(o.late_ranks, s.rank)) AS others_ns
  FROM late_rank o CROSS JOIN (SELECT rank, step, idle_host_ns + idle_sync_ns AS ns FROM rank_step) s
  WHERE len(o.late_ranks) > 1 AND o.reason = 'late-launch' GROUP BY ALL)
GROUP BY rank;

-- Per rank what its host did in at least half of the device time that it costs more than the others' hosts.
--   kind: as in host_gap
--   name, longest_ns: as in rank_gap_kind
--   more_ns: per step, than the mean of the others
--   shared: the others wait there as well, in more than half as many steps and places: it takes longer to
--     catch up
CREATE VIEW host_doing AS
WITH waits AS (
  SELECT rank, kind, count(DISTINCT event_id) AS n FROM host_gap SEMI JOIN gap_step USING (kind, step)
  WHERE kind IN ('synchronisation', 'blocking-copy', 'barrier') GROUP BY rank, kind)
SELECT g.rank, kind, name, longest_ns, g.more_ns, coalesce((SELECT median(o.n) > w.n / 2 FROM waits w
  JOIN rank r ON r.rank <> w.rank LEFT JOIN waits o ON o.rank = r.rank AND o.kind = w.kind
  WHERE w.rank = g.rank AND w.kind = g.kind GROUP BY w.n), false) AS shared
FROM (
  SELECT *, idle_ns - (sum(idle_ns) OVER (PARTITION BY kind) - idle_ns)
    / greatest((SELECT ranks_read FROM facts) - 1, 1) AS more_ns
  FROM rank_gap_kind WHERE rank IS NOT NULL) g
JOIN host_cost h ON h.rank = g.rank AND h.more_ns > 0 AND 2 * g.more_ns >= h.more_ns
QUALIFY row_number() OVER (PARTITION BY g.rank ORDER BY g.more_ns DESC) = 1;
