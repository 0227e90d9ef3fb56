"""Settings that belong to some strategies only: given to others by hand, they would do nothing.

A workload file may set them for several strategies, of which each takes its own; so only what is
given on the command line is refused, and only where none of the strategies takes it.
"""

from collections.abc import Iterable, Mapping

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.profile import strategies

_DDP = ("ddp", "ddp-fp16", "ddp-bf16", "ddp-powersgd", "zero1")
_FSDP2 = ("fsdp2", "fsdp2-zero2", "hsdp")
_FSDP1 = ("fsdp1-full", "fsdp1-grad")
TAKEN_BY = {
    "bucket_cap_mb": _DDP,
    "find_unused_parameters": _DDP,
    "static_graph": _DDP,
    "gradient_as_bucket_view": _DDP,
    "powersgd_rank": ("ddp-powersgd",),
    "wrap_layers": (*_FSDP2, *_FSDP1),  # FSDP1 refuses any but 1 itself
    "prefetch_forward": (*_FSDP2, *_FSDP1),
    "prefetch_backward": _FSDP2,
    "reduce_precision": (*_FSDP2, *_FSDP1),
    "stage_layers": ("pp", "pp-gpipe", "pp-interleaved"),
    "virtual_stages": ("pp-interleaved",),
}


def refuse(given: Iterable[str], jobs: Mapping[str, Workload]) -> None:
    """Raise AdvisorError for every setting of ``given`` that no job's strategy takes.

    A value that is the default asks for nothing, and may stand with any strategy.
    """
    problems = []
    for name in given:
        takers = TAKEN_BY.get(name)
        if takers is None or any(_takes(job, takers) for job in jobs.values()):
            continue
        value = getattr(next(iter(jobs.values())), name)
        if value != Workload.model_fields[name].default:
            problems.append(
                f"{name} {value} and strategy {', '.join(jobs)}: only {', '.join(takers)} "
                f"take{'s' if len(takers) == 1 else ''} it"
            )
    if problems:
        raise AdvisorError("\n".join(problems), hint="leave it out, or choose such a strategy")


def _takes(job: Workload, takers: tuple[str, ...]) -> bool:
    parts = strategies.resolve(job.strategy)
    names = {part.name for part in parts}
    kinds = {part.kind for part in parts}
    if "expert" in kinds and "data" not in kinds:
        names.add("ddp")  # what goes around expert parallelism unless another is named
    return bool(names & set(takers))
