"""What ``advisor profile`` and ``advisor demo`` run: jobs of a workload, their folders, one run."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.errors import AdvisorError
from advisor.profile import rendezvous

if TYPE_CHECKING:
    from advisor.config.workload import Workload
    from advisor.profile.inject import Fault


@dataclass(frozen=True)
class How(rendezvous.How):
    """How a job is launched and told of; ``only_node``: the one whose line is printed."""

    force: bool = False
    quiet: bool = False
    only_node: int | None = None

    def say(self, text: str) -> None:
        """Progress, on stderr."""
        if not self.quiet:
            click.echo(text, err=True)


def jobs(workload: Workload, how: How) -> dict[str, Workload]:
    """The workload under each of its strategies; what cannot run is refused before any starts.

    Of ``all``, what cannot run here is left out with its reason instead.
    """
    from advisor.profile import launch, strategies

    names = workload.strategy.split(",")
    is_all = names == ["all"]
    if is_all:
        names = ["single", *(name for name in strategies.names() if name != "single")]
    if len(names) > 1 and workload.global_batch is None:
        batch = workload.micro_batch * workload.gradient_accumulation * workload.world_size
        workload = workload.model_copy(update={"global_batch": batch})
    found = {}
    for name in names:
        ranks = 1 if name == "single" else workload.world_size
        job = workload.model_copy(update={"strategy": name, "world_size": ranks})
        try:
            settled, _ = strategies.prepare(job)
            launch.local_ranks(settled, how.nodes)
            found[name] = settled
        except AdvisorError as error:
            if not is_all:
                raise
            how.say(f"left out {name}: {'; '.join(error.message.splitlines())}")
    return found


def folder_of(output: Path | None, workload: str, names: list[str], name: str) -> Path:
    """Where a job's recording goes: the output folder, or one in it where there are several."""
    if output is None:
        return Path("runs") / f"{workload}-{name}"
    return output if len(names) == 1 else output / name


def prepare(jobs: dict[str, Workload], folders: dict[str, Path], how: How) -> None:
    """Refuse every job that this machine cannot run, then make all folders, before any starts.

    All at once, because another node may be done with a job, and begin the next one in its folder,
    a moment before the first node is.
    """
    from advisor.profile import launch

    nodes = how.nodes
    for job in jobs.values():
        launch.check(job, nodes)
    if nodes.rank > 0:
        return  # the folders are the first node's to check, to clear and to make
    for folder in folders.values():
        prepare_folder(folder, force=how.force)


def parse_faults(texts: Sequence[str], jobs: Mapping[str, Workload]) -> tuple[Fault, ...]:
    """The values of --inject; one that would strike no step of a job is refused (AdvisorError)."""
    from advisor.profile import inject

    return inject.parse_all(
        texts, [(name, job.world_size, total_steps(job)) for name, job in jobs.items()]
    )


def total_steps(workload: Workload) -> int:
    """Steps that a run takes: warm-up, timed, recorded, and the profiler's own first one."""
    return workload.warmup_steps + workload.timed_steps + workload.steps + 1


def run_one(
    workload: Workload, folder: Path, how: How, *, is_prepared: bool = False
) -> dict[str, Any]:
    """Run one job to the end and return its profile.json. Raises AdvisorError naming the rank."""
    from advisor.profile import files, launch, summary
    from advisor.profile.failures import LaunchError, LaunchStoppedError
    from advisor.profile.rendezvous import MeetingError

    nodes = how.nodes
    workload = launch.check(workload, nodes)
    if not is_prepared:
        prepare({workload.name: workload}, {workload.name: folder}, how)
    model = f"{workload.model.family} {workload.model.preset}"
    count = workload.world_size
    how.say(
        f"{workload.name}: {model if workload.compute == 'real' else 'emulated layers'},"
        f" {workload.strategy}, {count} rank{'s' if count > 1 else ''} on {workload.device},"
        f" {total_steps(workload)} steps"
    )
    if nodes.rank > 0:
        how.say(f"node {nodes.rank} waits for the first node at {nodes.endpoint}")
    try:
        launch.launch(workload, folder, how)
    except MeetingError:
        if nodes.rank == 0:  # nothing ran: the folder is as it was, for the next attempt
            shutil.rmtree(folder / "logs", ignore_errors=True)
        raise
    except (LaunchError, LaunchStoppedError) as error:
        # Only what has run has a summary; of several nodes the first one writes it.
        if nodes.rank == 0:
            summary.write(folder, workload, error=error.message)
        raise
    if nodes.rank > 0:
        click.echo(f"Wrote the traces of node {nodes.rank} to {folder}")
        return {}
    document: dict[str, Any] = json.loads((folder / files.PROFILE_FILE).read_text("utf-8"))
    step = document["step_ns"] or document["profiled_step_ns"]
    how.say(
        f"{step['median'] / 1e6:.1f} ms per step (MAD {step['mad'] / 1e6:.1f}),"
        f" {document['tokens_per_second']:,.0f} tokens/s"
    )
    click.echo(f"Wrote {folder}")
    how.say(f"Next: advisor diagnose {shlex.quote(str(folder))}")
    return document


def print_command(workload: Workload, folder: Path, how: How) -> None:
    """Prepare the folder, and print the lines that start the same job on each node."""
    from advisor.profile import commands, launch

    nodes = how.nodes
    launch.local_ranks(workload, nodes)
    if how.only_node:
        click.echo(f"# --print-command on node 0 prepares {folder}")
    else:
        prepare_folder(folder, force=how.force)
        launch.write_job(workload, folder, how)
    # On a GPU the host's threads hardly matter, and on other machines their number is another.
    threads = how.threads if workload.device == "cpu" else None
    node = f"on node {how.only_node}" if how.only_node is not None else "on each node in turn"
    click.echo(f"# {workload.strategy}: {node}, with {folder} shared by all")
    for line in commands.torchrun(
        workload,
        folder,
        nodes=nodes.count,
        endpoint=nodes.endpoint,
        node_rank=how.only_node,
        threads=threads,
    ):
        click.echo(line)
    click.echo("\n# or as a Slurm batch script, which numbers the nodes itself")
    click.echo(
        commands.slurm(
            workload, folder, nodes=nodes.count, endpoint=nodes.endpoint, threads=threads
        )
    )


def prepare_folder(folder: Path, *, force: bool) -> None:
    """Make the folder; an earlier recording in it is replaced with ``force``, else refused."""
    from advisor.profile import files

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
        for trace in [*files.traces(folder), folder / files.PROFILE_FILE]:
            trace.unlink(missing_ok=True)
        shutil.rmtree(folder / "logs", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
