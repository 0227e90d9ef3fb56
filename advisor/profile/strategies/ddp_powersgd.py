"""DDP with PowerSGD (Vogels et al. 2019): gradients sent as low-rank factors, with error feedback.

The first steps send plain gradients, as PowerSGD asks for (``start_powerSGD_iter``).

torch's hook starts a bucket's later all-reduces when its earlier ones end, and waits for them in
gloo's own threads. With several buckets in flight on gloo the ranks then start them in different
orders (sizes that do not match: one rank aborts) or all threads wait for each other. Here a bucket
therefore begins when the one before it has ended, so that every rank has the same order.
"""

# No postponed annotations here: DDP compares those of the hook with the classes themselves.
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from advisor.profile.strategies import ddp
from advisor.profile.strategies.base import Job
from advisor.profile.strategies.ddp_hooks import apply_with_hook

KIND = "data"

_PLAIN_ITERATIONS = 2  # the least PowerSGDState takes with error feedback

_Future: TypeAlias = torch.futures.Future[torch.Tensor]


@dataclass
class _InTurn:
    """PowerSGD's state and the bucket that was started last."""

    powersgd: PowerSGDState
    last: _Future | None = None


# Its error feedback cannot be told from accumulated gradients in a pipeline.
checks = ddp.checks


def apply(job: Job) -> None:
    """DDP and the hook."""
    rank = job.workload.powersgd_rank
    seed = job.workload.seed
    apply_with_hook(
        job,
        _one_after_another,
        lambda group: _InTurn(
            PowerSGDState(
                group,
                matrix_approximation_rank=rank,
                start_powerSGD_iter=_PLAIN_ITERATIONS,
                random_seed=seed,
            )
        ),
    )


def _one_after_another(state: _InTurn, bucket: GradBucket) -> _Future:
    """PowerSGD for ``bucket`` once the bucket before it is done."""
    if bucket.buffer().is_cuda:
        return powerSGD_hook(state.powersgd, bucket)  # NCCL runs callbacks at once, in order
    before, state.last = state.last, torch.futures.Future()
    _then(before, lambda: powerSGD_hook(state.powersgd, bucket), state.last)
    return state.last


def _then(before: _Future | None, start: Callable[[], _Future], result: _Future) -> None:
    """Call ``start`` after ``before``; ``result`` ends as what it returns, or as what failed."""

    def finish(done: _Future) -> None:
        try:
            value = done.value()
        except Exception as error:  # noqa: BLE001 - whatever failed, backward raises it
            result.set_exception(error)
        else:
            result.set_result(value)

    def begin(earlier: _Future | None) -> None:
        try:
            if earlier is not None:
                earlier.value()
            with torch.no_grad():
                own = start()
        except Exception as error:  # noqa: BLE001 - whatever failed, backward raises it
            result.set_exception(error)
        else:
            own.add_done_callback(finish)

    if before is None:
        begin(None)
    else:
        before.add_done_callback(begin)
