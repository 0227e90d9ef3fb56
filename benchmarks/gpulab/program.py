"""What one rank's host does, as a list of instructions, and the words to write it with.

The host runs one instruction after another (during backward the autograd thread runs and the main
thread waits, so one at a time is what happens). Device work is put on streams, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Instructions: (opcode, ...).
BEGIN, END, WORK, KERNEL, CALL, RECORD, WAIT, SYNC, COPY, THREAD, GRAPH, API = range(12)

MAIN, AUTOGRAD = 0, 1
_HOOKED = {
    "FSDP::": "RegisterPostBackwardFunctionBackward",
    "FullyShardedDataParallel": "torch::autograd::AccumulateGrad",
}
"""The nodes in which FSDP2 and FSDP1 run their hooks; other functions have nodes of their own."""
NODE = "autograd::engine::evaluate_function"
COMPUTE = 7
"""The default stream as CUPTI numbers it."""


@dataclass(eq=False)
class Call:
    """One rank's part of a collective. ``key`` is the same on all ranks of one operation."""

    key: tuple[Any, ...]
    op: str
    ranks: tuple[int, ...]
    total: int
    """Bytes as nccl-tests counts them."""
    kind: str = ""
    """'' for NCCL, else the transport."""
    sends: dict[tuple[int, int], int] | None = None
    """Bytes to each peer of all-to-all and send/recv."""


@dataclass(eq=False, slots=True)
class Kernel:
    """Device work of a launch: ``ns`` alone on a healthy device."""

    name: str
    ns: float
    grid: tuple[int, int, int] = (256, 1, 1)
    block: tuple[int, int, int] = (256, 1, 1)
    matters: bool = True
    """Whether it is slowed by a transfer beside it and slows others: no tiny copies."""
    scales: bool = True
    """Whether a throttled device makes it longer."""
    args: str = ""


@dataclass(eq=False)
class Program:
    """Instructions of one rank, with counters that name events and collectives."""

    rank: int
    code: list[tuple[Any, ...]] = field(default_factory=list)
    events: int = 0
    sequence: dict[str, int] = field(default_factory=dict)
    depth: int = 0
    on: int = MAIN
    in_hook: bool = False

    def begin(self, name: str, category: str = "cpu_op", args: str = "") -> None:
        """Open a host range; ``args`` is JSON text that starts with a comma.

        Hooks of autograd run inside the node that they belong to: real traces show DDP's
        c10d::allreduce_ inside that of AccumulateGrad, and FSDP2's ranges inside its own node.
        """
        hook = self.on == AUTOGRAD and not self.depth and name != "record_param_comms"
        if hook and not name.startswith(NODE):
            node = "torch::autograd::CppNode"
            for prefix, hooked in _HOOKED.items():
                if name.startswith(prefix):
                    node = hooked
            self.code.append((BEGIN, f"{NODE}: {node}", "cpu_op", ""))
            self.in_hook = True
            self.depth += 1
        self.depth += 1
        self.code.append((BEGIN, name, category, args))

    def end(self) -> None:
        """Close the innermost range."""
        self.code.append((END,))
        self.depth -= 1
        if self.in_hook and self.depth == 1:
            self.in_hook = False
            self.depth = 0
            self.code.append((END,))

    def work(self, ns: float) -> None:
        """Keep the host busy."""
        self.code.append((WORK, ns))

    def op(self, name: str, kernels: list[Kernel], ns: float = 6_000, args: str = "") -> None:
        """An operator that takes ``ns`` of the host besides launching its kernels."""
        self.code.append((BEGIN, name, "cpu_op", args))
        self.code.append((WORK, ns))
        for kernel in kernels:
            self.code.append((KERNEL, COMPUTE, kernel))
        self.code.append((END,))

    def kernel(self, kernel: Kernel, stream: int = COMPUTE) -> None:
        """Launch one kernel."""
        self.code.append((KERNEL, stream, kernel))

    def graph(self, kernels: list[Kernel], stream: int = COMPUTE) -> None:
        """Replay a CUDA graph."""
        self.code.append((GRAPH, stream, kernels))

    def call(self, stream: int, kernel: Kernel, calls: list[Call]) -> None:
        """Launch a communication kernel that ends when all its calls have."""
        self.code.append((CALL, stream, kernel, calls))

    def record(self, stream: int = COMPUTE) -> int:
        """cudaEventRecord; the event's number is for :meth:`wait`."""
        self.events += 1
        self.code.append((RECORD, stream, self.events))
        return self.events

    def wait(self, event: int, stream: int = COMPUTE) -> None:
        """cudaStreamWaitEvent."""
        self.code.append((WAIT, stream, event))

    def synchronise(self, stream: int | None = COMPUTE, api: str = "cudaStreamSynchronize") -> None:
        """Block the host until a stream (None: the device) has nothing left."""
        self.code.append((SYNC, stream, api))

    def copy(self, kind: str, size: int, stream: int = COMPUTE, *, pinned: bool = True) -> None:
        """cudaMemcpyAsync; ``kind``: HtoD, DtoH or DtoD. From pageable memory the host waits."""
        self.code.append((COPY, stream, kind, size, pinned))

    def api(self, name: str) -> None:
        """A runtime call that does nothing that matters."""
        self.code.append((API, name))

    def thread(self, thread: int) -> None:
        """Go on as another host thread."""
        self.on = thread
        self.depth = 0
        self.code.append((THREAD, thread))

    def next_in(self, group: str) -> int:
        """Number of the next collective in a group, from 0."""
        number = self.sequence.get(group, 0)
        self.sequence[group] = number + 1
        return number
