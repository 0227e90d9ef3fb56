-- Settings, versions, hosts and devices, and what NCCL chose.

-- Environment settings, from NCCL's log and from recordings that keep an allow-list of them.
--   origin: 'nccl-log' or 'recording'
CREATE VIEW setting AS
SELECT DISTINCT name, value, rank, host, 'nccl-log' AS origin FROM topology WHERE kind = 'env'
UNION
SELECT DISTINCT e.key, e.value ->> '$', r.rank, r.host, 'recording'
FROM rank r, json_each(try_cast(r.metadata AS JSON), '$.advisor.environment') e
WHERE json_type(try_cast(r.metadata AS JSON), '$.advisor.environment') = 'OBJECT';

-- Versions of components, as text and as a number that can be compared (2.19.3 is 2019003).
--   component: 'nccl' or 'torch'
--   version: as printed
--   version_key: 2.19.3 as 2019003
CREATE VIEW version AS
WITH raw AS (
  SELECT 'nccl' AS component, nccl_version AS version FROM rank WHERE nccl_version IS NOT NULL
  UNION SELECT name, value FROM topology WHERE kind = 'version' AND name IN ('nccl', 'torch')
  UNION SELECT e.key, e.value ->> '$'
  FROM rank r, json_each(try_cast(r.metadata AS JSON), '$.advisor.versions') e
  WHERE e.key IN ('nccl', 'torch')
    AND json_type(try_cast(r.metadata AS JSON), '$.advisor.versions') = 'OBJECT')
SELECT component, version,
  list_sum(list_transform(regexp_extract_all(split_part(version, '+', 1), '\d+')[1:3],
    lambda part, place: part::BIGINT * [1000000, 1000, 1][place]))::BIGINT AS version_key
FROM raw;

-- Ranks with the host that a log or a trace names.
CREATE VIEW rank_host AS
SELECT rank, arg_min(host, origin) AS host FROM ( -- what a log says of the fabric comes first
  SELECT rank, host, 0 AS origin FROM topology WHERE kind = 'rank' AND rank IS NOT NULL
  UNION ALL SELECT rank, host, 1 FROM rank) WHERE host IS NOT NULL GROUP BY rank;

-- Ranks with their hosts. Where none is named, ranks that compute on devices of one number are on different
-- hosts: all ranks were recorded, the numbers differ (a launcher that shows each rank one device alone makes
-- all of them 0), and each is there as often.
-- A rank that was not read is where its neighbours are, if most were: hosts hold as many, in turn.
--   by_device: told by the numbers of devices
CREATE VIEW placed_rank AS
WITH job AS (
  SELECT named AS hosts, CASE WHEN world_size % nullif(named, 0) = 0 AND 2 * seen > world_size
    THEN world_size // named END AS per_host
  FROM facts, (SELECT count(DISTINCT host) AS named, count(*) AS seen FROM rank_host)),
place AS (
  SELECT rank // per_host AS place, any_value(host) AS host FROM rank_host, job
  WHERE per_host > 0 GROUP BY ALL HAVING count(DISTINCT host) = 1),
lost AS (
  SELECT place * per_host + i AS rank, host, false FROM place, job,
    (SELECT unnest(range((SELECT max(per_host) FROM job))) AS i)
  WHERE hosts = (SELECT count(*) FROM place) AND hosts = (SELECT count(DISTINCT host) FROM place)),
numbered AS (SELECT device, count(*) AS hosts FROM rank GROUP BY device),
dealt AS (
  SELECT NOT EXISTS (FROM rank_host) AND count(*) > 1 AND count(device) = count(*) AND min(hosts) = max(hosts)
    AND min(hosts) > 1 AND sum(hosts) = (SELECT max(world_size) FROM rank) AS is_told FROM numbered)
SELECT *, false AS by_device FROM rank_host
UNION ALL FROM lost ANTI JOIN rank_host USING (rank)
UNION ALL SELECT rank, format('host {}', row_number() OVER (PARTITION BY device ORDER BY rank) - 1), true
FROM rank, dealt WHERE is_told;

