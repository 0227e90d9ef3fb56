"""Interleaved 1F1B: a stage holds several chunks of layers and runs micro-batches through them in
the order of Megatron-LM (megatron/core/pipeline_parallel/schedules.py, interleaved schedule).

Messages to each neighbour have a stream of their own per direction, as pairs of ranks have their
own communicators when calls are not batched; only receivers wait.
"""

from __future__ import annotations

from benchmarks.gpulab.emit import Emitter
from benchmarks.gpulab.job import Job
from benchmarks.gpulab.program import AUTOGRAD, MAIN


def stage_of(job: Job, rank: int) -> int:
    """The stage of a rank."""
    return rank // (job.ranks // job.pp)


class Interleaved:
    """One rank's schedule."""

    def __init__(self, e: Emitter) -> None:
        self.e, self.job, self.out = e, e.job, e.program
        job = e.job
        self.stage, self.pp, self.chunks = stage_of(job, e.rank), job.pp, job.interleave
        group = e.group("pp").ranks
        self.next, self.before = group[(self.stage + 1) % job.pp], group[self.stage - 1]
        self.size = e.model.tokens * job.hidden * job.element_bytes
        self.layers = max(1, job.layers // (job.pp * job.interleave))
        self.factor = dict(job.layer_share).get(self.stage, 1.0)

    def order(self, *, backward: bool) -> list[int]:
        """Chunks in turn: ``pp`` micro-batches through each, then the next ones."""
        chunks = range(self.chunks)
        turn = [chunk for chunk in (reversed(chunks) if backward else chunks)
                for _ in range(self.pp)]  # fmt: skip
        return turn * (self.job.micro_batches // self.pp)

    def schedule(self) -> None:
        """One step."""
        forward, backward = self.order(backward=False), self.order(backward=True)
        total = len(forward)
        ahead = min(total, (self.pp - self.stage - 1) * 2 + (self.chunks - 1) * self.pp)
        for i in range(total + ahead):
            if i < total:
                self.forward(forward[i])
            if i >= ahead:
                self.backward(backward[i - ahead], last=i - ahead == total - 1)

    def forward(self, chunk: int) -> None:
        """One micro-batch through one chunk."""
        if (self.stage, chunk) != (0, 0):
            self.talk(self.before, self.e.rank, 1)
        for _ in range(self.layers):
            self.e.layer_forward(self.factor)
        if (self.stage, chunk) != (self.pp - 1, self.chunks - 1):
            self.talk(self.e.rank, self.next, 2)

    def backward(self, chunk: int, *, last: bool) -> None:
        """Its gradients back; with the last of all they go over the replicas."""
        e, job = self.e, self.job
        if (self.stage, chunk) != (self.pp - 1, self.chunks - 1):
            self.talk(self.next, e.rank, 3)
        self.out.thread(AUTOGRAD)
        for _ in range(self.layers):
            for half in e.model.backward:
                e.backward_half(e.scaled(half, self.factor))
        self.out.thread(MAIN)
        if (self.stage, chunk) != (0, 0):
            self.talk(e.rank, self.before, 4)
        group = e.group("dp")
        if last and len(group.ranks) > 1:
            size = job.layer_params * job.layers // job.pp
            e.wait(e.collective("all_reduce", group, size, job.grad_dtype), group)

    def talk(self, source: int, target: int, shift: int) -> None:
        """A message; the receiver's compute waits for it."""
        group = self.e.group("pp")
        done = self.e.peers(group, [(source, target, self.size)], shift=shift)
        if target == self.e.rank:
            self.e.wait(done, group)
