"""What parsing one line gives: small records, not yet tied to ranks."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of ``topology`` to be. ``per`` says whether it holds for a rank, a host or a run.

    ``rank`` is the global rank where the line itself names it, ``started_as`` the one that its
    launcher gave the process: it holds where no communicator of the process is known.
    """

    kind: str
    name: str
    value: Any
    per: str = "host"
    rank: int | None = None
    started_as: int | None = None


@dataclass(frozen=True, slots=True)
class CommLine:
    """A line that ties its thread to a communicator (``… rank r nranks n …``)."""

    pointer: str
    rank: int
    ranks: int
    comm_id: str | None = None
    bus_id: str | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None
    nodes: int | None = None
    begins: bool = False
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection between two ranks of a communicator, as its sender or receiver prints it."""

    src: int
    dst: int
    channel: int
    transport: str
    kind: str
    nic_index: int | None
    gdr: bool | None
    side: str
    src_gpu: str | None = None
    dst_gpu: str | None = None
    """What stands in brackets behind the rank: the bus id, in later releases the CUDA device."""

    @property
    def local_rank(self) -> int:
        """The end that printed it, as a rank of the communicator."""
        return self.dst if self.side == "receive" else self.src


@dataclass(frozen=True, slots=True)
class RingOrder:
    """``Channel 00/24 : 0 1 2 …``: rank 0's view; NCCL cuts it after 20 ranks."""

    channel: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RingStep:
    """``Ring 00 : 7 -> 0 -> 1``: one rank's neighbours."""

    channel: int
    previous: int
    rank: int
    following: int


@dataclass(frozen=True, slots=True)
class TuningCell:
    """One cell of a tuning table; 0 bandwidth means that NCCL will not use it."""

    op: str
    algorithm: str
    protocol: str
    latency_us: float
    bandwidth_gbps: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A printed choice; ``op`` is None where the version does not print it (2.21, 2.22)."""

    op: str | None
    size_bytes: int
    algorithm: str
    protocol: str
    time_us: float | None
    channels: int | None


Parsed = Fact | CommLine | Connection | RingOrder | RingStep | TuningCell | Choice