-- NCCL's printed choices beside the best entry of its own tuning table at that size.
-- No rows without nccl_choice.
--   chosen_us: predicted by the table for what was chosen
--   best_algorithm: that the table predicts
--   best_protocol: with that algorithm
--   best_protocol_here: the best with the algorithm that was chosen
CREATE VIEW choice_cost AS
WITH cost AS (
  SELECT c.op, c.bytes, c.ranks, c.algorithm, c.protocol, c.calls, t.algorithm AS other,
    t.protocol AS other_protocol,
    t.latency_us + c.bytes / (1000 * t.bandwidth_gbps) AS time_us
  FROM nccl_choice c JOIN nccl_choice t
    ON t.source = 'table' AND t.op = c.op AND t.bandwidth_gbps > 0 AND t.ranks IS NOT DISTINCT
    FROM c.ranks
  WHERE c.source = 'call' AND c.bytes > 0)
SELECT op, bytes, ranks, algorithm, protocol, any_value(calls) AS calls,
  -- as the table predicts
  min(time_us) FILTER (other = algorithm AND other_protocol = protocol) AS chosen_us,
  min(time_us) FILTER (other = algorithm) AS same_algorithm_us, -- the best protocol of that algorithm
  min(time_us) AS best_us,                                      -- the best of all
  arg_min(other, time_us) AS best_algorithm,
  arg_min(other_protocol, time_us) AS best_protocol,
  arg_min(other_protocol, time_us) FILTER (other = algorithm) AS best_protocol_here
FROM cost GROUP BY op, bytes, ranks, algorithm, protocol;

-- Members of each process group. A lateral join would carry the whole list along to each of them.
-- No rows without process_group.
CREATE VIEW group_member AS
SELECT process_group, unnest(ranks) AS rank FROM process_group;

-- Hosts of each process group's ranks. Where ranks were not read, the host with most of them
-- shows how many one has.
-- No rows without group_member.
--   group_size: ranks of the group
--   ranks_per_host: ranks of the job on each host, at least
--   by_device: no host is named; the numbers of devices tell how many there are
CREATE VIEW group_host AS
SELECT process_group, g.size AS group_size, g.ranks, m.hosts, by_device,
  (SELECT CASE WHEN sum(n) < (SELECT world_size FROM facts) THEN max(n) ELSE min(n) END
   FROM (SELECT count(*) AS n FROM placed_rank GROUP BY host)) AS ranks_per_host
FROM process_group g JOIN (
  SELECT process_group, count(DISTINCT host) AS hosts, bool_or(by_device) AS by_device, count(*) AS members
  FROM group_member JOIN placed_rank USING (rank) GROUP BY process_group) m USING (process_group)
WHERE m.members = len(g.ranks);

-- Devices that a trace or a log names, in the hardware table, matched by whole words, the longest
-- phrase first.
--   source: file and line of the log. Null of a trace
--   name: of the device
--   peak_bf16_flops: per second, dense
--   peak_16bit_flops: per second, dense: of bf16 or float16, whichever it has
--   peak_tf32_flops: per second, dense, of fp32 numbers on tensor cores
--   peak_fp32_flops: per second, dense
--   memory_bytes: of one device
--   link_gbps: of one device, by data sheet, GB/s
--   pcie_gbps: of its PCIe x16 one way, GB/s
--   gpudirect: whether a NIC may reach its memory (GPUDirect RDMA)
--   figures: where the figures are from
CREATE VIEW named_device AS
SELECT r.device_name, r.source, d.name, d.peak_bf16_flops, d.peak_16bit_flops, d.peak_tf32_flops,
  d.peak_fp32_flops, d.memory_bytes, d.link_gbps, d.pcie_gbps, d.gpudirect, d.source AS figures
FROM (SELECT DISTINCT device_name, NULL AS source FROM rank WHERE device_name IS NOT NULL
  UNION ALL SELECT name, min(source) FROM topology WHERE kind = 'device' GROUP BY name) r
JOIN (SELECT *, unnest(phrases) AS phrase FROM ref_device) d
  ON regexp_matches(r.device_name, '(^|[^a-z0-9])' || regexp_escape(d.phrase) || '($|[^a-z0-9])', 'i')
  AND NOT regexp_matches(r.device_name, '\b(laptop|max-q|mig)\b', 'i')
  AND NOT regexp_matches(r.device_name, regexp_escape(d.phrase) || '\s*(ti|super|d)\b', 'i')
QUALIFY row_number() OVER (PARTITION BY r.device_name, r.source ORDER BY length(d.phrase) DESC) = 1;

-- The device of this run, as its traces name it.
--   source: of the figures
CREATE VIEW run_device AS
SELECT * EXCLUDE (source, figures), figures AS source FROM named_device WHERE source IS NULL;

