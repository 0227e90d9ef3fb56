"""What to record next time, in the terms of the tool that made this recording."""

from __future__ import annotations

from advisor.engine.sandbox import Sandbox

_TORCH = "torchrun --nproc-per-node N -m advisor.record{options} train.py"
_THEN = ", then advisor diagnose advisor-traces/"
_NSYS = (
    "nsys profile --trace=cuda,nvtx -o report.%q{RANK} python train.py (inside torchrun), then "
    "nsys export --type sqlite --include-blobs=true of each"
)


def more_steps(sandbox: Sandbox, steps: int | None = 5, *, quiet: bool = False) -> str:
    """How to record at least ``steps`` steps; None leaves their number open.

    ``quiet`` asks for machines that do nothing else.
    """
    many = f"record at least {steps} steps" if steps else "record again"
    where = " on otherwise idle machines" if quiet else ""
    if _by_nsys(sandbox):
        return (
            f"{many}{where}, each in an NVTX range of its own: "
            'with torch.cuda.nvtx.range(f"ProfilerStep#{i}"): step()'
        )
    options = f" --steps {steps}" if steps and steps > 5 else ""
    if _by_profile(sandbox):
        return (
            f"{many}{where}: advisor profile{options} with the same workload and settings "
            "(or advisor demo again, if this was one)"
        )
    # Who is to record once more has done it before, and knows what comes then.
    return f"{many}{where}: {_TORCH.format(options=options)}{'' if quiet else _THEN}"


def all_ranks(sandbox: Sandbox) -> str:
    """How to record every rank."""
    how = _NSYS if _by_nsys(sandbox) else _TORCH.format(options="") + _THEN
    return f"record all ranks over the same steps: {how}"


def groups(sandbox: Sandbox) -> str:
    """How to record which process group a call belongs to."""
    if _by_nsys(sandbox):
        return "keep NCCL's payloads: nsys export --type sqlite --include-blobs=true of each report"
    return f"record with advisor.record, which notes the groups: {_TORCH.format(options='')}{_THEN}"


def _by_profile(sandbox: Sandbox) -> bool:
    """Whether a workload file was run, so that there is no script to name."""
    (row,) = sandbox.records(
        "SELECT coalesce(bool_or(workload IS NOT NULL), false) AS known FROM run"
    )
    return bool(row["known"])


def _by_nsys(sandbox: Sandbox) -> bool:
    return "nsys" in sandbox.formats and "kineto" not in sandbox.formats
