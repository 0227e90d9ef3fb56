"""``advisor profile``: train a synthetic workload and record one trace per rank."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import _options as options
from advisor.cli._options import ABOVE_ZERO, POSITIVE, argument, option
from advisor.config.parsed import what_fails
from advisor.errors import AdvisorError
from advisor.profile.inject import HELP

if TYPE_CHECKING:
    from advisor.config.workload import Workload


@options.command("profile", epilog="Example:  advisor profile workloads/gpt2.yaml -o runs/ddp")
def command(
    workload_file: Path = argument(metavar="WORKLOAD"),
    output: Path | None = option(
        "-o",
        "--output",
        help="Folder for traces, profile.json and logs.  [default: runs/NAME-STRATEGY]",
    ),
    strategy: str | None = option(
        help="One, e.g. ddp or fsdp2+tp; several by commas, or all, run in turn."
    ),
    preset: str | None = option(help="Size of the model."),
    nproc: int | None = option(type=int, help="Ranks in total (world size)."),
    steps: int | None = option(type=int, help="Steps to record."),
    warmup: int | None = option(type=int, help="Steps before anything is timed."),
    timed_steps: int | None = option(type=int, help="Steps timed without the profiler."),
    micro_batch: int | None = option(type=int, help="Sequences per rank and micro-batch."),
    seq: int | None = option(type=int, help="Sequence length in tokens."),
    grad_accum: int | None = option(type=int, help="Micro-batches per optimizer step."),
    precision: str | None = option(help="fp32 or bf16."),
    seed: int | None = option(type=int, help="Seed of weights and data."),
    bucket_cap_mb: float | None = option(type=ABOVE_ZERO, help="DDP's bucket size in MiB."),
    device: str | None = option(
        help="cpu (gloo), cuda (nccl), or meta: print what each rank needs; no run."
    ),
    settings: tuple[str, ...] = option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting of the workload file, e.g. --set static_graph=true.",
    ),
    nnodes: int = option(type=POSITIVE, default=1, show_default=True, help="Machines in the job."),
    node_rank: int | None = option(
        type=click.IntRange(0), help="Which of them this is.  [default: 0]"
    ),
    rdzv_endpoint: str = option(default="", metavar="HOST:PORT", help="Where they meet."),
    print_command: bool = option(
        help="Prepare the folder and print torchrun and Slurm lines instead of running."
    ),
    sweep_micro_batch: str | None = option(
        metavar="1,2,4,...",
        help="Throughput and memory against micro-batch, until memory runs out.",
    ),
    timeout: float = option(
        type=ABOVE_ZERO,
        default=120.0,
        show_default=True,
        help="Seconds without progress after which a rank counts as hung.",
    ),
    inject: tuple[str, ...] = option(metavar="FAULT", help=HELP),
    memory_limit: float | None = option(
        type=ABOVE_ZERO,
        metavar="MIB",
        help="What each rank may allocate: private memory on a CPU, device memory on a GPU.",
    ),
    memory_snapshot: bool | None = option(
        default=None, help="On CUDA: write each rank's memory history to logs/rankN.memory.pickle."
    ),
    force: bool = option(help="Replace an output folder that has a recording."),
    quiet: bool = option("-q", "--quiet", help="No progress on stderr."),
) -> None:
    """Train a synthetic WORKLOAD and record one trace per rank.

    Results go to the output folder: rankN.json.gz (Kineto), profile.json (step times, throughput,
    memory, settings) and logs/. Diagnose it with: advisor diagnose FOLDER. Several strategies get
    a folder each and train on the same global batch.
    """
    from advisor.config.workload import load_workload

    workload = load_workload(workload_file)
    flags = {
        "strategy": strategy, "model.preset": preset, "world_size": nproc, "steps": steps,
        "warmup_steps": warmup, "timed_steps": timed_steps, "micro_batch": micro_batch,
        "sequence_length": seq, "gradient_accumulation": grad_accum, "precision": precision,
        "seed": seed, "bucket_cap_mb": bucket_cap_mb, "device": device,
        "memory_snapshot": memory_snapshot,
    }  # fmt: skip
    chosen: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    chosen |= dict(_parse(text) for text in settings)
    is_plan = chosen.get("device") == "meta"
    if is_plan:
        del chosen["device"]
    workload = _without_rival(workload, chosen).with_settings(chosen)
    if workload.strategy == "single" and chosen.get("world_size", 1) != 1:
        raise AdvisorError(
            f"--strategy single and --nproc {workload.world_size}: single is one process",
            hint=f"leave out --nproc, or compare: --strategy single,ddp --nproc "
            f"{workload.world_size}",
        )
    _require_torch()
    from advisor.cli import _profile_plan
    from advisor.cli import _profile_run as runs
    from advisor.cli._profile_sweep import sizes, sweep
    from advisor.profile import foreign
    from advisor.profile.commands import parse_endpoint
    from advisor.profile.launch import local_ranks, threads_per_rank
    from advisor.profile.rendezvous import Nodes

    if nnodes > 1 and not rdzv_endpoint and not print_command:
        raise AdvisorError("needs --rdzv-endpoint HOST:PORT of the first node", where="--nnodes")
    if rdzv_endpoint:
        parse_endpoint(rdzv_endpoint)
    if node_rank is not None and node_rank >= nnodes:
        raise AdvisorError(
            f"--node-rank {node_rank} and --nnodes {nnodes}: nodes are numbered from 0",
            hint=f"--node-rank 0 to {nnodes - 1}, or a larger --nnodes",
        )
    if sweep_micro_batch and (nnodes > 1 or print_command):
        other = "--nnodes" if nnodes > 1 else "--print-command"
        raise AdvisorError(f"--sweep-micro-batch and {other}: a sweep runs on this machine only")
    nodes = Nodes(nnodes, node_rank or 0, rdzv_endpoint)
    how = runs.How(
        timeout_s=timeout,
        force=force,
        quiet=quiet,
        nodes=nodes,
        only_node=node_rank,
        memory_limit_bytes=None if memory_limit is None else int(memory_limit * 2**20),
    )
    jobs = runs.jobs(workload, how)
    foreign.refuse(chosen, jobs)
    how = replace(how, faults=runs.parse_faults(inject, jobs))
    if is_plan:
        _profile_plan.show(jobs)
        return
    batches = sizes(sweep_micro_batch) if sweep_micro_batch else []
    # One share for the ranks of every strategy: `single` on all cores would be no base to compare
    # with, as one GPU is the base of several.
    how = replace(
        how, threads=threads_per_rank(max(local_ranks(job, nodes) for job in jobs.values()))
    )
    folders = {
        name: runs.folder_of(output, job.name, list(jobs), name) for name, job in jobs.items()
    }
    if not print_command and not batches:
        runs.prepare(jobs, folders, how)
    for name, job in jobs.items():
        folder = folders[name]
        if print_command:
            runs.print_command(job, folder, how)
        elif batches:
            sweep(job, batches, folder, how, global_batch=workload.global_batch)
        else:
            runs.run_one(job, folder, how, is_prepared=True)
    if len(jobs) > 1 and not print_command and not batches:
        how.say(f"Next: advisor compare {shlex.join(map(str, folders.values()))}")


def _without_rival(workload: Workload, chosen: dict[str, Any]) -> Workload:
    """Of global_batch and gradient_accumulation the file's gives way to the command line's."""
    rivals = ("global_batch", "gradient_accumulation")
    for given, other in (rivals, rivals[::-1]):
        if given in chosen and other not in chosen and other in workload.model_fields_set:
            click.echo(
                f"{given} {chosen[given]} replaces the file's {other} {getattr(workload, other)}",
                err=True,
            )
            return workload.without(other)
    return workload


def _parse(text: str) -> tuple[str, Any]:
    from ruamel.yaml import YAML

    name, separator, value = text.partition("=")
    try:
        if separator and name:
            return name, YAML(typ="safe", pure=True).load(value)
    except Exception as error:
        raise AdvisorError(f"cannot read '{text}': {what_fails(error)}", where="--set") from error
    raise AdvisorError(f"cannot read '{text}'", where="--set", hint="write --set NAME=VALUE")


def _require_torch() -> None:
    try:
        import nvtx  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise AdvisorError(
            f"profiling needs the package '{error.name}'",
            hint="pip install 'nccl-advisor[profile]'",
        ) from error
