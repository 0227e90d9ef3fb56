"""``advisor profile``: train a synthetic workload and record one trace per rank."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.config.workload import Workload

_Decorator = Callable[[Callable[..., None]], Callable[..., None]]

_FLAGS = {
    "preset": "model.preset",
    "nproc": "world_size",
    "seq": "sequence_length",
    "grad_accum": "gradient_accumulation",
    "warmup": "warmup_steps",
}


def _setting(flag: str, help_text: str, kind: Any = int) -> _Decorator:
    return click.option(flag, type=kind, default=None, help=help_text)


@click.command("profile", epilog="Example:  advisor profile workloads/gpt2.yaml -o runs/ddp")
@click.argument("workload_file", metavar="WORKLOAD", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for traces, profile.json and logs.  [default: runs/NAME-STRATEGY]",
)
@_setting("--strategy", "One, e.g. ddp or fsdp2+tp; several by commas, or all, run in turn.", str)
@_setting("--preset", "Size of the model.", str)
@_setting("--nproc", "Ranks in total (world size).")
@_setting("--steps", "Steps to record.")
@_setting("--warmup", "Steps before anything is timed.")
@_setting("--timed-steps", "Steps timed without the profiler.")
@_setting("--micro-batch", "Sequences per rank and micro-batch.")
@_setting("--seq", "Sequence length in tokens.")
@_setting("--grad-accum", "Micro-batches per optimizer step.")
@_setting("--precision", "fp32 or bf16.", str)
@_setting("--seed", "Seed of weights and data.")
@_setting("--bucket-cap-mb", "DDP's bucket size in MiB.", float)
@_setting("--device", "cpu (gloo) or cuda (nccl).", str)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other setting of the workload file, e.g. --set static_graph=true.",
)
@click.option("--nnodes", default=1, show_default=True, help="Machines in the job.")
@click.option("--node-rank", default=0, show_default=True, help="Which of them this is.")
@click.option("--rdzv-endpoint", default="", metavar="HOST:PORT", help="Where they meet.")
@click.option(
    "--print-command",
    is_flag=True,
    help="Prepare the folder and print torchrun and Slurm lines instead of running.",
)
@click.option(
    "--sweep-micro-batch",
    metavar="1,2,4,...",
    help="Throughput and memory against micro-batch, until memory runs out.",
)
@click.option(
    "--timeout",
    default=120.0,
    show_default=True,
    help="Seconds without progress after which a rank counts as hung.",
)
@click.option(
    "--inject",
    multiple=True,
    metavar="FAULT",
    help="For trying the tool out: a real fault in one rank, e.g. sleep:rank=1,ms=30.",
)
@click.option("--force", is_flag=True, help="Replace an output folder that has a recording.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(
    workload_file: Path,
    output: Path | None,
    settings: tuple[str, ...],
    nnodes: int,
    node_rank: int,
    rdzv_endpoint: str,
    print_command: bool,
    sweep_micro_batch: str | None,
    timeout: float,
    inject: tuple[str, ...],
    force: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a synthetic WORKLOAD and record one trace per rank.

    Results go to the output folder: rankN.json.gz (Kineto), profile.json (step times, throughput,
    memory, settings) and logs/. Diagnose it with: advisor diagnose FOLDER. Several strategies get
    a folder each and train on the same global batch.
    """
    from advisor.config.workload import load_workload

    workload = load_workload(workload_file)
    chosen = {_FLAGS.get(name, name): value for name, value in flags.items() if value is not None}
    workload = workload.with_settings({**chosen, **dict(_parse(text) for text in settings)})
    _require_torch()
    from advisor.profile.inject import Fault
    from advisor.profile.launch import Nodes, local_ranks, threads_per_rank

    if nnodes > 1 and not rdzv_endpoint and not print_command:
        raise AdvisorError("needs --rdzv-endpoint HOST:PORT of the first node", where="--nnodes")
    nodes = Nodes(nnodes, node_rank, rdzv_endpoint)
    faults = tuple(Fault.parse(text) for text in inject)
    jobs = _jobs(workload, say=lambda text: None if quiet else click.echo(text, err=True))
    # One share for the ranks of every strategy: `single` on all cores would be no base to compare
    # with, as one GPU is the base of several.
    threads = threads_per_rank(max(local_ranks(job, nodes) for job in jobs.values()))
    for name, job in jobs.items():
        folder = _folder(output, job.name, list(jobs), name)
        if print_command:
            _print_command(job, folder, nodes, force=force)
        elif sweep_micro_batch:
            sizes = _sizes(sweep_micro_batch)
            _sweep(job, sizes, folder, timeout=timeout, force=force, quiet=quiet)
        else:
            run_one(
                job, folder, faults=faults, timeout=timeout, force=force, quiet=quiet, nodes=nodes,
                threads=threads,
            )  # fmt: skip


def _jobs(workload: Workload, *, say: Callable[[str], None]) -> dict[str, Workload]:
    """The workload under each of its strategies; what cannot run is refused before any starts.

    Of ``all``, what cannot run here is left out with its reason instead.
    """
    from advisor.profile import strategies

    names = workload.strategy.split(",")
    is_all = names == ["all"]
    if is_all:
        names = ["single", *(name for name in strategies.available() if name != "single")]
    if len(names) > 1 and workload.global_batch is None:
        batch = workload.micro_batch * workload.gradient_accumulation * workload.world_size
        workload = workload.model_copy(update={"global_batch": batch})
    jobs = {}
    for name in names:
        ranks = 1 if name == "single" else workload.world_size
        job = workload.model_copy(update={"strategy": name, "world_size": ranks})
        try:
            jobs[name], _ = strategies.prepare(job)
        except AdvisorError as error:
            if not is_all:
                raise
            say(f"left out {name}: {'; '.join(error.message.splitlines())}")
    return jobs


