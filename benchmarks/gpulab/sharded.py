"""FSDP2 and FSDP1 (full shard) and HSDP: gathers before a layer, scatters after its backward."""

from __future__ import annotations

from benchmarks.gpulab.emit import Emitter
from benchmarks.gpulab.job import Job, Layout
from benchmarks.gpulab.program import AUTOGRAD, COMPUTE, MAIN

COPY_IN = 13
"""Stream of the copies into the gather's buffer."""


def layout(job: Job) -> Layout:
    """Full shard: the default group. HSDP: shards inside ``shard`` ranks, replicas across."""
    made = Layout()
    everyone = tuple(range(job.ranks))
    if job.strategy != "hsdp":
        made.add("shard", "default_pg", [everyone])
        return made
    made.add("world", "default_pg", [everyone])
    size = job.shard or job.per_host
    made.add("replicate", "mesh_dp_replicate", [everyone[i::size] for i in range(size)])
    made.add("shard", "mesh_dp_shard", [everyone[i : i + size] for i in range(0, job.ranks, size)])
    return made


def program(e: Emitter) -> None:
    """All steps of one rank."""
    job, out = e.job, e.program
    size = len(e.group("shard").ranks)
    run = _Run(e)
    for step in range(job.steps):
        out.begin(f"ProfilerStep#{step + 3}", "user_annotation")
        e.pause(step)
        e.loader(step)
        for micro in range(job.micro_batches):
            last = micro == job.micro_batches - 1
            run.forward(first=micro == 0)
            run.backward(reduce=last or job.sync_every_micro_batch, last=last)
            e.maybe_item("micro-batch")
        for _ in range(job.scalar_reductions):
            e.wait(e.collective("all_reduce", e.group("shard"), 1, "fp32"), e.group("shard"))
        for _ in range(job.barriers):
            e.barrier(e.group("shard"))
        e.optimizer(job.layer_params * job.layers // size)
        e.maybe_item("step")
        e.checkpoint(step)
        out.end()
    out.synchronise(None, "cudaDeviceSynchronize")


class _Run:
    """The state of the gathers: which layers are whole, and the events that order them."""

    def __init__(self, e: Emitter) -> None:
        self.e, self.job, self.out = e, e.job, e.program
        self.whole: set[int] = set()
        self.gathers: dict[int, int] = {}
        self.copied: int | None = None
        self.reduced: int | None = None

    @property
    def old(self) -> bool:
        """FSDP1."""
        return self.job.strategy == "fsdp1"

    def gather(self, layer: int, *, after_compute: bool = False) -> None:
        """Start a layer's all-gather, unless it is whole or under way."""
        if layer < 0 or layer >= self.job.layers or layer in self.whole or layer in self.gathers:
            return
        e, out = self.e, self.out
        name = (
            "FullyShardedDataParallel._pre_unshard"
            if self.old
            else (f"FSDP::all_gather (layers.{layer})")
        )
        out.begin(name, "user_annotation")
        if not self.old:
            out.begin("fsdp::all_gather_copy_in")
            if self.copied is not None:
                out.wait(self.copied, COPY_IN)
            if after_compute:
                out.wait(out.record(COMPUTE), COPY_IN)
            shard = self.job.layer_params // len(e.group("shard").ranks)
            kernel = e.model.pointwise("FillFunctor<c10::BFloat16>", shard, 2)
            kernel.matters = False
            out.kernel(kernel, COPY_IN)
            out.end()
            ready: int | None = out.record(COPY_IN)
        else:
            ready = out.record(COMPUTE) if after_compute else self.copied
        group = e.group("shard")
        if ready is not None and self.job.overlap:
            out.wait(ready, group.stream)
        self.gathers[layer] = e.collective(
            "all_gather", group, self.job.layer_params, after=after_compute
        )
        out.end()

    def unshard(self, layer: int) -> None:
        """Wait for the gather and copy the parameters out."""
        if layer in self.whole:
            return
        e, out = self.e, self.out
        self.gather(layer, after_compute=not self.job.prefetch)
        event = self.gathers.pop(layer)
        name = (
            "FullyShardedDataParallel._post_unshard"
            if self.old
            else (f"FSDP::all_gather_copy_out (layers.{layer})")
        )
        out.begin(name, "user_annotation")
        e.wait(event, e.group("shard"))
        if not self.old:
            kernel = e.model.pointwise("CatArrayBatchedCopy", self.job.layer_params, 2)
            out.op("fsdp::split_with_sizes_copy", [kernel], 12_000)
        self.copied = out.record(COMPUTE)
        out.end()
        self.whole.add(layer)

    def reduce(self, layer: int) -> None:
        """Reduce-scatter a layer's gradients; HSDP then sums them over the replicas."""
        e, out, job = self.e, self.out, self.job
        out.begin(
            "FullyShardedDataParallel._post_backward_hook" if self.old
            else f"FSDP::post_backward_reduce (layers.{layer})", "user_annotation",
        )  # fmt: skip
        if not self.old:
            kernel = e.model.pointwise("CatArrayBatchedCopy", job.layer_params, 2)
            out.op("fsdp::chunk_cat", [kernel], 10_000)
        group = e.group("shard")
        event = e.collective("reduce_scatter", group, job.layer_params, job.grad_dtype)
        if job.strategy == "hsdp":
            replicas = e.group("replicate")
            out.wait(event, replicas.stream)
            event = e.collective(
                "all_reduce", replicas, job.layer_params // len(group.ranks), job.grad_dtype,
                after=not job.overlap,
            )  # fmt: skip
        self.reduced = event
        out.end()

    def forward(self, *, first: bool) -> None:
        """All layers; a layer's gather runs beside the layer before it."""
        e, job, out = self.e, self.job, self.out
        if job.regather_per_micro_batch or first:
            self.whole.clear()
        root = "FullyShardedDataParallel.forward" if self.old else "FSDP::root_pre_forward"
        out.begin(root, "user_annotation")
        if first:
            # The streams that gather wait for the optimizer (torch.distributed.fsdp
            # _runtime_utils._wait_for_computation_stream; fully_shard FSDPState._root_pre_forward).
            self.copied = out.record(COMPUTE)
        if not self.old:
            out.end()
        for layer in range(job.layers):
            out.begin(
                "FullyShardedDataParallel._pre_forward" if self.old
                else f"FSDP::pre_forward (layers.{layer})", "user_annotation",
            )  # fmt: skip
            self.unshard(layer)
            out.end()
            e.layer_forward()
            if job.reshard_after_forward and layer != job.layers - 1 and self.drops:
                self.whole.discard(layer)
            e.maybe_item("layer")
        if self.old:
            out.end()
        loss = e.model.pointwise("LogSoftMaxForward", e.model.tokens)
        out.op("aten::cross_entropy_loss", [loss])

    @property
    def drops(self) -> bool:
        """Whether parameters are freed inside the step."""
        return self.job.micro_batches == 1 or self.job.regather_per_micro_batch

    def backward(self, *, reduce: bool, last: bool) -> None:
        """Layers in reverse; the next one's gather is asked for before a layer's own kernels."""
        e, job, out = self.e, self.job, self.out
        out.thread(AUTOGRAD)
        for layer in reversed(range(job.layers)):
            if not self.old:
                out.begin(f"FSDP::pre_backward (layers.{layer})", "user_annotation")
            if job.prefetch:
                self.unshard(layer)
                if not self.old:
                    out.begin(f"FSDP::backward_prefetch for layers.{layer - 1}", "user_annotation")
                self.gather(layer - 1)
                if not self.old:
                    out.end()
            else:  # asked for late: behind the last layer's reduce-scatter on NCCL's stream
                self.unshard(layer)
            if not self.old:
                out.end()
            for half in e.model.backward:
                e.backward_half(half)
            if reduce:
                self.reduce(layer)
            if self.drops or last:
                self.whole.discard(layer)
        if self.reduced is not None and reduce:
            e.wait(self.reduced, e.group("shard"))
        out.thread(MAIN)
