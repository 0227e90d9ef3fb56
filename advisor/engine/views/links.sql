-- Links that are slow, with what restoring them gives.

-- Slow links with what restoring them gives: replayed where it could be, else from the calls
-- alone.
-- No rows without link_excess.
--   share: excess of a call's time: low, middle, high (JSON)
--   of_step_ns: the mean step, where only some steps have calls over it or it is slow at times; else null
--   probe: what a probe says of it: 'names', 'confirms', 'shows', 'denies' or null
--   probe_gbps: measured by the probe
--   direction: what is slow of a rank or host: 'send', 'receive', 'both' or null
--   location: in words, where one posterior told it; else null
--   probability: that it is slow at all, where one posterior told it; else null
--   added_ns: by which each pass of a call is longer whatever its size, where latency is the cause
--   near: ranks beside it
--   open_ranks: ranks between which the recording cannot decide
--   way: the direction in words
--   place_words: the location in words
--   precision_order: 0 for an edge, 1 rank, 2 host or rail, 3 group, 4 else
--   share_low: excess of a call's time, low end
--   share_high: high end
--   confidence: 'replayed' or 'modelled'
--   exposed_ns: exposed communication per step, mean over ranks
--   taken_ns: that, and what compute takes longer beside transfers: a sound link gives back no more
--   most_ns: the same of what was replayed, and of the network; else calls' own exposed time bounds it: null
--   savings_ns: per step, where it ran as fast as its peers
--   savings_low_ns: low end of the 90 % interval
--   savings_high_ns: high end
--   ranks: of the location
--   hosts: of the location
--   one_of: one of these is meant, and which is open
--   link: 'src -> dst' of an edge
--   culprit_rank: src of an edge or rank
--   src_host: host of src
--   probe_names: other locations that a probe finds slow, in words
CREATE VIEW slow_place AS
WITH placed AS (
  SELECT *, coalesce(excess_low_ns, excess_ns_per_step / 2) AS own_low_ns, -- low end from the calls alone
    -- a message of a pipeline that is late may be hidden, or hold up the stages on both sides
    CASE WHEN EXISTS (FROM pipeline_stage) THEN 2 ELSE 1 END AS open_times,
    try_cast(evidence AS JSON) -> '$.share' AS share, try_cast(evidence AS JSON) ->> '$.probe' AS probe,
    (try_cast(evidence AS JSON) ->> '$.probe_gbps')::DOUBLE AS probe_gbps,
    (try_cast(evidence AS JSON) ->> '$.probe_expected_gbps')::DOUBLE AS probe_expected_gbps,
    -- what is slow of a rank or host: 'send', 'receive', 'both', null
    try_cast(evidence AS JSON) ->> '$.direction' AS direction,
    try_cast(candidates AS INTEGER[]) AS open_ranks, candidates IS NOT NULL AS one_of,
    try_cast(evidence AS JSON) ->> '$.location' AS location, -- in words
    1 - (try_cast(evidence AS JSON) ->> '$.healthy')::DOUBLE AS probability,
    (try_cast(evidence AS JSON) ->> '$.added_ns')::DOUBLE AS added_ns,
    (try_cast(evidence AS JSON) -> '$.near')::INTEGER[] AS near, -- ranks beside it
    CASE direction WHEN 'send' THEN 'sending' WHEN 'receive' THEN 'receiving'
      WHEN 'both' THEN 'sending and receiving' ELSE 'sending or receiving' END AS way,
    CASE kind WHEN 'edge' THEN 'the link from rank ' || src || ' to rank ' || dst
      WHEN 'rank' THEN 'rank ' || src || coalesce(' on ' || host, '') || ' (' || way || ')'
      WHEN 'host' THEN 'host ' || host || ' (' || way || ')' END AS place_words,
    CASE kind WHEN 'edge' THEN 0 WHEN 'rank' THEN 1 WHEN 'host' THEN 2 WHEN 'rail' THEN 2
      WHEN 'group' THEN 3 ELSE 4 END AS precision_order
  FROM link_excess)
