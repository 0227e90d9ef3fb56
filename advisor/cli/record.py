"""``advisor record -- COMMAND``: some steps of a job as it is started, its launcher included."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import _options as options
from advisor.cli._options import POSITIVE, option
from advisor.cli._output import show
from advisor.cli._own_command import WithOwnCommand, own_command
from advisor.errors import AdvisorError
from advisor.vocabulary.recorded_steps import STEPS

if TYPE_CHECKING:
    from advisor.profile.hook.order import Order


@options.command(
    cls=WithOwnCommand,
    epilog="Example:  advisor record -o traces -- torchrun --nproc-per-node 8 train.py --lr 1e-4",
)
def command(
    steps: int = option(default=STEPS, show_default=True, type=POSITIVE, help="To record."),
    skip: int = option(
        default=10, show_default=True, type=click.IntRange(0), help="Steps before them."
    ),
    ranks: str = option(default="all", show_default=True, help="all, or ranks like 0,3,8-11."),
    output: Path = option(
        "-o",
        "--output",
        default=Path("advisor-traces"),
        show_default=True,
        help="Folder; where it has a recording, the next one (FOLDER-2 ...).",
    ),
    force: bool = option(help="Remove the traces of an earlier recording in FOLDER."),
    no_shapes: bool = option(help="Leave tensor shapes out (smaller traces)."),
    memory: bool = option(help="Record allocations as well."),
    stacks: bool = option(
        help="Record Python's calls as well: a pause's line of code. Slows the host."
    ),
    diagnose: bool = option(help="Diagnose the traces at the end."),
    every: int = option(
        default=0,
        metavar="N",
        type=click.IntRange(0),
        help="No profiler: a line each N steps says who is late, by how much.",
    ),
    on_demand: bool = option(help="Record nothing until `advisor capture FOLDER` asks for it."),
) -> int:
    """Run COMMAND (torchrun, accelerate launch, srun, a script) and record some of its steps.

    The job runs to its own end with its own output; the script is not changed. The exit status is
    the command's, and 2 where that is 0 and nothing was recorded. With --every or --on-demand the
    job is watched as long as it runs.
    """
    from advisor.profile import files, own
    from advisor.profile.hook.order import Order
    from advisor.record import parse_ranks

    line = own_command()
    if not line:
        raise click.UsageError("write the job's command after --, as you start it")
    folder = files.next_free(output, force=force)
    chosen = parse_ranks(ranks)
    asked = Order(
        str(folder.resolve()),
        warmup=skip,
        traced=steps,
        ranks=None if chosen is None else tuple(chosen),
        record_shapes=not no_shapes,
        record_memory=memory,
        record_stacks=stacks,
        every=every,
        on_demand=on_demand,
    )
    if on_demand:
        click.echo(f"advisor: when you want a recording: advisor capture {folder}", err=True)
    status, asked_to_end = own.attached(line, asked, dict(os.environ))
    if every or on_demand:
        return status
    written = files.whole(folder)
    for path in written:
        click.echo(f"advisor: wrote {path}", err=True)
    if not written and asked_to_end:
        click.echo("advisor: the command was ended before it wrote a trace", err=True)
        return status
    if not written:
        why = _nothing(asked, own.results(folder), status)
        if not status:
            raise why
        click.echo(f"advisor: {why}", err=True)
        return status
    if diagnose:
        from advisor import api

        with api.load(folder, command="advisor record --diagnose") as run:
            show(run.render("text"))
    else:
        click.echo(f"advisor: next: advisor diagnose {folder}", err=True)
    return status


def _nothing(asked: Order, left: list[dict[str, Any]], status: int) -> AdvisorError:
    """Why there is no trace, and what to do."""
    from advisor.profile.hook import order
    from advisor.profile.own import why_nothing

    if left and asked.ranks is not None:
        world = int(left[0]["world_size"])
        if not any(rank < world for rank in asked.ranks):
            return AdvisorError(
                f"nothing was recorded: none of --ranks is a rank of this job (0 to {world - 1})",
                hint="--ranks all, or some of them",
            )
    why, hint = why_nothing(asked)
    if status and order.loaded(Path(asked.folder)).exists():  # more steps would not help
        return AdvisorError(
            f"the command ended with status {status} before its steps were recorded",
            hint="its own output, above, says why",
        )
    failed = f"the command ended with status {status}; " if status else ""
    return AdvisorError(
        f"{failed}nothing was recorded: {why}", hint=f"{hint} (--skip {asked.warmup})"
    )
