"""DDP with a communication hook: torch's own that cast gradients on the wire, or another one.

Here the reducer hands each bucket to Python anyway, so its range is opened around the hook.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from advisor.profile import names
from advisor.profile.ranges import named
from advisor.profile.strategies import ddp
from advisor.profile.strategies.base import Case, Job

KIND = "data"
Hook = Callable[[Any, GradBucket], Any]


def checks(case: Case, **_: object) -> list[str]:
    """As DDP."""
    return ddp.checks(case)


def apply(job: Job, *, hook: str) -> None:
    """DDP and a hook of torch's own."""
    apply_with_hook(job, getattr(default_hooks, hook), lambda group: group)


def apply_with_hook(job: Job, hook: Hook, state: Callable[[Any], Any]) -> None:
    """DDP whose buckets go through ``hook``; ``state`` makes its state of a process group."""
    for part in ddp.wrap(job):
        part.register_comm_hook(state(part.process_group), _marked(hook))


def _marked(hook: Hook) -> Hook:
    @wraps(hook)  # DDP checks the annotations of the hook it is given
    def with_range(state: Any, bucket: GradBucket) -> Any:
        with named(names.bucket(bucket.index())):
            return hook(state, bucket)

    # DDP refuses hooks by the name of torch's bf16 ones when there is no NCCL; gloo sums bf16 too.
    with_range.__name__ = f"marked_{hook.__name__}"
    return with_range
