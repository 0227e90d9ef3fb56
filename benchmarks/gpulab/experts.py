"""Mixture of experts: tokens go to the ranks of their experts and back, in every layer, over NCCL's
all-to-all or DeepEP's kernels; dense gradients are reduced over all ranks."""

from __future__ import annotations

from benchmarks.gpulab.emit import Emitter
from benchmarks.gpulab.job import Job, Layout
from benchmarks.gpulab.program import AUTOGRAD, MAIN


def layout(job: Job) -> Layout:
    """Expert groups of ``ep`` neighbours; replicas across them."""
    made = Layout()
    everyone = tuple(range(job.ranks))
    made.add("world", "default_pg", [everyone])
    made.add("ep", "mesh_ep", [
        everyone[i : i + job.ep] for i in range(0, job.ranks, job.ep)
    ])  # fmt: skip
    return made


def program(e: Emitter) -> None:
    """All steps of one rank."""
    job, out = e.job, e.program
    for step in range(job.steps):
        out.begin(f"ProfilerStep#{step + 3}", "user_annotation")
        e.pause(step)
        e.loader(step)
        for _ in range(job.layers):
            e.forward_half(e.model.forward[0])
            _exchange(e, "dispatch")
            e.forward_half(e.scaled(e.model.forward[1], _load(job, e.rank)))
            _exchange(e, "combine")
            e.maybe_item("layer")
        _backward(e)
        for _ in range(job.scalar_reductions):
            e.wait(e.collective("all_reduce", e.group("world"), 1, "fp32"), e.group("world"))
        for _ in range(job.barriers):
            e.barrier(e.group("world"))
        e.optimizer(job.layer_params * job.layers)
        e.maybe_item("step")
        e.checkpoint(step)
        out.end()
    out.synchronise(None, "cudaDeviceSynchronize")


def _load(job: Job, rank: int) -> float:
    """Tokens at a rank's experts, in multiples of the mean."""
    skew = dict(job.expert_skew)
    group = range(rank // job.ep * job.ep, rank // job.ep * job.ep + job.ep)
    return skew.get(rank, 1.0) * job.ep / sum(skew.get(r, 1.0) for r in group)


def _exchange(e: Emitter, what: str) -> None:
    """Every rank sends its tokens to the experts' ranks (dispatch) or gets them back (combine)."""
    job = e.job
    group = e.group("ep")
    size = e.model.tokens * job.hidden * job.element_bytes
    splits = {}
    for peer in group.ranks:
        if what == "dispatch":
            splits[e.rank, peer] = int(size / job.ep * _load(job, peer))
        else:
            splits[e.rank, peer] = int(size / job.ep * _load(job, e.rank))
    out = e.program
    if what == "dispatch":
        out.op("aten::topk", [e.model.pointwise("gatherTopK<float, unsigned int, 2, false>",
                                                e.model.tokens * 64)])  # fmt: skip
    if job.transport == "deepep":
        e.deepep(what, group, splits)
    else:
        elements = sum(splits.values()) // job.element_bytes
        share = [_load(job, e.rank if what == "dispatch" else peer) for peer in group.ranks]
        received = [int(size / job.ep * load) for load in share]
        event = e.collective("all_to_all", group, elements, splits=splits, received=received)
        e.wait(event, group)


def _backward(e: Emitter) -> None:
    job, out = e.job, e.program
    out.thread(AUTOGRAD)
    world = e.group("world")
    events = []
    dense = 4 * job.hidden * job.hidden
    for _ in range(job.layers):
        _exchange(e, "dispatch")
        e.backward_half(e.scaled(e.model.backward[0], _load(job, e.rank)))
        _exchange(e, "combine")
        e.backward_half(e.model.backward[1])
        events.append(e.reduce_gradient(world, dense))
    for event in events:
        e.wait(event, world)
    out.thread(MAIN)
