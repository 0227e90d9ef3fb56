-- The tables of a store. Every column carries a comment: `advisor schema` prints them.
-- Times are integer nanoseconds since the Unix epoch where the input has absolute time (else since
-- the input's own zero), on the clock of the rank's host, NOT aligned: add rank.clock_offset_ns to
-- compare ranks. Never pass them through float64. Sizes are bytes.

-- One diagnosed run; one store may hold several, e.g. for `advisor compare`.
CREATE TABLE run (
  run VARCHAR NOT NULL,             -- name of the run, unique in the store
  created_at VARCHAR NOT NULL,      -- when it was ingested, ISO 8601 UTC
  advisor_version VARCHAR NOT NULL, -- version that wrote it
  strategy VARCHAR,                 -- strategy if the recording says so (advisor profile), else null
  compute VARCHAR,                  -- 'real' or 'emulated' if the recording says so, else null
  workload VARCHAR,                 -- JSON of the workload as run (advisor profile), else null
  environment VARCHAR               -- JSON: allow-listed environment of the recording, else null
);

-- One input file, whatever its format.
CREATE TABLE source (
  run VARCHAR NOT NULL,             -- run it belongs to
  source_id INTEGER NOT NULL,       -- number within the run
  path VARCHAR NOT NULL,            -- path as given
  format VARCHAR NOT NULL,          -- reader that took it, e.g. 'kineto', 'nccl-log'
  bytes BIGINT,                     -- size on disk
  blake3 VARCHAR,                   -- hash of the file on disk (b3sum); null if it could not be read
  rank INTEGER,                     -- rank whose events it holds; null if several or unknown
  events_read BIGINT,               -- events (or records, lines) kept
  events_dropped BIGINT,            -- events known to be lost
  drop_reasons VARCHAR,             -- JSON {reason: count}
  note VARCHAR,                     -- what a reader of the report must know about this file
  codes VARCHAR[]                   -- what later stages act on: 'read-apart', 'other-format', 'partly-read', 'not-recorded'
);

-- One rank of a run.
CREATE TABLE rank (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- global rank
  world_size INTEGER,               -- ranks of the job; null if the trace does not say
  host VARCHAR,                     -- host name or id; null if unknown
  device INTEGER,                   -- device index of its compute; null on CPU
  device_name VARCHAR,              -- e.g. 'NVIDIA H100 80GB HBM3', 'CPU'
  backend VARCHAR,                  -- 'nccl', 'gloo', ...; null if unknown
  nccl_version VARCHAR,             -- from distributedInfo or a log
  timeline VARCHAR,                 -- 'device' (GPU streams) or 'host' (CPU-only: the process is the device)
  clock_offset_ns BIGINT,           -- add to this rank's times to align it with the run; 0 = reference; null = not estimated
  clock_drift_ppm DOUBLE,           -- drift against the reference, parts per million; null = not estimated
  clock_residual_ns BIGINT,         -- spread left after alignment: effects below this are not evidence
  events_read BIGINT,               -- events kept
  events_dropped BIGINT,            -- events known to be lost
  drop_reasons VARCHAR,             -- JSON {reason: count}
  complete BOOLEAN,                 -- false when the file was cut or damaged
  has_base_time BOOLEAN,            -- times are absolute (epoch)
  peak_memory_bytes BIGINT,         -- peak allocated device memory or RSS if recorded
  total_memory_bytes BIGINT,        -- device memory in total, from deviceProperties
  metadata VARCHAR                  -- JSON of other top-level fields of the trace that readers keep
);

-- Process groups, as the traces' distributedInfo.pg_config (or a log) lists them.
CREATE TABLE process_group (
  run VARCHAR NOT NULL,             -- run
  process_group VARCHAR NOT NULL,   -- name, e.g. '0'
  description VARCHAR,              -- e.g. 'default_pg', 'mesh_dp'
  ranks INTEGER[],                  -- global ranks in group order; null if unknown or cut
  size INTEGER,                     -- number of ranks
  backend VARCHAR                   -- 'nccl', 'gloo', ...
);

-- One span (or instant) of a trace. Order of event_id = order in the file.
CREATE TABLE event (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  event_id BIGINT NOT NULL,         -- unique within (run, rank)
  name VARCHAR,                     -- name as recorded: data, never code
  category VARCHAR,                 -- category as recorded, e.g. 'kernel', 'cpu_op'
  class VARCHAR,                    -- compute comm memory sync other (device); cpu_op runtime annotation python (host)
  device INTEGER,                   -- device index for device events, else null
  stream BIGINT,                    -- device stream, else null
  pid BIGINT,                       -- process id as recorded; null if not a number
  tid BIGINT,                       -- thread id as recorded; null if not a number
  start_ns BIGINT,                  -- start
  dur_ns BIGINT,                    -- duration; 0 for instants, NULL where a device's or a backend's is not usable
  correlation BIGINT,               -- links a runtime launch and its device event
  external_id BIGINT,               -- links a cpu_op and what it launched
  bytes BIGINT                      -- 'bytes' of a memcpy/memset/allocation event
);

-- What an event says of a collective or of its operands, in a table of its own because few events
-- do: one row per event that carries any of this.
CREATE TABLE comm_event (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  event_id BIGINT NOT NULL,         -- its event
  collective VARCHAR,               -- 'Collective name' of the profiler's NCCL metadata
  dtype VARCHAR,                    -- element type as recorded ('Float', 'BFloat16', 'float')
  in_elements BIGINT,               -- 'In msg nelems'
  out_elements BIGINT,              -- 'Out msg nelems'
  group_size INTEGER,               -- 'Group size'
  process_group VARCHAR,            -- 'Process Group Name'
  group_description VARCHAR,        -- 'Process Group Description'
  group_ranks VARCHAR,              -- 'Process Group Ranks' as recorded (cut beyond 30 ranks)
  seq BIGINT,                       -- 'Seq': sequence number of the collective in its group
  src_rank INTEGER,                 -- 'Src Rank'
  dst_rank INTEGER,                 -- 'Dst Rank'
  in_split VARCHAR,                 -- 'In split size'
  out_split VARCHAR,                -- 'Out split size'
  input_dims VARCHAR,               -- 'Input Dims' as JSON; kept for communication, and operators whose FLOPs can be counted
  input_types VARCHAR,              -- 'Input type' as JSON; kept for the same events
  concrete_inputs VARCHAR           -- 'Concrete Inputs' as JSON (peer of a c10d::send/recv_, root; strides); kept for the same events
);

-- The union-ready activity of each rank's device: what the breakdown and the timelines draw.
-- On a GPU: one row per device event. On CPU (gloo): top-level operators that do not wait, and
-- the spans of collectives.
CREATE TABLE activity (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  kind VARCHAR NOT NULL,            -- compute comm memory sync other
  start_ns BIGINT NOT NULL,         -- start
  end_ns BIGINT NOT NULL,           -- end
  stream BIGINT,                    -- stream (GPU) or thread (CPU)
  event_id BIGINT,                  -- event it comes from
  launch_ns BIGINT,                 -- when the host launched it (GPU), else null
  step INTEGER                      -- step it belongs to: of its launch on GPU, by time on CPU; null outside steps
);

-- What each rank's recording holds.
CREATE TABLE rank_content (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  cpu_ops BIGINT NOT NULL,          -- operators on host threads
  runtime_calls BIGINT NOT NULL,    -- calls of the CUDA or HIP runtime and driver
  launches BIGINT NOT NULL,         -- of them launches, copies and fills
  launch_ns BIGINT,                 -- median time of a call that launches a kernel; null without any
  annotations BIGINT NOT NULL,      -- annotated ranges
  python_calls BIGINT NOT NULL,     -- Python functions
  backend_spans BIGINT NOT NULL,    -- spans of a host-driven backend such as gloo
  updates BIGINT,                   -- steps of torch's optimizers
  device_events BIGINT NOT NULL,    -- kernels, copies and the like
  kernel_ns BIGINT NOT NULL,        -- sum of all kernels' time
  known_ns BIGINT NOT NULL,         -- of it in kernels that are understood: by their name, or launched by PyTorch's operators
  unknown_kernels VARCHAR,          -- JSON of the longest others: name, calls, ns
  longest_kernels VARCHAR,          -- JSON of the kernels that take most, by name without arguments: name, ns
  narrow_share DOUBLE,              -- of the time of matrix products, convolutions and attention: share in 16 bits or fewer; null without any
  plain_fp32_ns BIGINT NOT NULL,    -- of kernel_ns in matrix products and convolutions in fp32 without tensor cores
  largest_gradient_bytes BIGINT,    -- the largest single gradient: DDP splits none; null if shapes were not recorded
  purpose VARCHAR,                  -- 'training' 'inference' (an engine's) 'forward' (a model's operators, none of training); null if nothing tells
  engine VARCHAR,                   -- the engine of inference ('vLLM', 'SGLang' ...) or the framework of training ('DeepSpeed')
  alone BOOLEAN,                    -- whether nothing in the recording is of a job of several ranks
  by_torch BOOLEAN,                 -- whether PyTorch wrote it, or its operators or kernels are in it; null without either and without kernels
  replays BOOLEAN,                  -- whether most of what its device did are replays of CUDA graphs
  blocks BOOLEAN,                   -- whether launches return when their kernels have ended, as with CUDA_LAUNCH_BLOCKING=1; null without long kernels
  prefetches BOOLEAN                -- whether FSDP2 was told what to gather ahead in the forward pass, which it does not by itself
);

-- Steps per rank. Every figure per step, in every command, rests on those that are used.
CREATE TABLE step (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  step INTEGER NOT NULL,            -- number: N of ProfilerStep#N, else counted from 0
  start_ns BIGINT NOT NULL,         -- window start on the device timeline (METRICS section 1)
  end_ns BIGINT NOT NULL,           -- window end
  host_start_ns BIGINT,             -- start of the host annotation
  host_end_ns BIGINT,               -- end of the host annotation
  complete BOOLEAN NOT NULL,        -- false for a partial first or last step
  used BOOLEAN NOT NULL,            -- whether figures per step rest on it: complete on all ranks that count, and like the others
  left_out VARCHAR,                 -- why it is not used: 'cut-rank' 'no-device' 'partial' 'lost-thread' 'warm-up' 'odd'; null when it is
  source VARCHAR NOT NULL,          -- 'ProfilerStep', 'annotation', 'optimizer-step', 'collective-period' or 'whole-trace'
  only_there VARCHAR                -- of a long step: the range or function that fills it and is in no other step
);

-- One row per rank and collective call.
CREATE TABLE collective (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  call_id BIGINT NOT NULL,          -- shared by the matched calls of all ranks
  op VARCHAR NOT NULL,              -- all_reduce all_gather reduce_scatter broadcast reduce all_to_all send recv barrier gather scatter other
  library VARCHAR,                  -- who runs it: 'nccl', 'rccl', 'gloo', 'deep_ep', 'torch-symm-mem' ...; null if unknown
  wire_op VARCHAR,                  -- what the backend really ran, e.g. gloo's all_reduce for reduce_scatter
  process_group VARCHAR,            -- group name; null if unknown
  group_size INTEGER,               -- ranks in the group; null if unknown
  seq BIGINT,                       -- sequence number in the group: recorded, else counted after matching
  dtype VARCHAR,                    -- element type, lower case torch name ('float32'); null if unknown
  in_elements BIGINT,               -- elements in
  out_elements BIGINT,              -- elements out
  bytes BIGINT,                     -- message size S as nccl-tests counts it (METRICS section 4); null if unknown
  peer INTEGER,                     -- the other rank of a send or recv; null if unknown
  start_ns BIGINT NOT NULL,         -- start on this rank's clock
  end_ns BIGINT NOT NULL,           -- end
  enqueue_ns BIGINT,                -- when the host asked for it; null if unknown
  stream BIGINT,                    -- stream or thread that ran it
  event_id BIGINT,                  -- event it comes from
  matched_ranks INTEGER,            -- how many ranks of the group this call was matched on (1 = alone)
  wait_ns BIGINT,                   -- this rank waiting for the last to arrive; null when not matched; at least that when a rank is missing
  transfer_ns BIGINT,               -- from the last rank's start to this rank's end; see t_is
  t_is VARCHAR,                     -- 'matched', 'upper bound' (a rank of the call was not read) or 'upper bound, reached' (nobody waited for it)
  last_rank INTEGER,                -- which rank arrived last, of those read; null when not matched
  step INTEGER,                     -- step; null outside steps
  phase VARCHAR,                    -- forward backward optimizer other; null if unknown
  module VARCHAR,                   -- module, layer or 'bucket N' where known
  ahead BOOLEAN,                    -- a gather that FSDP2 asks for in another unit's turn and does not wait for there; null: not known
  exposed_ns BIGINT,                -- part not covered by compute on this rank
  hidden_ns BIGINT,                 -- part covered by compute on this rank
  exposed_transfer_ns BIGINT,       -- exposed part after the last rank came; what calls share is split between them, so that it adds up
  algbw_gbps DOUBLE,                -- bytes / transfer_ns, decimal GB/s; of the slowest rank when matched
  busbw_gbps DOUBLE,               -- algbw times the op's factor
  fitted_ns BIGINT,                 -- transfer time that the run's alpha-beta fit gives for it; null without a fit
  latency_share DOUBLE,             -- part of fitted_ns that does not depend on the size: over 0.5 latency-bound, under 0.1 bandwidth-bound
  split_bytes VARCHAR               -- JSON list of bytes per peer of an uneven all_to_all, sent; null if unknown
);

-- Time of each rank from the first device event's start to the last one's end; sums exactly.
CREATE TABLE run_breakdown (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  window_ns BIGINT NOT NULL,        -- length of the window
  compute_ns BIGINT NOT NULL,       -- union of compute
  exposed_comm_ns BIGINT NOT NULL,  -- union of communication not under compute
  exposed_memory_ns BIGINT NOT NULL,-- union of memory operations under neither
  other_ns BIGINT NOT NULL,         -- union of the rest of the device's events under none of them
  idle_ns BIGINT NOT NULL,          -- nothing ran
  comm_ns BIGINT NOT NULL,          -- union of communication
  hidden_comm_ns BIGINT NOT NULL,   -- union of communication under compute
  exposed_wait_ns BIGINT,           -- part of exposed_comm before the last peer arrived; null when not matched
  exposed_transfer_ns BIGINT,       -- the rest of exposed_comm; null when not matched
  idle_host_ns BIGINT,              -- idle because the host had not launched the next event; null on CPU
  idle_launch_gap_ns BIGINT,        -- idle although the next event was already queued; null on CPU
  idle_sync_ns BIGINT               -- idle in a synchronisation; null on CPU
);

-- The same per step.
CREATE TABLE step_breakdown (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  step INTEGER NOT NULL,            -- step
  complete BOOLEAN NOT NULL,        -- as in step
  used BOOLEAN NOT NULL,            -- as in step
  operators INTEGER,                -- compute of the step: kernels, on CPU top-level operators
  window_ns BIGINT NOT NULL,        -- length of the window
  compute_ns BIGINT NOT NULL,       -- union of compute
  exposed_comm_ns BIGINT NOT NULL,  -- union of communication not under compute
  exposed_memory_ns BIGINT NOT NULL,-- union of memory operations under neither
  other_ns BIGINT NOT NULL,         -- the rest of the device's events
  idle_ns BIGINT NOT NULL,          -- nothing ran
  comm_ns BIGINT NOT NULL,          -- union of communication
  hidden_comm_ns BIGINT NOT NULL,   -- union of communication under compute
  exposed_wait_ns BIGINT,           -- part of exposed_comm before the last peer arrived; null when not matched
  exposed_transfer_ns BIGINT,       -- the rest of exposed_comm; null when not matched
  idle_host_ns BIGINT,              -- idle because the host was late; null on CPU
  idle_optimizer_ns BIGINT,         -- of idle_host_ns: while the host ran the optimizer's step; null on CPU
  idle_hooks_ns BIGINT,             -- of idle_host_ns: long stretches while the host was in one node of autograd; null on CPU
  idle_calls_ns BIGINT,             -- of idle_host_ns: while the host was in a call of c10d; null on CPU
  idle_launch_gap_ns BIGINT,        -- idle although queued; null on CPU
  idle_sync_ns BIGINT,              -- idle because the host had waited for the device; null on CPU
  late_comm_host_ns BIGINT,         -- of exposed_comm_ns: gathers that a late host asked for too late; null on CPU
  late_comm_sync_ns BIGINT,         -- of exposed_comm_ns: gathers asked for late after waiting for the device; null on CPU
  late_compute_sync_ns BIGINT       -- of exposed_comm_ns: no compute beside it, as that was launched late after waiting for the device; null on CPU
);

-- Calls that could not be matched across ranks, per process group.
CREATE TABLE unmatched (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank that has the call
  process_group VARCHAR,            -- group
  calls BIGINT NOT NULL,            -- how many of its calls have no partner on some rank
  reason VARCHAR NOT NULL           -- 'missing rank', 'missing event', 'mismatched signature'
);

-- Fitted cost of communication: t = k*alpha + m*bytes*beta (METRICS section 7).
CREATE TABLE alpha_beta (
  run VARCHAR NOT NULL,             -- run
  origin VARCHAR NOT NULL,          -- 'trace', 'probe' or 'nccl-tests'
  op VARCHAR NOT NULL,              -- wire operation
  group_size INTEGER NOT NULL,      -- ranks in the group
  link_kind VARCHAR,                -- 'intra', 'inter' or null if unknown
  samples INTEGER NOT NULL,         -- calls used
  sizes INTEGER NOT NULL,           -- distinct sizes among them
  alpha_ns DOUBLE,                  -- latency per hop
  alpha_low_ns DOUBLE,              -- 95 % interval
  alpha_high_ns DOUBLE,             -- 95 % interval
  beta_ns_per_byte DOUBLE,          -- inverse bandwidth of the slowest link
  beta_low_ns_per_byte DOUBLE,      -- 95 % interval
  beta_high_ns_per_byte DOUBLE,     -- 95 % interval
  k DOUBLE,                         -- latency terms of this op and size
  m DOUBLE,                         -- bytes each link carries per byte of message
  n_star_bytes DOUBLE,              -- crossover k*alpha = m*S*beta; null if it cannot be told
  smallest_bytes BIGINT,            -- smallest size seen
  largest_bytes BIGINT,             -- largest size seen: beyond twice this is extrapolation
  r2 DOUBLE                         -- of the fit, on the calls used
);

-- Who arrives late at collectives, per rank and process group.
CREATE TABLE lateness (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  process_group VARCHAR,            -- group; null = over all groups
  calls INTEGER NOT NULL,           -- matched synchronising calls looked at
  times_last INTEGER NOT NULL,      -- how often this rank arrived last
  p_value DOUBLE,                   -- of being last that often by chance, corrected for the number of ranks
  median_lateness_ns BIGINT,        -- start minus the median start over the call's ranks, aligned clock; median over calls
  cost_ns_per_step BIGINT,          -- exposed waiting that its own delay causes, beside transfers too, mean over all other ranks, per step
  cost_low_ns BIGINT,               -- 95 % interval over steps
  cost_high_ns BIGINT,              -- 95 % interval over steps
  systematic BOOLEAN,               -- true: straggler; false: moving lateness or on time
  reason VARCHAR,                   -- 'slow-compute' (same kernels and shapes, longer) 'more-work' 'longer-compute' (which of both is not recorded) 'late-launch' 'data-loading' 'slow-copies' 'all-hosts-late' (this one no slower than the others) 'slow-transfer-before' 'unknown'; null: keeps nobody waiting
  reason_evidence VARCHAR,          -- JSON of the numbers behind the reason
  wait_ns_per_step BIGINT,          -- of its cost what a breakdown has as waiting: no other call of the peer transfers; null: all of it
  wait_by_step VARCHAR              -- JSON: the same by used step, ns; none where it is nothing
);

-- Excess transfer time that points at links, hosts or ranks.
CREATE TABLE link_excess (
  run VARCHAR NOT NULL,             -- run
  kind VARCHAR NOT NULL,            -- 'edge' (src -> dst), 'rank' (one rank's link), 'host', 'group', 'candidates'
  src INTEGER,                      -- sending rank of an edge, or the rank
  dst INTEGER,                      -- receiving rank of an edge
  host VARCHAR,                     -- host
  process_group VARCHAR,            -- group it was seen in
  candidates VARCHAR,               -- JSON list of the places it may be when it cannot be told
  calls INTEGER NOT NULL,           -- calls it rests on
  measured_gbps DOUBLE,             -- busbw on it
  expected_gbps DOUBLE,             -- busbw of peers, of the fit or of hardware; null where only a delay is known
  expected_from VARCHAR,            -- 'peer groups', 'fit', 'stagger', 'probe', 'hardware'
  excess_ns_per_step BIGINT,        -- time per step over the expected
  excess_low_ns BIGINT,             -- 95 % interval
  excess_high_ns BIGINT,            -- 95 % interval
  p_value DOUBLE,                   -- that the pattern is chance
  evidence VARCHAR                  -- JSON: stagger slopes and the like
);

-- Figures that cannot be: bandwidths above what the device's links carry.
CREATE TABLE contradiction (
  run VARCHAR NOT NULL,             -- run
  process_group VARCHAR,            -- group; null if unknown
  op VARCHAR NOT NULL,              -- operation
  calls INTEGER NOT NULL,           -- calls, whose bandwidths are taken back
  said_gbps DOUBLE NOT NULL,        -- the largest bus bandwidth that size and time give
  limit_gbps DOUBLE NOT NULL        -- what the device's links carry one way
);

-- Buckets of data-parallel gradients, as they were really formed.
CREATE TABLE param_bucket (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  step INTEGER NOT NULL,            -- step
  bucket INTEGER NOT NULL,          -- order of launch in the step
  bytes BIGINT,                     -- size
  ready_ns BIGINT,                  -- when the last gradient was there
  call_id BIGINT,                   -- its collective
  backward_pass INTEGER,            -- which backward pass of the recording launched it; null where none is seen
  early BOOLEAN                     -- reduced again before the optimizer's next step; null where no backward pass is seen
);

-- Bytes that collectives moved per step, by group and operation, against the theory of METRICS section 7.
CREATE TABLE traffic (
  run VARCHAR NOT NULL,             -- run
  process_group VARCHAR,            -- group
  op VARCHAR NOT NULL,              -- operation
  phase VARCHAR,                    -- forward backward optimizer other; null if unknown
  dtype VARCHAR,                    -- element type
  group_size INTEGER,               -- ranks in the group
  calls_per_step DOUBLE,            -- median over used steps and ranks
  bytes_per_step BIGINT,            -- sum of message sizes S per step and rank, median
  wire_bytes_per_step BIGINT,       -- bytes each rank sends for them: S times the bus factor
  largest_bytes BIGINT,             -- largest message
  smallest_bytes BIGINT,            -- smallest message
  transfer_ns_per_step BIGINT,      -- transfer time per step, median of the ranks' medians
  exposed_ns_per_step BIGINT        -- not under compute, likewise
);

-- Collectives that a step repeats or could do without.
CREATE TABLE redundant (
  run VARCHAR NOT NULL,             -- run
  kind VARCHAR NOT NULL,            -- 'barrier', 'tiny' (scalars), 'logged' (a barrier and a scalar), 'buffers' (DDP's, before forward), 'parameters' (broadcast beside their reduced gradients), 'gradients' (sharded ones gathered whole before the optimizer), 'weights' (gathered beside forward's gathers of the same), 'objects' (Python's, pickled; the span has no waiting), 'shown' and 'gathered' (values of ranks with whole models, behind and before the gradients), 'repeated-gather' (same parameters gathered again in a step)
  process_group VARCHAR,            -- group
  op VARCHAR NOT NULL,              -- operation
  bytes BIGINT,                     -- size of one call; null for barriers
  calls_per_step DOUBLE,            -- median over used steps
  exposed_ns_per_step BIGINT,       -- exposed time of these calls per step, median over ranks, waiting for stragglers left out
  wait_ns_per_step BIGINT,          -- the waiting in them
  span_ns_per_step BIGINT           -- on a host's timeline, of those with less than 1 ms of compute between them: from asking for each to asking for the next or its end
);

-- Gradient synchronisation against gradient accumulation, per step.
CREATE TABLE gradient_sync (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  step INTEGER NOT NULL,            -- step
  process_group VARCHAR,            -- group
  op VARCHAR NOT NULL,              -- 'all_reduce' or 'reduce_scatter'
  updates INTEGER,                  -- optimizer steps whose gradients were reduced in it: two of a GAN
  micro_batches INTEGER NOT NULL,   -- backward passes before one of them, the one with most reductions
  syncs INTEGER NOT NULL,           -- how often gradients were reduced before that one
  bytes BIGINT,                     -- message bytes reduced in the step
  early_bytes BIGINT,               -- of them those that were reduced again before the same optimizer step
  gathers INTEGER,                  -- how often the same parameters were gathered for one of them
  exposed_ns BIGINT                 -- exposed transfer of the reductions
);

-- Copies by which FSDP2 takes gathered parameters apart, on the device: its ranges, else its kernels.
CREATE TABLE parameter_copy (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  step INTEGER NOT NULL,            -- step
  copies INTEGER NOT NULL,          -- ranges, or kernels
  copies_ns BIGINT NOT NULL         -- their time
);

-- Stages of a pipeline.
CREATE TABLE pipeline_stage (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  stage INTEGER NOT NULL,           -- position in the pipeline, from 0
  stages INTEGER NOT NULL,          -- length of the pipeline
  micro_batches INTEGER,            -- messages each way per step over a boundary, and chunk
  chunks INTEGER,                   -- parts of the model on each stage: several where they are interleaved
  step_ns BIGINT NOT NULL,          -- median step
  compute_ns BIGINT NOT NULL,       -- compute per step, median
  bubble_ns BIGINT NOT NULL,        -- per step idle, or exposed waiting for a neighbour, also while a message of its own is on its way; median
  bubble_share DOUBLE NOT NULL,     -- bubble / step
  ideal_bubble_share DOUBLE,        -- (p-1)/(m*chunks+p-1) for equal stages
  imbalance_ns BIGINT,              -- compute over the mean of the stages per step
  pace DOUBLE,                      -- what kernels take that the other stages run too, over what they take there; null: not above the mean stage, or not comparable
  same_shapes BOOLEAN,              -- whether pace compares kernels of equal shapes; false: of equal names, as shapes were not recorded
  layers INTEGER,                   -- how often kernels that all stages run alike count per micro-batch; null: not all stages were read, or no such kernels
  layer_pace DOUBLE,                -- what these take per layer, over the median stage
  evened_ns BIGINT                  -- compute of the slowest stage where whole layers are split best
);

-- Balance of all_to_all (experts): how much the busiest rank receives over the mean, or multiplies.
CREATE TABLE expert_balance (
  run VARCHAR NOT NULL,             -- run
  process_group VARCHAR,            -- group
  calls INTEGER NOT NULL,           -- matched calls looked at
  imbalance DOUBLE,                 -- largest received / mean received, median over calls; of rows multiplied where sizes are not recorded
  busiest_rank INTEGER,             -- most often the busiest
  busiest_share DOUBLE,             -- share of calls in which it is
  excess_ns_per_step BIGINT         -- transfer over the one of even splits, per step
);

-- Stretches in which the device waits for the host, with what the host did.
CREATE TABLE host_gap (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  step INTEGER,                     -- step; null outside steps
  kind VARCHAR NOT NULL,            -- 'data-loading' 'garbage-collection' 'unused-parameter-scan' 'allocator' 'synchronisation' 'blocking-copy' 'barrier' (the host catches up after waiting there) 'graph-capture' 'loading' (first use) 'launch' 'pause' (the host did other work for 20 ms or more, or 5 ms under a name) 'paging' (it touched unified memory) 'graph' 'other'
  start_ns BIGINT NOT NULL,         -- start of the stretch
  end_ns BIGINT NOT NULL,           -- end of the stretch
  idle_ns BIGINT NOT NULL,          -- time of it in which the device did nothing
  host_ns BIGINT,                   -- of that, until the host launched what ends it; null where no launch is recorded
  name VARCHAR,                     -- the host's operation, as recorded
  event_id BIGINT,                  -- its event
  reads VARCHAR,                    -- of a synchronisation: the kernel that computed last before it
  moving_ns BIGINT,                 -- since the host began it, until the stretch: how long the device had no compute, only transfers; null without an event
  beside_ns BIGINT                  -- of data-loading, besides idle_ns: in which calls ran that the compute after them did not wait for
);

-- Copies and fills of each rank's device, per step.
CREATE TABLE memory_copy (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  step INTEGER NOT NULL,            -- step
  direction VARCHAR NOT NULL,       -- 'host-to-device' 'device-to-host' 'device-to-device' 'peer-to-peer' 'fill' 'unknown'
  memory VARCHAR NOT NULL,          -- the host's memory: 'pageable' 'pinned' 'managed' 'unknown'
  copies INTEGER NOT NULL,          -- how many
  tiny INTEGER NOT NULL,            -- of them 64 KiB or less
  bytes BIGINT NOT NULL,            -- sum of their sizes
  largest_bytes BIGINT NOT NULL,    -- the largest
  copy_ns BIGINT NOT NULL,          -- sum of their durations
  exposed_ns BIGINT NOT NULL,       -- under no compute and no communication; what copies share is split between them
  edge_ns BIGINT,                   -- of exposed_ns, before the first kernel or after the last of a trace without steps
  launched_by VARCHAR               -- the outermost operator that copies half of the bytes or more on the device; null: none, or unknown
);

-- Stretches before a device's work begins and after it ends: in no figure of a step, unless it is the only one.
CREATE TABLE edge_gap (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  edge VARCHAR NOT NULL,            -- 'leading' 'trailing'
  kind VARCHAR NOT NULL,            -- 'graph-capture' 'profiler-stop' 'synchronisation' 'loading' 'queued' 'data-loading' 'before-work' 'after-work'
  start_ns BIGINT NOT NULL,         -- start
  end_ns BIGINT NOT NULL            -- end
);

-- The same compute kernels beside communication and without it.
CREATE TABLE overlap_slowdown (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  kernels INTEGER NOT NULL,         -- kinds of kernels seen both ways
  calls_under INTEGER NOT NULL,     -- of them, calls mostly beside transfers
  with_shapes INTEGER,              -- of these calls, those whose operator's shapes were recorded
  slowdown DOUBLE NOT NULL,         -- time beside transfers / time alone, weighted by time
  slowdown_low DOUBLE,              -- 95 % interval over kinds
  slowdown_high DOUBLE,             -- 95 % interval over kinds
  cost_ns_per_step BIGINT NOT NULL, -- time that it adds per step to all compute
  compared_ns_per_step BIGINT NOT NULL  -- and to the kinds seen both ways
);

-- Compute that a setting or another kernel spares, per step: mean over used steps.
CREATE TABLE avoidable_compute (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  kind VARCHAR NOT NULL,            -- 'recomputed' (forward kernels again, in the backward pass) 'scores' (of attention, written and read) 'updates' (parameter by parameter) 'layouts' (of convolutions, changed and changed back) 'passes' (of an optimizer, operation by operation) 'pointwise' (small kernels in a row)
  kernels INTEGER NOT NULL,         -- how many
  ns BIGINT NOT NULL,               -- time that is spared
  rest_ns BIGINT,                   -- of scores: in the products beside them; of updates, passes: what fused ones take too; of pointwise: all that they take
  bare_share DOUBLE,                -- of these kernels' time, beside which nothing communicates
  operator VARCHAR,                 -- the operator that launches most of them; of passes: the optimizer's class
  checkpoint BOOLEAN                -- whether ranges of torch.utils.checkpoint were recorded
);

-- Whether streams share one queue to the device: in which order launched work started.
CREATE TABLE device_queue (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  waiting INTEGER NOT NULL,         -- kernels that waited, their stream free, right behind a launch on another stream
  in_order INTEGER NOT NULL,        -- of them that started with that launch's kernel, while it ran
  overtaken INTEGER NOT NULL,       -- kernels that something launched later overtook: none in one queue
  compute_stream BIGINT             -- stream with the most time of compute
);

-- The longest chain of dependent work through CPU threads, streams and ranks, in order of time.
CREATE TABLE critical_path (
  run VARCHAR NOT NULL,             -- run
  step INTEGER,                     -- step; null for the whole trace
  position INTEGER NOT NULL,        -- place in the chain, from 0
  rank INTEGER NOT NULL,            -- rank
  kind VARCHAR NOT NULL,            -- 'compute' 'comm' 'wait' 'memory' 'host' 'launch' 'idle'
  name VARCHAR,                     -- event's name
  event_id BIGINT,                  -- its event; null for idle, and for a host between operators
  lane BIGINT,                      -- thread (host, launch) or stream (the rest) it ran on; null if unknown
  start_ns BIGINT NOT NULL,         -- start
  end_ns BIGINT NOT NULL            -- end
);

-- Predicted steps under changed settings (whatif), so that rules can use them.
CREATE TABLE whatif (
  run VARCHAR NOT NULL,             -- run
  setting VARCHAR NOT NULL,         -- e.g. 'bucket_cap_mb'
  value VARCHAR NOT NULL,           -- e.g. '25'
  is_current BOOLEAN NOT NULL,      -- the setting the run had, as far as it can be told
  step_ns BIGINT NOT NULL,          -- predicted median step
  step_low_ns BIGINT,               -- 90 % interval
  step_high_ns BIGINT,              -- 90 % interval
  measured_step_ns BIGINT,          -- the traced step it starts from
  replayed_step_ns BIGINT,          -- the same step replayed unchanged: how good the replay is
  extrapolates BOOLEAN NOT NULL,    -- sizes beyond twice the largest seen
  gain_low_ns BIGINT,               -- 90 % interval of measured_step_ns - step_ns, in which the profiler's cost cancels
  gain_high_ns BIGINT,              -- 90 % interval
  inconclusive BOOLEAN                    -- it hangs on how calls' time parts into latency and bytes, which the trace does not tell
);

-- Fabric as logs, XML dumps or nsys tell it.
CREATE TABLE topology (
  run VARCHAR NOT NULL,             -- run
  kind VARCHAR NOT NULL,            -- 'node' 'gpu' 'nic' 'graph' 'ring' 'tree' 'channels' 'connection' 'version' 'env' 'net' 'warning' 'progress' ...
  rank INTEGER,                     -- rank it belongs to, if any
  host VARCHAR,                     -- host it belongs to, if any
  name VARCHAR,                     -- e.g. 'mlx5_0', 'NCCL_ALGO', 'ring 0'
  value VARCHAR,                    -- value as text or JSON
  source VARCHAR                    -- where it was read: file:line
);

-- Connections between ranks as NCCL reports them.
CREATE TABLE link (
  run VARCHAR NOT NULL,             -- run
  src INTEGER NOT NULL,             -- sending rank
  dst INTEGER NOT NULL,             -- receiving rank
  channel INTEGER,                  -- NCCL channel
  transport VARCHAR,                -- 'P2P/CUMEM', 'SHM', 'NET/IB/0/GDRDMA', 'NET/Socket/0' ...
  kind VARCHAR,                     -- 'p2p' 'shm' 'net-ib' 'net-socket' 'net-other'
  nic VARCHAR,                      -- NIC index or name
  gdr BOOLEAN,                      -- GPUDirect RDMA used; null if unknown
  ends_without_gdr INTEGER[],       -- its ranks whose own line has no GPUDirect RDMA
  ends_read INTEGER,                -- ends whose lines were read: 1 or 2
  communicator VARCHAR              -- communicator it belongs to (commId, or world), null if unknown
);

-- NCCL's printed choices and tuning tables.
CREATE TABLE nccl_choice (
  run VARCHAR NOT NULL,             -- run
  source VARCHAR NOT NULL,          -- 'table' (predicted time) or 'call' (a printed choice)
  op VARCHAR,                       -- all_reduce ...; null where the version does not print it
  bytes BIGINT,                     -- bytes as printed
  algorithm VARCHAR,                -- TREE RING COLLNET_DIRECT COLLNET_CHAIN NVLS NVLS_TREE PAT
  protocol VARCHAR,                 -- LL LL128 SIMPLE
  latency_us DOUBLE,                -- from a table
  bandwidth_gbps DOUBLE,            -- from a table; 0 = unavailable
  time_us DOUBLE,                   -- printed time, where the version prints it; median measured time from the Inspector
  channels INTEGER,                 -- channels used, where printed
  calls BIGINT,                     -- how often this line occurred
  ranks INTEGER                     -- size of the communicator that printed it; null if unknown
);

-- Microbenchmarks: nccl-tests, advisor probe.
CREATE TABLE bench (
  run VARCHAR NOT NULL,             -- run
  tool VARCHAR NOT NULL,            -- 'nccl-tests', 'probe', 'osu', 'ucc', 'torch', 'perftest', 'nvshmem', or 'inspector' (medians in the workload itself, no benchmark)
  source VARCHAR,                   -- its file, with #2 … for the further tables of one
  op VARCHAR NOT NULL,              -- all_reduce ...
  ranks INTEGER,                    -- number of ranks
  hosts VARCHAR[],                  -- its hosts; null where they are not all named
  device VARCHAR,                   -- the GPUs, as named; null where not, or of several kinds
  src INTEGER,                      -- sender of a pair (probe)
  dst INTEGER,                      -- receiver of a pair (probe)
  bytes BIGINT NOT NULL,            -- total size, as nccl-tests counts it
  dtype VARCHAR,                    -- element type
  in_place BOOLEAN,                 -- in place; null if it does not apply
  time_us DOUBLE,                   -- time
  algbw_gbps DOUBLE,                -- algorithm bandwidth
  busbw_gbps DOUBLE,                -- bus bandwidth
  wrong BIGINT,                     -- wrong elements; null if not checked
  apart INTEGER                     -- processes that measured each by itself, their rows in one table; null if one
);

-- One table of a benchmark: an operation over sizes, and what it should reach.
CREATE TABLE bench_curve (
  run VARCHAR NOT NULL,             -- run
  tool VARCHAR NOT NULL,            -- as in bench
  source VARCHAR,                   -- as in bench
  op VARCHAR NOT NULL,              -- operation
  ranks INTEGER,                    -- number of ranks
  hosts VARCHAR[],                  -- as in bench
  device VARCHAR,                   -- as in the hardware table; null if unknown
  sizes INTEGER NOT NULL,           -- sizes measured
  best_gbps DOUBLE NOT NULL,        -- the highest bus bandwidth
  best_bytes BIGINT NOT NULL,       -- the largest size that reaches it, within 1 %
  reach_gbps DOUBLE NOT NULL,       -- what it reaches, or would at larger sizes: bytes over time between the last ones
  largest_bytes BIGINT NOT NULL,    -- the largest size
  limit_gbps DOUBLE,                -- bus bandwidth that links or NICs allow by data sheet; null if unknown
  limit_by VARCHAR,                 -- 'links', 'links with NVLS' or 'NICs'
  limit_source VARCHAR,             -- where that figure is from
  small_us DOUBLE,                  -- median time of calls of 4 KiB or less, or of the smallest if only latency takes so long
  drop_bytes BIGINT,                -- the first size at which the bandwidth falls; null if none
  drop_gbps DOUBLE,                 -- there
  drop_from_gbps DOUBLE,            -- what a smaller size reached
  drop_until_bytes BIGINT,          -- the last size of the fall; null where it lasts to the largest
  in_place_ratio DOUBLE,            -- bandwidth in place / out of place, median of the large sizes; null if one is missing
  apart_ratio DOUBLE,               -- the same at the large size where the two differ most
  apart_bytes BIGINT,               -- that size
  wrong BIGINT,                     -- wrong elements; null if not checked
  wrong_bytes BIGINT,               -- the smallest size with some
  wrong_sizes INTEGER,              -- sizes with some
  apart INTEGER,                    -- as in bench
  like_gbps DOUBLE,                 -- the best of the tables of the same kind of run, at like_bytes
  like_bytes BIGINT,                -- the largest size that they have in common
  own_gbps DOUBLE,                  -- this table's there
  like_tables INTEGER               -- tables of the same kind of run, this one among them
);

-- Flight-recorder entries (hangs): one row per rank and recorded collective.
CREATE TABLE flight (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank that dumped
  process_group VARCHAR,            -- group
  seq BIGINT,                       -- sequence number: of collectives, or of sends and receives
  op VARCHAR,                       -- all_reduce ..., or 'send 0->1' with ranks in the group; null for counters
  state VARCHAR,                    -- scheduled started completed; last_enqueued last_started last_completed: the group's progress, in seq
  created_ns BIGINT,                -- when enqueued
  started_ns BIGINT,                -- when started, if known
  completed_ns BIGINT,              -- when completed, if known
  input_sizes VARCHAR,              -- JSON
  output_sizes VARCHAR,             -- JSON
  frames VARCHAR                    -- JSON: innermost stack frames
);

-- Calls of which only their length is known, by ranks without a timeline: of the flight recorder
-- (with TORCH_NCCL_ENABLE_TIMING=1) and NCCL's Inspector.
CREATE TABLE timed_call (
  run VARCHAR NOT NULL,             -- run
  rank INTEGER NOT NULL,            -- rank
  process_group VARCHAR,            -- group, or the Inspector's communicator
  seq BIGINT,                       -- sequence number of calls of this operation in the group
  op VARCHAR NOT NULL,              -- all_reduce ... send recv
  dur_ns BIGINT NOT NULL,           -- how long the rank's device was in it, waiting for the others included
  at_ns BIGINT                      -- when its host asked for it (flight recorder) or had it recorded (Inspector), since the epoch
);

-- Trials of a sweep.
CREATE TABLE trial (
  run VARCHAR NOT NULL,             -- sweep it belongs to
  trial INTEGER NOT NULL,           -- number
  settings VARCHAR NOT NULL,        -- JSON
  is_baseline BOOLEAN NOT NULL,     -- the unchanged workload
  outcome VARCHAR NOT NULL,         -- 'ok' 'crash' 'hang' 'oom' 'stopped early'
  origin VARCHAR NOT NULL,          -- 'measured', 'emulated' (its compute) or 'modelled'
  steps INTEGER,                    -- timed steps
  step_ns_median BIGINT,            -- median step
  step_ns_mad BIGINT,               -- median absolute deviation
  log VARCHAR                       -- path of its log
);

-- What a sweep came to.
CREATE TABLE sweep (
  run VARCHAR NOT NULL,             -- sweep it belongs to
  recommendation VARCHAR NOT NULL   -- JSON: recommendation.json
);

-- One rule's result on one run.
CREATE TABLE outcome (
  run VARCHAR NOT NULL,             -- run
  rule VARCHAR NOT NULL,            -- rule id
  outcome VARCHAR NOT NULL,         -- fired passed not-applicable error
  reason VARCHAR                    -- what is missing, or the error
);

-- One finding; findings.json has the whole of it.
CREATE TABLE finding (
  run VARCHAR NOT NULL,             -- run
  id VARCHAR NOT NULL,              -- anchor
  rule VARCHAR NOT NULL,            -- rule id
  severity VARCHAR NOT NULL,        -- critical warning info
  title VARCHAR NOT NULL,           -- one sentence
  savings_ns BIGINT,                -- recoverable time per step
  savings_low_ns BIGINT,            -- interval
  savings_high_ns BIGINT,           -- interval
  confidence VARCHAR NOT NULL,      -- measured replayed modelled rule-of-thumb
  json VARCHAR NOT NULL             -- the whole finding as JSON
);
