"""What is simulated: one training job, as data. A fault is another job; nothing else changes.

Lengths of time are ns, sizes bytes, rates bytes per ns. Per-rank and per-link changes are tuples
of pairs, so that a job can be compared, hashed and written down.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.gpulab.hardware import Hardware, hardware

Link = tuple[str, int, int]
"""('nic-tx' | 'nic-rx', host, nic), ('nvlink', rank, next rank), ('nvlink-out' | 'nvlink-in',
rank, 0): a directed piece of the fabric. -1 as the second number means all NICs of the host."""


@dataclass(frozen=True)
class Job:
    """One job. The defaults are a healthy DDP job of 8 layers on one host."""

    strategy: str = "ddp"
    machine: str = "dgx-a100"
    hosts: int = 1
    per_host: int = 4
    seed: int = 0
    # Model and batch.
    layers: int = 8
    hidden: int = 2048
    tokens: int = 4096
    """Per micro-batch and rank."""
    split: int = 1
    """Tensors that each weight matrix consists of (many small ones where a script has them)."""
    micro_batches: int = 1
    steps: int = 5
    warmup: int = 1
    dtype: str = "bf16"
    grad_dtype: str = "bf16"
    # Parallel layout.
    tp: int = 1
    pp: int = 1
    ep: int = 1
    interleave: int = 1
    shard: int = 0
    """Ranks of a shard group of hsdp; 0: the ranks of one host."""
    tp_stride: int = 1
    """Distance of neighbouring ranks of a TP group: per_host when it is laid across hosts."""
    # How the job is written: the healthy value first.
    bucket_mb: float = 25.0
    sync_every_micro_batch: bool = False
    regather_per_micro_batch: bool = False
    reshard_after_forward: bool = True
    prefetch: bool = True
    overlap: bool = True
    max_connections: int = 32
    blocking_every: str = ""
    """'' | 'operator' | 'half' | 'layer' | 'micro-batch' | 'step': .item() after each."""
    barriers: int = 0
    scalar_reductions: int = 0
    manual_gradients: bool = False
    """Gradients reduced one by one by hand after backward."""
    broadcast_buffers: int = 0
    """Bytes of module buffers that DDP broadcasts each step."""
    tail_layer_bytes: int = 0
    """A large first layer (embedding) whose bucket is ready last."""
    copies_bytes: int = 0
    """Pageable host-to-device copies in each step, not hidden."""
    compile: str = ""
    """'' | 'inductor' | 'graph'."""
    sequence_parallel: bool = False
    transport: str = "nccl"
    """'nccl' | 'deepep' | 'symmetric' | 'custom' | 'copies' (NCCL's copy-engine gathers)."""
    # What hardware and host do to it.
    compute_factor: tuple[tuple[int, float], ...] = ()
    """rank -> how many times as long its kernels run."""
    throttle_period_ns: int = 0
    """They do in the first third of each such period only; 0: always."""
    work_factor: tuple[tuple[int, float], ...] = ()
    """rank -> how many times the tokens it has."""
    layer_share: tuple[tuple[int, float], ...] = ()
    """pipeline stage -> how many times the layers' work."""
    expert_skew: tuple[tuple[int, float], ...] = ()
    """rank -> how many times the tokens its expert gets."""
    host_factor: tuple[tuple[int, float], ...] = ()
    """rank -> how many times as long host work and launches take."""
    link_factor: tuple[tuple[Link, float], ...] = ()
    """link -> share of its rate that is left."""
    link_latency_ns: tuple[tuple[int, int], ...] = ()
    """host -> added latency of each crossing."""
    network_noise: float = 0.02
    """Relative spread of transfers, call by call."""
    loader_ns: tuple[tuple[int, int], ...] = ()
    """rank (-1: all) -> wait in next(loader) each ``loader_every`` steps."""
    loader_every: int = 1
    host_ns: int = 0
    """Host work between steps that is in no range (Python of the script)."""
    pause_ns: int = 0
    pause_every: int = 1
    """One rank, in turn, or all of them stop for so long (garbage collection) at these steps."""
    pause_all: bool = False
    checkpoint_ns: int = 0
    checkpoint_every: int = 0
    checkpoint_rank: int = 0
    length_spread: float = 0.0
    """Relative spread of sequence lengths per rank and step."""
    jitter: float = 0.02
    contention: float = 0.12
    """How much longer compute runs beside a transfer."""
    optimizer_wait: bool = False
    unused_scan_ns: int = 0
    # Clocks and recording.
    clock_ns: tuple[int, ...] = ()
    """Offset per host."""
    drift_ppm: tuple[float, ...] = ()
    torch: str = "2.7"
    nccl: str = "2.26.2"
    metadata: bool = True
    """Whether record_param_comms and the kernels carry c10d's arguments (from torch 2.2 on)."""
    names_in_files: bool = True
    """Files are named HOST_PID.TIME.pt.trace.json.gz as tensorboard_trace_handler does."""
    phase_ranges: bool = False
    """The script marks ## forward ## and so on itself."""

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.hosts * self.per_host

    @property
    def hw(self) -> Hardware:
        """The machine."""
        return hardware(self.machine)

    def host_of(self, rank: int) -> int:
        """The host of a rank."""
        return rank // self.per_host

    def factor(self, table: str, rank: int) -> float:
        """A per-rank factor, 1 where none is given; -1 stands for all ranks."""
        given: dict[int, float] = dict(getattr(self, table))
        return given.get(rank, given.get(-1, 1.0))

    def nic_of(self, rank: int) -> int:
        """The NIC that a rank's GPU uses."""
        return self.hw.nic_of(rank % self.per_host)

    @property
    def element_bytes(self) -> int:
        """Of compute."""
        return 2 if self.dtype == "bf16" else 4

    @property
    def grad_bytes(self) -> int:
        """Of a gradient element as it is reduced."""
        return 2 if self.grad_dtype == "bf16" else 4

    @property
    def layer_params(self) -> int:
        """Parameters of one transformer layer (12 h^2) on one TP rank."""
        return 12 * self.hidden * self.hidden // self.tp


@dataclass(frozen=True)
class Group:
    """A process group as c10d names it."""

    name: str
    description: str
    ranks: tuple[int, ...]
    stream: int = 0
    """The device stream of its NCCL kernels."""


@dataclass
class Layout:
    """Groups of a job; ``of[dimension][rank]`` is the rank's group in it."""

    groups: list[Group] = field(default_factory=list)
    of: dict[str, dict[int, Group]] = field(default_factory=dict)

    def add(self, dimension: str, description: str, members: list[tuple[int, ...]]) -> None:
        """Make the groups of one dimension; every rank is in exactly one."""
        table = self.of.setdefault(dimension, {})
        stream = 20 + 4 * len(self.of)
        for ranks in members:
            group = Group(str(len(self.groups)), description, ranks, stream)
            self.groups.append(group)
            for rank in ranks:
                table[rank] = group
