"""Expert parallelism: each rank holds some experts, tokens travel to them by all-to-all and back.

Everything else is data-parallel over the same ranks (DDP unless a strategy is joined). Two
all-to-alls of activations per layer forward and two backward, plus a small one with the counts. An
expert's gradient is complete where it lives, since all tokens came there; with more data-parallel
ranks than ``ep`` it is all-reduced over the replicas of the expert.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from advisor.profile.models.moe import Experts, SparseMlp
from advisor.profile.strategies import mesh
from advisor.profile.strategies.base import Case, Job, layers_of

KIND = "expert"


def checks(case: Case) -> list[str]:
    """There must be experts, and as many on every rank."""
    size, workload = case.degrees.expert, case.workload
    if workload.model.family != "moe" or workload.compute == "emulated":
        return [f"strategy ep and model {workload.model.family}: only a moe has experts"]
    problems = []
    if case.shape.experts % size:
        problems.append(f"ep {size} and experts {case.shape.experts}: must be a divisor")
    if case.degrees.pipeline > 1:
        problems.append(f"ep {size} and pp {case.degrees.pipeline}: not supported together")
    return problems


def apply(job: Job) -> None:
    """Keep this rank's experts, and send the tokens of the others away."""
    if job.degrees.expert == 1:
        return
    has_replicas = job.degrees.data > job.degrees.expert
    group = job.meshes[mesh.SHARD if has_replicas else mesh.DATA].get_group()
    for part in job.parts:
        for layer in layers_of(part):
            if isinstance(layer.mlp, SparseMlp):
                layer.mlp.experts = TravellingTokens(layer.mlp.experts, group)
                job.ignored_parameters |= set(layer.mlp.experts.parameters())
    replicas = job.meshes[mesh.REPLICATE].get_group() if has_replicas else None
    own = sorted_parameters(job)

    def finish() -> None:
        for parameter in own:
            if parameter.grad is not None:
                # Each rank's loss is a mean over its own tokens; the global one is their mean.
                parameter.grad.div_(job.data_ranks)
                if replicas is not None:
                    dist.all_reduce(parameter.grad, group=replicas)

    job.after_backward.append(finish)


def sorted_parameters(job: Job) -> list[nn.Parameter]:
    """The experts' parameters in the model's order, which is the same on every rank."""
    return [parameter for parameter in job.parameters() if parameter in job.ignored_parameters]


class TravellingTokens(nn.Module):
    """This rank's share of the experts; rows for the others go there and come back."""

    def __init__(self, everyone: Experts, group: Any) -> None:
        super().__init__()
        self._group = group
        self._ranks = dist.get_world_size(group)
        total, hidden, width = everyone.gate.shape
        with everyone.gate.device:
            self.local = Experts(total // self._ranks, hidden, width)
        first = dist.get_rank(group) * (total // self._ranks)
        for name, parameter in self.local.named_parameters():
            whole = getattr(everyone, name).data
            parameter.data = whole[first : first + total // self._ranks].clone()

    def forward(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """As Experts.forward, with ``counts`` over all experts of the group."""
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts, group=self._group)
        by_source = coming.view(self._ranks, -1)  # [source rank, local expert]
        sent = counts.view(self._ranks, -1).sum(1).tolist()
        received = by_source.sum(1).tolist()
        arrived = _Exchange.apply(rows, received, sent, self._group)
        order = _by_expert(by_source)
        answers = self.local(arrived[order], by_source.sum(0))
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        result: torch.Tensor = _Exchange.apply(answers[back], sent, received, self._group)
        return result


def _by_expert(by_source: torch.Tensor) -> torch.Tensor:
    """Positions that sort rows from (source, expert) order to (expert, source) order."""
    experts = torch.arange(by_source.shape[1], device=by_source.device)
    expert_of_row = experts.repeat(by_source.shape[0]).repeat_interleave(by_source.flatten())
    return expert_of_row.argsort(stable=True)


class _Exchange(torch.autograd.Function):
    """All-to-all of rows with uneven splits; its backward is the exchange the other way round."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, received: list[int], sent: list[int], group: Any
    ) -> torch.Tensor:
        ctx.received, ctx.sent, ctx.group = received, sent, group
        return _exchange(rows, received, sent, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _exchange(gradients[0], ctx.sent, ctx.received, ctx.group), None, None, None


def _exchange(rows: torch.Tensor, received: list[int], sent: list[int], group: Any) -> torch.Tensor:
    result = rows.new_empty((sum(received), rows.shape[1]))
    dist.all_to_all_single(result, rows.contiguous(), received, sent, group=group)
    return result
