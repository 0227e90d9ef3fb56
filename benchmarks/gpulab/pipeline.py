"""Pipeline parallelism, 1F1B, beside data parallelism: activations to the next stage, gradients
back, in the order of Megatron-LM's schedule (megatron/core/pipeline_parallel/schedules.py).

With ``interleave`` > 1 a stage holds several chunks of layers and runs them in turn."""

from __future__ import annotations

from benchmarks.gpulab.emit import Emitter
from benchmarks.gpulab.interleaved import Interleaved, stage_of
from benchmarks.gpulab.job import Job, Layout
from benchmarks.gpulab.program import AUTOGRAD, MAIN


def layout(job: Job) -> Layout:
    """Stages of neighbouring ranks; the ranks of a stage are replicas."""
    made = Layout()
    everyone = tuple(range(job.ranks))
    replicas = job.ranks // job.pp
    made.add("world", "default_pg", [everyone])
    made.add("pp", "mesh_pp", [everyone[i::replicas] for i in range(replicas)])
    made.add("dp", "mesh_dp", [
        everyone[i : i + replicas] for i in range(0, job.ranks, replicas)
    ])  # fmt: skip
    return made


def program(e: Emitter) -> None:
    """All steps of one rank."""
    job, out = e.job, e.program
    run = Interleaved(e) if job.interleave > 1 else _Stage(e)
    for step in range(job.steps):
        out.begin(f"ProfilerStep#{step + 3}", "user_annotation")
        e.pause(step)
        e.loader(step)
        run.schedule()
        for _ in range(job.scalar_reductions):
            e.wait(e.collective("all_reduce", e.group("world"), 1, "fp32"), e.group("world"))
        for _ in range(job.barriers):
            e.barrier(e.group("world"))
        e.optimizer(job.layer_params * job.layers // job.pp)
        e.maybe_item("step")
        e.checkpoint(step)
        out.end()
    out.synchronise(None, "cudaDeviceSynchronize")


class _Stage:
    def __init__(self, e: Emitter) -> None:
        self.e, self.job, self.out = e, e.job, e.program
        self.stage = stage_of(e.job, e.rank)
        self.first, self.last = self.stage == 0, self.stage == e.job.pp - 1
        replicas = e.job.ranks // e.job.pp
        self.before, self.after = e.rank - replicas, e.rank + replicas
        self.size = e.model.tokens * e.job.hidden * e.job.element_bytes
        self.factor = dict(e.job.layer_share).get(self.stage, 1.0)
        self.layers = e.job.layers // e.job.pp

    def schedule(self) -> None:
        """One step: warm-up forwards, then one forward and one backward in turn, then the rest."""
        count = self.job.micro_batches
        ahead = min(self.job.pp - self.stage - 1, count)
        for _ in range(ahead):
            self.talk(receive_forward=True)
            self.forward()
            self.talk(send_forward=True)
        steady = count - ahead
        if steady:
            self.talk(receive_forward=True)
        for i in range(steady):
            self.forward()
            self.talk(send_forward=True, receive_backward=True)
            self.backward(last=ahead == 0 and i == steady - 1)
            more = i < steady - 1
            self.talk(send_backward=True, receive_forward=more)
        for i in range(ahead):
            self.talk(receive_backward=True)
            self.backward(last=i == ahead - 1)
            self.talk(send_backward=True)

    def talk(
        self,
        *,
        send_forward: bool = False,
        receive_forward: bool = False,
        send_backward: bool = False,
        receive_backward: bool = False,
    ) -> None:
        """One batch of messages to neighbours; compute waits for it."""
        me = self.e.rank
        parts = []
        if send_forward and not self.last:
            parts.append((me, self.after, self.size))
        if receive_backward and not self.last:
            parts.append((self.after, me, self.size))
        if send_backward and not self.first:
            parts.append((me, self.before, self.size))
        if receive_forward and not self.first:
            parts.append((self.before, me, self.size))
        if parts:
            group = self.e.group("pp")
            self.e.wait(self.e.peers(group, parts), group)

    def forward(self) -> None:
        """A micro-batch through the stage's layers."""
        for _ in range(self.layers):
            self.e.layer_forward(self.factor)
        if self.last:
            loss = self.e.model.pointwise("LogSoftMaxForward", self.e.model.tokens)
            self.out.op("aten::cross_entropy_loss", [loss])
        self.e.maybe_item("micro-batch")

    def backward(self, *, last: bool) -> None:
        """Its gradients; with the last micro-batch they go over the replicas."""
        e, job, out = self.e, self.job, self.out
        out.thread(AUTOGRAD)
        group = e.group("dp")
        events = []
        for _ in range(self.layers):
            for half in e.model.backward:
                e.backward_half(e.scaled(half, self.factor))
            if (last or job.sync_every_micro_batch) and len(group.ranks) > 1:
                events.append(e.reduce_gradient(group, job.layer_params))
        for event in events:
            e.wait(event, group)
        out.thread(MAIN)