-- excess, of a call's time
SELECT p.* EXCLUDE (open_times),
  CASE WHEN kind = 'unsteady' OR (try_cast(evidence AS JSON) ->> '$.in_some_steps')::BOOLEAN
    THEN (SELECT avg(step_ns) FROM used_step) END AS of_step_ns,
  (share ->> 0)::DOUBLE AS share_low, (share ->> 2)::DOUBLE AS share_high,
  CASE WHEN w.gain_ns IS NULL THEN 'modelled' ELSE 'replayed' END AS confidence,
  exposed_ns, taken_ns, CASE WHEN w.gain_ns IS NOT NULL OR kind = 'network' THEN taken_ns END AS most_ns,
  least(CASE WHEN w.gain_ns IS NULL THEN excess_ns_per_step ELSE greatest(w.gain_ns, 0) END, most_ns)
    AS savings_ns,
  least(greatest(coalesce(w.gain_low_ns, own_low_ns / open_times),
    least(own_low_ns, excess_ns_per_step) / 2), most_ns) AS savings_low_ns,
  least(greatest(w.gain_high_ns, greatest(excess_high_ns, excess_ns_per_step)
    * CASE WHEN w.gain_ns IS NULL THEN open_times ELSE 1 END), most_ns) AS savings_high_ns,
  CASE kind WHEN 'edge' THEN [src, dst] WHEN 'rank' THEN [src]
    WHEN 'candidates' THEN coalesce(open_ranks, [])
    WHEN 'host' THEN coalesce(near, on_host)
    WHEN 'rail' THEN near WHEN 'network' THEN near WHEN 'unsteady' THEN near
      ELSE [] END AS ranks,
  CASE WHEN kind IN ('rail', 'network', 'unsteady', 'candidates') THEN (
    SELECT list(DISTINCT r.host) FROM rank r
    WHERE list_contains(CASE kind WHEN 'candidates' THEN open_ranks ELSE near END, r.rank))
    ELSE [p.host] END AS hosts,
  CASE WHEN kind = 'edge' THEN src || ' -> ' || dst END AS link,
  CASE WHEN kind IN ('edge', 'rank') THEN src END AS culprit_rank,
  s.host AS src_host, d.host AS dst_host,
  -- Places that only a probe finds slow.
  (SELECT string_agg(o.place_words || ', ' || printf('%.3g', o.probe_gbps)
    || ' GB/s where other links give ' || printf('%.3g', o.probe_expected_gbps) || ' GB/s',
    '; ' ORDER BY o.probe_gbps, o.src, o.dst)
    FROM placed o WHERE o.probe = 'names') AS probe_names
FROM placed p CROSS JOIN (SELECT e.ns AS exposed_ns, e.ns + s.ns AS taken_ns
    FROM (SELECT avg(exposed_comm_ns) AS ns FROM rank_step) e,
    -- that compute takes less beside transfers is another kernel's shape
    (SELECT greatest(0, coalesce(median(cost_ns_per_step), 0)) AS ns FROM overlap_slowdown) s)
  LEFT JOIN rank s ON s.rank = p.src LEFT JOIN rank d ON d.rank = p.dst
  LEFT JOIN (SELECT host, list(rank ORDER BY rank) AS on_host FROM rank GROUP BY host) h ON h.host = p.host
  LEFT JOIN whatif_gain w
  ON w.setting = CASE p.kind WHEN 'network' THEN 'restore-network' ELSE 'restore-link' END
    AND w.value = p.src::VARCHAR AND expected_from IS DISTINCT
  FROM 'stalls' AND probe IS DISTINCT FROM 'names'
    -- of calls whose other ranks were not recorded nothing tells what slows them: there they stay as slow
    AND (kind = 'network' OR w.gain_ns >= own_low_ns OR (SELECT ranks_read >= world_size FROM facts));

-- Groups whose calls go over a place that is slow, with what is left of a call where it is mended: no
-- setting of the job gives what the place costs.
--   left_share: of a call's transfer
CREATE VIEW sound_group AS
SELECT process_group, 1 - max((p.share ->> 1)::DOUBLE) AS left_share
FROM process_group g LEFT JOIN group_host h USING (process_group) JOIN (
  SELECT share, near, try_cast(evidence AS JSON) ->> '$.link' AS reach,
    (try_cast(evidence AS JSON) -> '$.far')::INTEGER[] AS far
  FROM slow_place
  WHERE kind <> 'network' AND coalesce(probability, 1) > 0.5
    AND coalesce(probe, '') NOT IN ('names', 'denies')) p
  ON list_has_any(g.ranks, p.near) AND list_has_any(g.ranks, coalesce(p.far, g.ranks))
    AND coalesce((coalesce(h.hosts, 2) > 1) = (p.reach = 'between'), true)
GROUP BY process_group;

-- All that lies between hosts, where machines with the device have a faster network: it may be slow.
--   step_share: share of the step that a sound network may give back
--   suits: what calls take is what one of these machines has, so that nothing accuses it
--   outweighed_ns: what a change that costs memory must give more than; null where it suits, or below a
--     tenth of the step
--   beyond_ns: a call's latency is its hops' up to this: 56 times what NCCL takes for a few bytes there, more
--     than any published table of two hosts has beside the bytes (benchmarks/calibration.py: 54)
--   least_gbps: of machines that are faster, the slowest likely network
--   most_gbps: and the fastest
CREATE VIEW slow_network AS
SELECT p.*, savings_ns / coalesce(of_step_ns, step_ns) AS step_share,
  coalesce((try_cast(evidence AS JSON) ->> '$.suits')::BOOLEAN, false) AS suits,
  CASE WHEN step_share >= 0.1 AND NOT suits THEN savings_ns / 0.8 END AS outweighed_ns,
  56 * (try_cast(evidence AS JSON) ->> '$.usual_ns')::DOUBLE AS beyond_ns,
  measured_gbps / (1 - share_low) AS least_gbps,
  measured_gbps / (1 - share_high) AS most_gbps
FROM slow_place p, facts
WHERE kind = 'network' AND measured_gbps IS NOT NULL AND share_high < 1;
