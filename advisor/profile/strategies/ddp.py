"""DistributedDataParallel: replicas whose gradients are all-reduced in buckets during backward.

The buckets' ranges are marks, not a communication hook: a Python hook replaces the reducer's own
path (it divides in a separate pass and needs the interpreter lock in the middle of the backward
pass). Instead the layout of the rebuilt buckets is read from the reducer's logging data after the
first steps, and one hook on the last parameter of each bucket marks the moment at which it is full.
"""

from contextlib import nullcontext
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from advisor.config.workload import Workload
from advisor.profile import names
from advisor.profile.ranges import named
from advisor.profile.strategies.base import Case, Job

KIND = "data"

_STEPS_WITH_LOGGING_DATA = 10  # the reducer refreshes its logging data in the first iterations


def checks(case: Case) -> list[str]:
    """Settings that exclude each other, and companions that do not compose."""
    workload = case.workload
    problems = []
    if workload.find_unused_parameters and workload.static_graph:
        problems.append(
            "find_unused_parameters and static_graph: a static graph has no unused parameters"
        )
    if workload.static_graph and _skips_sync(workload):
        problems.append(
            f"static_graph and gradient_accumulation {workload.gradient_accumulation}: a static "
            "graph synchronises every time; set sync_every_micro_batch"
        )
    return problems


def apply(job: Job) -> None:
    """Wrap every part, and mark the buckets."""
    job.after_step.append(_BucketMarks(wrap(job), job.details))


def _skips_sync(workload: Workload) -> bool:
    return workload.gradient_accumulation > 1 and not workload.sync_every_micro_batch


def wrap(job: Job) -> list[DistributedDataParallel]:
    """All parts under DDP with the workload's settings, over the job's data-parallel group."""
    wrapped = [_wrap(job, part) for part in job.parts]
    job.parts = list(wrapped)
    if job.build_schedule is None and not job.workload.sync_every_micro_batch:
        job.micro_batch_context = lambda last: nullcontext() if last else wrapped[0].no_sync()
    return wrapped


def _wrap(job: Job, part: nn.Module) -> DistributedDataParallel:
    workload = job.workload
    if job.degrees.tensor > 1:
        from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

        # The reducer takes plain tensors: the parameters become those, and DTensors for each pass.
        _pre_dp_module_transform(part)
    ignored = [n for n, p in part.named_parameters() if p in job.ignored_parameters]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(part, ignored)
    return DistributedDataParallel(
        part,
        device_ids=[job.device] if job.device.type == "cuda" else None,
        process_group=job.data_group(),
        bucket_cap_mb=workload.bucket_cap_mb,
        find_unused_parameters=workload.find_unused_parameters,
        static_graph=workload.static_graph,
        gradient_as_bucket_view=workload.gradient_as_bucket_view,
    )


class _BucketMarks:
    """Reads the reducer's final buckets once it has rebuilt them, and marks them from then on."""

    def __init__(self, wrapped: list[DistributedDataParallel], details: dict[str, Any]) -> None:
        # Names and parameters as the reducer got them: tensor parallelism swaps them in forward.
        self._waiting = [(part, _reduced_parameters(part)) for part in wrapped]
        self._details = details
        self._steps_left = _STEPS_WITH_LOGGING_DATA

    def __call__(self, _step: int) -> None:
        if not self._waiting or self._steps_left == 0:
            return
        self._steps_left -= 1
        for entry in list(self._waiting):
            part, parameters = entry
            data = part._get_ddp_logging_data()
            if data.get("has_rebuilt_buckets"):
                self._waiting.remove(entry)
                buckets = self._mark(part, parameters, data)
                self._details.setdefault("buckets", []).extend(buckets)

    def _mark(
        self,
        part: DistributedDataParallel,
        parameters: list[tuple[str, nn.Parameter]],
        data: dict[str, Any],
    ) -> list[dict[str, Any]]:
        members = str(data["rebuilt_per_bucket_param_indices"]).split(",")
        sizes = str(data["rebuilt_bucket_sizes"]).split(",")
        first = len(self._details.get("buckets", []))
        buckets = []
        for number, (indices, size) in enumerate(zip(members, sizes, strict=True), start=first):
            named_parameters = [parameters[int(index)] for index in indices.split()]
            # Rebuilt in the order in which gradients became ready: the last one fills the bucket.
            named_parameters[-1][1].register_post_accumulate_grad_hook(_marker(part, number))
            own = [name for name, _ in named_parameters]
            buckets.append({"bucket": number, "bytes": int(size), "parameters": own})
        return buckets


def _reduced_parameters(part: DistributedDataParallel) -> list[tuple[str, nn.Parameter]]:
    return [
        (name, parameter)
        for name, parameter in part.module.named_parameters()
        if parameter.requires_grad and name not in part.parameters_to_ignore
    ]


def _marker(part: DistributedDataParallel, number: int) -> Any:
    def mark(_parameter: nn.Parameter) -> None:
        if part.require_backward_grad_sync:  # not under no_sync, where nothing is launched
            with named(names.bucket(number)):
                pass

    return mark