-- Whether a log's job runs on several hosts. None has more than 16 GPUs.
--   is_known: by hosts, connections or communicators
--   is_possible: or of more than eight ranks not all are seen
--   ranks: of the largest communicator
CREATE VIEW several_hosts AS
WITH world AS (
  SELECT max((value ->> 'ranks')::BIGINT) AS ranks, max((value ->> 'nodes')::BIGINT) AS nodes
  FROM topology WHERE kind = 'communicator'),
seen AS (
  SELECT count(DISTINCT host) AS hosts, count(DISTINCT rank) FILTER (kind = 'rank') AS read FROM topology),
wires AS (SELECT count(*) AS lines FROM link WHERE kind LIKE 'net-%'),
-- Hosts with NVSwitches of Hopper and later have eight GPUs at most, others sixteen.
host AS (SELECT CASE WHEN EXISTS (FROM topology WHERE kind IN ('nvls', 'fabric')) THEN 8 ELSE 16 END AS most)
SELECT hosts > 1 OR lines > 0 OR coalesce(nodes > 1, false)
    OR coalesce(nodes IS NULL AND ranks > most, false) AS is_known,
  is_known OR coalesce(nodes IS NULL AND ranks > greatest(8, read), false) AS is_possible, ranks
FROM world, seen, wires, host;

-- What check-env says of the settings (setting_issues), but for what is only worth knowing: one
-- row per setting, value and remark. NCCL's count where NCCL runs, or where its own log prints
-- them.
-- No rows without setting.
--   severity: 'critical', 'warning' or 'info'
--   title: what is wrong
--   why: the mechanism
--   action: what to write instead
--   effect: what it costs
--   ranks: that have it
CREATE VIEW setting_issue AS
WITH used AS (
  SELECT rank, host, name, max(value) AS value FROM setting
  WHERE name NOT LIKE 'NCCL%' OR origin = 'nccl-log' OR (SELECT backend FROM facts) = 'nccl'
  GROUP BY ALL),
environment AS (
  SELECT rank, host,
    to_json(map(list(name ORDER BY name), list(coalesce(value, '') ORDER BY name)))::VARCHAR AS settings
    FROM used GROUP BY ALL),
judged AS (
  SELECT e.rank, e.host, unnest(from_json(setting_issues(e.settings,
    (SELECT max(version) FROM version WHERE component = 'nccl'),
      -- One host is the job's only where its ranks are all there.
      (SELECT CASE WHEN n > 1 OR NOT is_possible AND read >= coalesce(world, read) THEN nullif(n, 0) END
       FROM several_hosts, (SELECT count(DISTINCT host) AS n, count(*) AS read,
         (SELECT world_size FROM facts) AS world FROM rank_host))),
    '[{"variable":"VARCHAR","value":"VARCHAR","severity":"VARCHAR","title":"VARCHAR",
      "why":"VARCHAR","action":"VARCHAR","source":"VARCHAR","effect":"VARCHAR"}]')) AS issue
  FROM environment e)
SELECT issue.variable AS name, issue.value, issue.severity, issue.title, issue.why, issue.action,
  issue.source, issue.effect,
  list(DISTINCT rank ORDER BY rank) FILTER (rank IS NOT NULL) AS ranks,
  list(DISTINCT host ORDER BY host) FILTER (host IS NOT NULL) AS hosts
FROM judged
-- GPUs without NVLink have no switch that could reduce.
WHERE NOT (issue.variable = 'NCCL_NVLS_ENABLE' AND issue.value = '0'
  AND EXISTS (FROM named_device) AND NOT EXISTS (FROM named_device WHERE link_gbps > 0))
GROUP BY ALL;

-- How ranks of different hosts talk: by connections, or by what a log without any says it uses.
--   connections: null where the log lists none
--   ranks: senders
CREATE VIEW network_use AS
SELECT kind, count(*) AS connections, list(DISTINCT src ORDER BY src) AS ranks FROM link
WHERE kind LIKE 'net-%' GROUP BY kind
UNION ALL
SELECT 'net-socket', NULL, NULL FROM topology WHERE kind = 'net' AND name = 'network' AND value = 'Socket'
  AND NOT EXISTS (SELECT 1 FROM link) AND (SELECT is_possible FROM several_hosts) HAVING count(*) > 0;

-- Where collectives between hosts are known to go over TCP: gloo's all do, NCCL's where a log says
-- that it uses sockets.
--   known_from: 'gloo' or 'nccl-log'
CREATE VIEW tcp AS
SELECT DISTINCT 'gloo' AS known_from FROM rank
WHERE contains(backend, 'gloo') AND NOT contains(backend, 'nccl')
UNION ALL SELECT 'nccl-log' FROM network_use
  WHERE kind = 'net-socket' AND (SELECT is_known FROM several_hosts);

