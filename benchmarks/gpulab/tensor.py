"""Tensor parallelism inside a replica, with or without sequence parallelism, beside data
parallelism: activations are summed after each half of a layer, gradients over the replicas."""

from __future__ import annotations

from benchmarks.gpulab.emit import Emitter
from benchmarks.gpulab.job import Job, Layout
from benchmarks.gpulab.model import Step
from benchmarks.gpulab.program import AUTOGRAD, MAIN


def layout(job: Job) -> Layout:
    """TP groups of neighbours (or of ranks ``tp_stride`` apart), DP groups across them."""
    made = Layout()
    made.add("world", "default_pg", [tuple(range(job.ranks))])
    if job.tp_stride == 1:
        tp = [tuple(range(i, i + job.tp)) for i in range(0, job.ranks, job.tp)]
        dp = [tuple(range(i, job.ranks, job.tp)) for i in range(job.tp)]
    else:
        reach = job.tp * job.tp_stride
        tp = [
            tuple(block + i + j * job.tp_stride for j in range(job.tp))
            for block in range(0, job.ranks, reach)
            for i in range(job.tp_stride)
        ]
        dp = [tuple(group[j] for group in tp) for j in range(job.tp)]
    made.add("dp", "mesh_dp", dp)
    made.add("tp", "mesh_tp", tp)
    return made


def program(e: Emitter) -> None:
    """All steps of one rank."""
    job, out = e.job, e.program
    for step in range(job.steps):
        out.begin(f"ProfilerStep#{step + 3}", "user_annotation")
        e.pause(step)
        e.loader(step)
        for micro in range(job.micro_batches):
            _forward(e)
            last = micro == job.micro_batches - 1
            _backward(e, reduce=last or job.sync_every_micro_batch)
            e.maybe_item("micro-batch")
        for _ in range(job.scalar_reductions):
            e.wait(e.collective("all_reduce", e.group("tp"), 1, "fp32"), e.group("tp"))
        for _ in range(job.barriers):
            e.barrier(e.group("world"))
        e.optimizer(job.layer_params * job.layers)
        e.maybe_item("step")
        e.checkpoint(step)
        out.end()
    out.synchronise(None, "cudaDeviceSynchronize")


def _sum(e: Emitter) -> None:
    """Activations over the TP group; the next operator waits for it."""
    elements = e.model.tokens * e.job.hidden
    group = e.group("tp")
    if e.job.transport in ("symmetric", "custom"):
        e.direct("all_reduce", group, elements)
    else:
        e.wait(e.collective("all_reduce", group, elements), group)


def _gather(e: Emitter) -> None:
    group = e.group("tp")
    e.wait(e.collective("all_gather", group, e.model.tokens * e.job.hidden), group)


def _scatter(e: Emitter) -> None:
    group = e.group("tp")
    e.wait(e.collective("reduce_scatter", group, e.model.tokens * e.job.hidden), group)


def _half(e: Emitter, steps: list[Step], *, backward: bool) -> None:
    sequence = e.job.sequence_parallel
    if sequence:
        _gather(e)
    (e.backward_half if backward else e.forward_half)(steps)
    if sequence:
        _scatter(e)
    else:
        _sum(e)


def _forward(e: Emitter) -> None:
    for _ in range(e.job.layers):
        for half in e.model.forward:
            _half(e, half, backward=False)
        e.maybe_item("layer")
    loss = e.model.pointwise("LogSoftMaxForward", e.model.tokens)
    e.program.op("aten::cross_entropy_loss", [loss])


def _backward(e: Emitter, *, reduce: bool) -> None:
    job, out = e.job, e.program
    out.thread(AUTOGRAD)
    group = e.group("dp")
    events = []
    for _ in range(job.layers):
        for half in e.model.backward:
            _half(e, half, backward=True)
        if reduce and len(group.ranks) > 1:
            events.append(e.reduce_gradient(group, job.layer_params))
    for event in events:
        e.wait(event, group)
    out.thread(MAIN)
