"""DDP, with accumulation, and ZeRO-1: the programs of their steps."""

from __future__ import annotations

from benchmarks.gpulab.emit import Emitter
from benchmarks.gpulab.job import Job, Layout
from benchmarks.gpulab.program import AUTOGRAD, MAIN

FIRST_BUCKET_BYTES = 1 << 20
"""torch.distributed._DEFAULT_FIRST_BUCKET_BYTES."""


def layout(job: Job) -> Layout:
    """The default group."""
    made = Layout()
    made.add("dp", "default_pg", [tuple(range(job.ranks))])
    return made


def tensors(job: Job) -> list[int]:
    """Elements of a layer's parameters in the order of their gradients (last first)."""
    h = job.hidden
    parts = [4 * h * h, 4 * h * h, h * h, 3 * h * h]
    return [size // job.tp // job.split for size in parts for _ in range(job.split)]


def buckets(job: Job) -> list[tuple[int, list[int]]]:
    """(layer whose backward completes it, elements of its tensors) as DDP forms them.

    A bucket closes when it reaches its cap, so it may exceed it; a tensor is never split. The
    first has a cap of 1 MiB (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment).
    """
    made: list[tuple[int, list[int]]] = []
    held: list[int] = []
    cap = min(FIRST_BUCKET_BYTES, job.bucket_mb * (1 << 20))
    for layer in reversed(range(job.layers)):
        sizes = tensors(job)
        if layer == 0 and job.tail_layer_bytes:
            sizes = [*sizes, job.tail_layer_bytes // job.grad_bytes]
        for elements in sizes:
            held.append(elements)
            if sum(held) * job.grad_bytes >= cap:
                made.append((layer, held))
                held, cap = [], job.bucket_mb * (1 << 20)
    if held:
        made.append((0, held))
    return made


def program(e: Emitter) -> None:
    """All steps of one rank."""
    job, out = e.job, e.program
    formed = buckets(job)
    parameters = sum(sum(sizes) for _, sizes in formed)
    if job.strategy == "zero1":
        parameters //= job.ranks
    gathers: list[int] = []
    for step in range(job.steps):
        out.begin(f"ProfilerStep#{step + 3}", "user_annotation")
        e.pause(step)
        e.loader(step)
        for micro in range(job.micro_batches):
            _forward(e, gathers)
            last = micro == job.micro_batches - 1
            sync = last or job.sync_every_micro_batch
            _backward(e, formed if sync else [], accumulate=job.micro_batches > 1)
            e.maybe_item("micro-batch")
        _after_backward(e, formed)
        if job.optimizer_wait:  # its step() holds the local step and the broadcasts
            out.begin("Optimizer.step#ZeroRedundancyOptimizer.step", "user_annotation")
        e.optimizer(parameters)
        if job.strategy == "zero1":
            gathers = _gather_parameters(e, formed)
        if job.optimizer_wait:
            out.end()
        e.maybe_item("step")
        e.checkpoint(step)
        out.end()
    out.synchronise(None, "cudaDeviceSynchronize")


def _forward(e: Emitter, gathers: list[int]) -> None:
    job, out = e.job, e.program
    out.begin("DistributedDataParallel.forward", "user_annotation")
    if job.broadcast_buffers:
        group = e.group("dp")
        out.op("aten::cat", [e.model.pointwise("CatArrayBatchedCopy", job.broadcast_buffers // 4)])
        event = e.collective("broadcast", group, job.broadcast_buffers // 4, "fp32")
        e.wait(event, group)
    for layer in range(job.layers):
        if layer < len(gathers):
            e.wait(gathers[layer], e.group("dp"))
        e.layer_forward()
        e.maybe_item("layer")
    out.end()
    out.op("aten::cross_entropy_loss", [e.model.pointwise("LogSoftMaxForward", e.model.tokens)])


def _backward(e: Emitter, formed: list[tuple[int, list[int]]], *, accumulate: bool) -> None:
    job, out = e.job, e.program
    out.thread(AUTOGRAD)
    group = e.group("dp")
    events = []
    manual = job.manual_gradients
    ready = list(formed) if not manual else []
    if job.unused_scan_ns and formed:
        out.begin("torch.distributed.ddp.reducer::search_unused_parameters")
        out.work(float(job.unused_scan_ns))
        out.end()
    for layer in reversed(range(job.layers)):
        for half in e.model.backward:
            e.backward_half(half)
        complete = [ready.pop(0) for _ in range(sum(at == layer for at, _ in ready))]
        events += _accumulate(e, accumulate, [sizes for _, sizes in complete])
    if job.unused_scan_ns and formed:  # the map of parameters that were used, after the last bucket
        count = job.layers * len(tensors(job))
        out.begin("aten::copy_")
        out.copy("HtoD", count * 4)
        out.end()
        out.begin("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
        events.append(e.collective("all_reduce", group, count, "int32"))
        out.end()
    for event in events:
        e.wait(event, group)
    out.thread(MAIN)


def _accumulate(e: Emitter, accumulate: bool, complete: list[list[int]]) -> list[int]:
    """AccumulateGrad of a layer's parameters; adds where a gradient is there already.

    The reducer's hook runs inside the node of the gradient that completes a bucket: real traces
    show c10d::allreduce_ there. The buckets of a layer are spread over its parameters. Returns
    the events of the reductions.
    """
    job, out = e.job, e.program
    events = []
    parameters = tensors(job)[: 4 * min(job.split, 4)]
    for i, elements in enumerate(parameters):
        out.begin("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
        out.begin("torch::autograd::AccumulateGrad")
        out.work(1_500)
        if accumulate:
            out.kernel(e.model.pointwise("CUDAFunctor_add<c10::BFloat16>", elements))
        out.end()
        last = i == len(parameters) - 1
        while complete and (last or len(complete) * (i + 1) >= len(parameters)):
            sizes = complete.pop(0)
            events.append(e.collective("all_reduce", e.group("dp"), sum(sizes), job.grad_dtype))
            if not last:
                break
        out.end()
    return events


def _after_backward(e: Emitter, formed: list[tuple[int, list[int]]]) -> None:
    """What scripts do between backward and the optimizer's step."""
    job, out = e.job, e.program
    group = e.group("dp")
    if job.manual_gradients:
        for _, sizes in formed:
            for elements in sizes:
                e.wait(e.collective("all_reduce", group, elements, job.grad_dtype), group)
                out.op("aten::div_", [e.model.pointwise("DivFunctor", elements)])
    for _ in range(job.scalar_reductions):
        e.wait(e.collective("all_reduce", group, 1, "fp32"), group)
    for _ in range(job.barriers):
        e.barrier(group)


def _gather_parameters(e: Emitter, formed: list[tuple[int, list[int]]]) -> list[int]:
    """New parameters after a sharded step; returns the gathers that forward waits for.

    ZeroRedundancyOptimizer: every rank broadcasts its shard, and all wait (``optimizer_wait``).
    Else the layers are gathered one by one, in the order in which forward needs them.
    """
    job = e.job
    group = e.group("dp")
    total = sum(sum(sizes) for _, sizes in formed)
    if job.optimizer_wait:
        shard = total // job.ranks
        for event in [e.collective("broadcast", group, shard) for _ in range(job.ranks)]:
            e.wait(event, group)
        return []
    return [e.collective("all_gather", group, job.layer_params) for _ in range(job.layers)]
