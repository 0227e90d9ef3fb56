"""``advisor tune --sweep``: find settings that make this job faster, or say that none does."""

import os
import re
from pathlib import Path

import click

from advisor.cli import _options as options
from advisor.cli._options import ABOVE_ZERO, POSITIVE, argument, option
from advisor.cli._own_command import WithOwnCommand, own_command
from advisor.errors import AdvisorError

_DEFAULT_BUDGET = "8m"
_NCCL = "2.29.7"  # what torch 2.12 and 2.13 ship


@options.command(
    cls=WithOwnCommand,
    epilog="Example:  advisor tune --sweep -o runs/sweep -- torchrun --nproc-per-node 8 train.py",
)
def command(
    workload: Path | None = argument(required=False),
    sweep: bool = option(help="Run trials of the workload under other settings."),
    check_env: bool = option(help="Check the NCCL_* variables set in this shell."),
    nccl_version: str | None = option(
        "--nccl", metavar="VERSION", help="NCCL version for --check-env and --topology."
    ),
    space: Path | None = option(help="YAML file of axes to try."),
    warmup: int | None = option(type=POSITIVE, help="Steps of a COMMAND before the timed ones."),
    steps: int | None = option(type=click.IntRange(3), help="Steps of a COMMAND that are timed."),
    objective: str | None = option(
        metavar="REGEX",
        help="Judge a COMMAND by a number in its output (the group in REGEX): larger is better.",
    ),
    lower_is_better: bool = option(help="With --objective: smaller is better."),
    to_the_end: bool = option(help="Never end a COMMAND early: it is a short run by itself."),
    strategy: str | None = option(help="Strategy instead of the workload's."),
    nproc: int | None = option(type=POSITIVE, help="Ranks instead of the workload's."),
    budget: str | None = option(
        metavar="N|Nm|Nh",
        help="Trials in all (60: also those of the present settings and of the confirmation), or "
        "time (8m); the search fits into it.  [default: 8m, or what one comparison of a COMMAND "
        "takes]",
    ),
    timeout: float = option(
        default=120.0,
        type=ABOVE_ZERO,
        show_default=True,
        help="Seconds without progress after which a trial is ended.",
    ),
    topology: str | None = option(
        metavar="MACHINE",
        help="Also model NCCL's settings on this machine (dgx-h100 ...); never counted as "
        "measured.",
    ),
    fitted: Path | None = option(
        "--calibration", help="A file of advisor calibrate for --topology."
    ),
    nodes: int | None = option(type=POSITIVE, help="Nodes of --topology.  [default: 1]"),
    output: Path | None = option("-o", "--output", help="Folder of the sweep."),
    resume: bool = option(help="Go on with the sweep in the folder."),
    quiet: bool = option("-q", "--quiet", help="Only the result."),
) -> int:
    """Try settings inside a job (COMMAND as you start it, or a WORKLOAD); recommend what won.

    The script of COMMAND stays as it is: variables are set around it, settings of DDP and FSDP
    where it builds them. WORKLOAD is a file with `command:`, or a reference workload (default: the
    tiny GPT-2). Trials alternate with the present settings; the winner is confirmed in fresh pairs
    before it is recommended, and where nothing wins the answer is to leave the settings alone.
    """
    if check_env:
        for name, value in (("topology", topology), ("calibration", fitted), ("nodes", nodes)):
            if value is not None:
                raise click.UsageError(
                    f"--{name} has no effect with --check-env: with --sweep it models NCCL's "
                    "settings, and advisor nccl-model shows them alone"
                )
        from advisor.cli.check_env import check

        return check(dict(os.environ), nccl_version)
    if not sweep:
        raise click.UsageError("say what to do: --sweep or --check-env")
    if nodes is not None and topology is None:
        raise click.UsageError(
            "--nodes has no effect without --topology; ranks of the job are --nproc"
        )
    if fitted is not None and topology is None:
        raise click.UsageError("--calibration has no effect without --topology")
    nodes = nodes or 1
    limits = parse_budget(budget or _DEFAULT_BUDGET)
    from advisor.cli._tune_run import sweep_through
    from advisor.config.own import is_own_job
    from advisor.model.nccl.version import parse_version
    from advisor.tune.budget import Budget
    from advisor.tune.journal import require_journal

    folder = output or Path("advisor-sweep")
    version = parse_version(nccl_version or _NCCL)
    line = own_command()
    if line and workload is not None:
        raise click.UsageError("give a workload or a command after --, not both")
    timing = {
        "warmup_steps": warmup,
        "timed_steps": steps,
        "objective": objective,
        "lower_is_better": lower_is_better or None,
        "runs_to_its_end": to_the_end or None,
    }
    given = {name: value for name, value in timing.items() if value is not None}
    if resume:
        require_journal(folder)
    if line or (workload is not None and is_own_job(workload)):
        from advisor.cli import _tune_own

        if strategy is not None or nproc is not None or topology is not None:
            raise click.UsageError(
                "--strategy, --nproc and --topology are of reference workloads; the command has "
                "its own"
            )
        job = _tune_own.job_of(line, workload, given)
        ready = _tune_own.plan(
            job,
            folder,
            space,
            Budget(*limits, timeout, compares=budget is None),
            resume=resume,
            quiet=quiet,
        )
        return sweep_through(ready, version, resume=resume, quiet=quiet)
    if given:
        raise click.UsageError(
            "--warmup, --steps, --objective and --to-the-end are of a COMMAND after --; a "
            "reference workload's file has its own"
        )
    from advisor.cli._tune_reference import prepared

    ready = prepared(
        workload,
        folder,
        space,
        {"strategy": strategy, "world_size": nproc},
        Budget(*limits, timeout),
        machine=topology,
        calibration=fitted,
        nodes=nodes,
        version=version,
    )
    return sweep_through(ready, version, resume=resume, quiet=quiet)


def parse_budget(text: str) -> tuple[int | None, float | None]:
    """``60`` is trials; ``90s``, ``8m``, ``1h`` is time. Returns (trials, seconds)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0 or ("." in match[1] and not match[2]):
        raise AdvisorError(
            f"--budget {text!r} is neither trials nor time", hint="for example 60, 90s, 8m or 1h"
        )
    if not match[2]:
        return int(float(match[1])), None
    return None, float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