def _folder(output: Path | None, workload: str, names: list[str], name: str) -> Path:
    if output is None:
        return Path("runs") / f"{workload}-{name}"
    return output if len(names) == 1 else output / name


def run_one(
    workload: Workload,
    folder: Path,
    *,
    faults: Any,
    timeout: float,
    force: bool,
    quiet: bool,
    nodes: Any = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Run one job to the end and return its profile.json. Raises AdvisorError naming the rank."""
    from advisor.profile import files, launch, strategies, summary

    nodes = nodes or launch.Nodes()
    workload, _ = strategies.prepare(workload)
    _prepare(folder, force=force, is_first=nodes.rank == 0)

    def say(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    total = workload.warmup_steps + workload.timed_steps + workload.steps + 1
    model = f"{workload.model.family} {workload.model.preset}"
    say(
        f"{workload.name}: {model if workload.compute == 'real' else 'emulated layers'},"
        f" {workload.strategy}, {workload.world_size} ranks on {workload.device}, {total} steps"
    )
    try:
        launch.launch(
            workload, folder, nodes=nodes, faults=faults, timeout_s=timeout, threads=threads
        )
    except AdvisorError as error:
        summary.write(folder, workload, error=error.message)
        raise
    document: dict[str, Any] = json.loads((folder / files.PROFILE_FILE).read_text("utf-8"))
    step = document["step_ns"] or document["profiled_step_ns"]
    say(
        f"{step['median'] / 1e6:.1f} ms per step (MAD {step['mad'] / 1e6:.1f}),"
        f" {document['tokens_per_second']:,.0f} tokens/s"
    )
    click.echo(f"Wrote {folder}")
    say(f"Next: advisor diagnose {folder}")
    return document


def _print_command(workload: Workload, folder: Path, nodes: Any, *, force: bool) -> None:
    from advisor.profile import commands, launch

    launch.local_ranks(workload, nodes)
    _prepare(folder, force=force, is_first=True)
    launch.write_job(workload, folder)
    click.echo(f"# {workload.strategy}: on each node in turn, with {folder} shared by all")
    for line in commands.torchrun(workload, folder, nodes=nodes.count, endpoint=nodes.endpoint):
        click.echo(line)
    click.echo("\n# or as a Slurm batch script")
    click.echo(commands.slurm(workload, folder, nodes=nodes.count))


def _sweep(
    workload: Workload, sizes: list[int], folder: Path, *, timeout: float, force: bool, quiet: bool
) -> None:
    """One run per micro-batch; running out of memory is a row, and ends the sweep."""
    from advisor.profile import files, launch

    rows: list[dict[str, Any]] = []
    for size in sizes:
        job = workload.model_copy(update={"micro_batch": size})
        row: dict[str, Any] = {"micro_batch": size, "status": "ok"}
        rows.append(row)
        try:
            document = run_one(
                job, folder / f"micro-batch-{size}", faults=(), timeout=timeout, force=force,
                quiet=quiet,
            )  # fmt: skip
        except AdvisorError as error:
            if not launch.is_out_of_memory(error):
                raise
            row |= {"status": "out of memory", "message": error.message}
            break
        step = document["step_ns"] or document["profiled_step_ns"]
        row |= {
            "step_ns": step["median"],
            "tokens_per_second": document["tokens_per_second"],
            "peak_memory_bytes": document["peak_memory_bytes"],
        }
    files.write_json(folder / "micro-batches.json", rows)
    click.echo("micro-batch   step ms   tokens/s   peak MiB")
    for row in rows:
        if row["status"] != "ok":
            click.echo(f"{row['micro_batch']:>11}   {row['status']}")
            continue
        click.echo(
            f"{row['micro_batch']:>11} {row['step_ns'] / 1e6:>9.1f}"
            f" {row['tokens_per_second']:>10,.0f} {row['peak_memory_bytes'] / (1 << 20):>10,.0f}"
        )


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise AdvisorError(
            f"cannot read '{text}'", where="--sweep-micro-batch", hint="e.g. 1,2,4,8"
        )
    return sorted(sizes)


def _prepare(folder: Path, *, force: bool, is_first: bool) -> None:
    if not is_first:
        folder.mkdir(parents=True, exist_ok=True)  # the first node's to check and to clear
        return
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "logs" / "job.json").exists():
            raise AdvisorError(
                "is not empty and not a recording of this tool",
                where=str(folder),
                hint="choose another folder with -o",
            )
        if not force:
            raise AdvisorError(
                "has a recording already", where=str(folder), hint="pass --force to replace it"
            )
        for trace in [*folder.glob("rank*.json.gz"), folder / "profile.json"]:
            trace.unlink(missing_ok=True)
        shutil.rmtree(folder / "logs", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def _parse(text: str) -> tuple[str, Any]:
    from ruamel.yaml import YAML

    name, separator, value = text.partition("=")
    if not separator or not name:
        raise AdvisorError(f"cannot read '{text}'", where="--set", hint="write --set NAME=VALUE")
    return name, YAML(typ="safe", pure=True).load(value)


def _require_torch() -> None:
    try:
        import nvtx  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise AdvisorError(
            f"profiling needs the package '{error.name}'",
            hint="pip install 'nccl-advisor[profile]'",
        ) from error
