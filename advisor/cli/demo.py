"""``advisor demo``: one command from nothing to a findings report, on a real training run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import option
from advisor.cli._output import Output, show, use_color
from advisor.errors import AdvisorError
from advisor.profile.inject import HELP

if TYPE_CHECKING:
    from advisor.findings import FindingsReport

_STEPS = 10
"""One call a step: of fewer than ten nobody can tell a late rank from chance."""
_HEALTHY_SEQUENCES = 16
"""Per rank and step without a fault: computing them takes long enough to hide most of the call, and
what else runs on the machine for a moment."""
_BUSY = 0.25  # of the cores taken by others: ranks then wait for one another

DEFAULT_FAULT = "sleep:rank=1,ms=200"
"""What the demo injects by itself: a rank that really sleeps before every forward pass."""


@options.command(epilog="Example:  advisor demo -o /tmp/demo")
def command(
    output: Path = option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("advisor-demo"),
        show_default=True,
        help="Folder of the demo; an earlier demo in it is replaced.",
    ),
    nproc: int = option(type=click.IntRange(2, 8), default=2, show_default=True, help="Ranks."),
    inject: tuple[str, ...] = option(metavar="FAULT", help=f"{HELP} Without it: {DEFAULT_FAULT}."),
    healthy: bool = option(help="Inject no fault: what a healthy run looks like."),
    color: Literal["auto", "always", "never"] = option(default="auto"),
) -> int:
    """Train a tiny GPT-2 with a fault in one rank, record it, and find the fault.

    Everything is real: torch processes, gloo collectives, profiler traces, and a rank that sleeps
    in every step. It takes about a minute on two cores and writes report.html.
    """
    if healthy and inject:
        raise AdvisorError("--healthy and --inject contradict each other", hint="give one of them")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise AdvisorError(
            "torch is not installed", hint="pip install 'nccl-advisor[profile]'"
        ) from error
    from advisor import api
    from advisor.cli._profile_run import How, parse_faults, run_one
    from advisor.config.paths import shipped
    from advisor.config.workload import load_workload
    from advisor.messages import SUMMARY, say

    started = time.monotonic()
    run_folder = output / "run"
    workload = load_workload(shipped("workloads") / "gpt2.yaml")
    workload = workload.with_settings(settings(nproc, healthy=healthy))
    chosen = () if healthy else inject or (DEFAULT_FAULT,)
    faults = parse_faults(chosen, {"the demo": workload})
    click.echo(f"Profiling a tiny GPT-2 under DDP on {nproc} processes (gloo, CPU) ...", err=True)
    busy = busy_machine()
    run_one(workload, run_folder, How(faults=faults, force=True, quiet=True))
    click.echo("Diagnosing the traces ...", err=True)
    with api.load(
        run_folder, store=output / "run.duckdb", force=True, command="advisor demo"
    ) as run:
        injected = injected_line(chosen, {fault.rank for fault in faults}, run.report)
        click.echo(injected.replace("`", "") or "No fault was injected.")
        if busy:
            click.echo(busy)
        show(run.render("text", color=use_color(color)))
        page = Output("html", output / "report.html")
        page.write(run.render("html", injected=injected))
        run.store.save()
    click.echo(
        f"Wrote {page.path}, for any browser, and {output / 'run.duckdb'} "
        f"({time.monotonic() - started:.0f} s)"
    )
    click.echo(say(SUMMARY, "after-demo", {"healthy": healthy}))
    sys.stdout.flush()
    return 0


def settings(nproc: int, *, healthy: bool) -> dict[str, Any]:
    """What the demo changes in the workload; a healthy run has few steps that are only timed."""
    chosen = {"world_size": nproc, "strategy": "ddp", "steps": _STEPS}
    if healthy:
        chosen |= {"micro_batch": _HEALTHY_SEQUENCES, "timed_steps": 0}
    return chosen


def injected_line(chosen: Sequence[str], ranks: set[int], report: FindingsReport) -> str:
    """Which faults were injected, and which finding names their ``ranks``: on a busy machine its
    load may cost more, and leads. '' without a fault."""
    from advisor.messages import SUMMARY, say
    from advisor.report import summary

    if not chosen:
        return ""
    number, cause = next(
        ((number, summary.title(item)) for number, item in summary.numbered(report)
         if item.savings_ns and item.ranks and ranks.issuperset(item.ranks)),
        (0, ""),
    )  # fmt: skip
    values = {"fault": ", ".join(chosen), "number": number, "cause": cause}
    return say(SUMMARY, "injected", values)


def busy_machine() -> str:
    """That other programs keep this machine busy, which the diagnosis will see; '' if none do."""
    from advisor.messages import SUMMARY, say

    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    if load < _BUSY * cores:
        return ""
    return say(SUMMARY, "busy", {"load": load, "cores": cores})