-- Whether the network reads GPUs' memory: by connections, or where the log lists none by what NCCL
-- says of NICs, and of the pairs of GPU and NIC that it looked at.
--   what: 'connections', 'NICs' or 'pairs of GPU and NIC'
--   without: of them go through host memory
--   total: of them all
--   ranks: whose end has none; the senders where the ends are not told apart
--   hosts: that have some without
--   one_sided: of all connections without, the other end has it
--   is_slingshot: they go over libfabric's provider cxi; its others have GPUs that cannot do it
CREATE VIEW gpudirect AS
WITH told AS (
  FROM link WHERE kind = 'net-ib' OR kind = 'net-other' AND gdr IS NOT NULL
    AND EXISTS (FROM topology WHERE kind = 'net' AND name = 'OFI' AND contains(value, '"cxi"'))
), ends AS (
  SELECT unnest(coalesce(nullif(ends_without_gdr, []), [src])) AS rank FROM told WHERE NOT gdr)
SELECT 'connections' AS what, count(*) FILTER (NOT gdr) AS without, count(*) AS total,
  (SELECT list(DISTINCT rank ORDER BY rank) FROM ends) AS ranks,
  (SELECT list(DISTINCT host ORDER BY host) FROM ends JOIN rank_host USING (rank)) AS hosts,
  coalesce(bool_and(len(ends_without_gdr) < ends_read) FILTER (NOT gdr), false) AS one_sided,
  min(kind) = 'net-other' AS is_slingshot
FROM told HAVING count(*) > 0
UNION ALL
SELECT CASE WHEN name LIKE 'GPU%' THEN 'pairs of GPU and NIC' ELSE 'NICs' END,
  count(*) FILTER (value ->> 'enabled' = 'false'), count(*), NULL,
  list(DISTINCT host ORDER BY host) FILTER (value ->> 'enabled' = 'false' AND host IS NOT NULL), false, false
FROM topology WHERE kind = 'gdr' AND coalesce(value ->> 'net', 'IB') <> 'Socket'
  AND NOT EXISTS (SELECT 1 FROM link WHERE kind LIKE 'net-%')
  AND NOT EXISTS (SELECT 1 FROM topology WHERE kind = 'net' AND name = 'network' AND value = 'Socket')
  -- a job of one host uses none of its NICs
  AND NOT coalesce((SELECT hosts = 1 AND ranks_read >= world_size FROM facts), false)
GROUP BY 1;

-- GPUs with NVLink of 200 GB/s or more (A100 and later), as a trace, a benchmark, a log or the user
-- names them.
--   name: of the GPUs, or what they have
--   said_by: file and line of a log, or the option. Null of traces and tables
CREATE VIEW fast_gpu AS
SELECT name, said_by FROM (
  SELECT name, source AS said_by, link_gbps AS gbps FROM named_device
  UNION ALL SELECT c.device, NULL, d.link_gbps FROM bench_curve c JOIN ref_device d ON d.name = c.device
  UNION ALL SELECT value ->> 'device', coalesce(source, '--hardware ' || name), (value ->> '$.intra.gpu_gbps')::DOUBLE
  FROM topology WHERE kind = 'machine'
  UNION ALL SELECT 'GPUs with ' || round(gbps)::INTEGER || ' GB/s of NVLink', source, gbps FROM (
    SELECT source, CASE kind WHEN 'system' THEN value ->> 'max_bw_gbps' WHEN 'gpu' THEN value ->> 'nvlink_gbps'
      ELSE value ->> 'bw_gbps' END::DOUBLE AS gbps
    FROM topology WHERE kind IN ('system', 'gpu')
      OR kind = 'path' AND value ->> 'type' = 'NVL' AND name LIKE 'GPU% -> GPU%')
  -- Only NVSwitches of Hopper and later multicast, or have a fabric that NVML tells the state of.
  UNION ALL SELECT 'NVLink SHARP (H100 or later)', source, 450 FROM topology
  WHERE kind IN ('nvls', 'fabric') OR kind = 'connected' AND name = 'NVLS tree'
    OR kind = 'channels' AND (value ->> 'nvls')::INTEGER > 0)
WHERE gbps >= 200 AND gbps < 5000 -- which is LOC_BW, of a GPU to itself (nccl's graph/topo.h)
ORDER BY said_by IS NOT NULL, name LIKE '%NVLink%', name, said_by LIMIT 1;
