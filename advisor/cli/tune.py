"""``advisor tune --sweep``: find settings that make this job faster, or say that none does."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.config.sweep import Axis
    from advisor.model.nccl.settings import Call
    from advisor.model.nccl.version import NcclVersion
    from advisor.tune.modelled import NcclModel
    from advisor.tune.recommend import Recommendation
    from advisor.tune.search import Predicted
    from advisor.tune.sweep import Sweep
    from advisor.tune.trial import TrialResult

_DEFAULT_BUDGET = "8m"
_NCCL = "2.29.7"  # what torch 2.12 and 2.13 ship


@click.command(
    epilog="Example:  advisor tune --sweep workloads/gpt2.yaml --budget 60 -o runs/sweep"
)
@click.argument("workload", required=False, type=click.Path(path_type=Path))
@click.option("--sweep", is_flag=True, help="Run trials of the workload under other settings.")
@click.option("--check-env", is_flag=True, help="Check the NCCL_* variables set in this shell.")
@click.option(
    "--nccl", "nccl_version", metavar="VERSION", help="NCCL version for --check-env and --topology."
)
@click.option("--space", type=click.Path(path_type=Path), help="YAML file of axes to try.")
@click.option("--strategy", help="Strategy instead of the workload's.")
@click.option("--nproc", type=click.IntRange(1), help="Ranks instead of the workload's.")
@click.option(
    "--budget",
    default=_DEFAULT_BUDGET,
    show_default=True,
    metavar="N|Nm|Nh",
    help="Trials in all (60: also those of the present settings and of the confirmation), or time "
    "(8m); the search fits into it.",
)
@click.option(
    "--timeout",
    default=120.0,
    type=click.FloatRange(min=0, min_open=True),
    show_default=True,
    help="Seconds without progress.",
)
@click.option(
    "--topology",
    metavar="MACHINE",
    help="Also model NCCL's settings on this machine (dgx-h100 ...); never counted as measured.",
)
@click.option("--nodes", type=click.IntRange(1), help="Nodes of --topology.  [default: 1]")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder of the sweep.")
@click.option("--resume", is_flag=True, help="Go on with the sweep in the folder.")
@click.option("-q", "--quiet", is_flag=True, help="Only the result.")
def command(
    workload: Path | None,
    sweep: bool,
    check_env: bool,
    nccl_version: str | None,
    space: Path | None,
    strategy: str | None,
    nproc: int | None,
    budget: str,
    timeout: float,
    topology: str | None,
    nodes: int | None,
    output: Path | None,
    resume: bool,
    quiet: bool,
) -> int:
    """Recommend settings for WORKLOAD (default: the tiny GPT-2) that won inside the workload.

    Trials alternate with the present settings; the winner is confirmed in fresh pairs before it
    is recommended, and where nothing wins the answer is to leave the settings alone.
    """
    if check_env:
        return _check_env(nccl_version)
    if not sweep:
        raise click.UsageError("say what to do: --sweep or --check-env")
    if nodes is not None and topology is None:
        raise click.UsageError(
            "--nodes has no effect without --topology; ranks of the job are --nproc"
        )
    nodes = nodes or 1
    trials, seconds = parse_budget(budget)
    from advisor.cli import _tune_output as output_lines
    from advisor.config.paths import shipped
    from advisor.config.sweep import default_space, load_space, on_interface
    from advisor.config.workload import load_workload
    from advisor.model.nccl.version import parse_version
    from advisor.profile.failures import LaunchStoppedError
    from advisor.store.running import was_stopped
    from advisor.tune import recommend as outcome
    from advisor.tune import run as engine
    from advisor.tune.journal import require_journal
    from advisor.tune.modelled import NcclModel
    from advisor.tune.prepare import (
        check_job,
        check_strategies,
        check_variables,
        of_real_work,
        prepare,
        traced_only,
    )

    workload = workload or shipped("workloads") / "gpt2.yaml"
    job = load_workload(workload)
    overrides = {"strategy": strategy, "world_size": nproc}
    job = job.with_settings({k: v for k, v in overrides.items() if v is not None})
    check_job(job)
    backend = "nccl" if job.device == "cuda" else "gloo"
    axes_file = load_space(space) if space else default_space(backend)
    version = parse_version(nccl_version or _NCCL)
    if space:
        check_strategies(space, axes_file.axes)
        check_variables(space, axes_file.axes, version)
    axes, ignored = axes_file.for_job(backend, job.strategy)
    axes = on_interface(axes, os.environ.get("GLOO_SOCKET_IFNAME"))
    model = NcclModel.of(topology, nodes, version, ignored) if topology else None
    folder = output or Path("advisor-sweep")
    if resume:
        require_journal(folder)
    machine = f"{nodes} x {topology}" if topology else ""
    axes, not_real = of_real_work(job, axes)
    unheeded = [axis.why_ignored(backend, job.strategy, modelled_on=machine) for axis in ignored]
    unheeded += not_real
    if axes:
        plan = prepare(
            job, axes, folder, dict(os.environ), trials=trials, seconds=seconds, timeout_s=timeout
        )
    elif model is not None and model.settings:
        plan = traced_only(job, folder, timeout_s=timeout)
    else:
        raise _nothing_to_vary(ignored, unheeded, str(space or backend), model)
    if not quiet:
        output_lines.announce(plan, unheeded, model)
    progress = output_lines.Progress(plan, quiet=quiet)
    left_out = [*unheeded, *(f"{item.setting}: {item.why}" for item in axes_file.left_out)]
    try:
        engine.run(plan, resume=resume, predict=_predictions, notify=progress)
        result = outcome.recommend(plan, [*left_out, *(model.left_out if model else ())])
        files = outcome.write_files(plan, result, folder, source=workload)
        output_lines.print_result(plan, result)
        files += _report(plan, result, version, model)
    except LaunchStoppedError as error:
        number = int(getattr(error.__cause__, "sigval", signal.SIGTERM))
        return _stopped(plan, error.message, number)
    except (KeyboardInterrupt, Exception) as error:
        # Ctrl-C between two trials, or while the results are written.
        if not isinstance(error, KeyboardInterrupt) and not was_stopped(error):
            raise
        return _stopped(plan, "stopped by SIGINT", signal.SIGINT)
    for file in files:
        click.echo(f"Wrote {file}", err=True)
    return 0 if result.baseline_step_ns is not None else 2


def _stopped(sweep: Sweep, how: str, number: int) -> int:
    """Say how to go on. The exit status that shells expect after a signal: 130 or 143."""
    said = AdvisorError(
        f"{how}; finished trials: {len(sweep.results)}",
        hint="the same command with --resume goes on from there",
    )
    click.echo(f"advisor: {said}", err=True)
    return 128 + number


def _nothing_to_vary(
    ignored: list[Axis], unheeded: list[str], where: str, model: NcclModel | None
) -> AdvisorError:
    hint = "name an axis that this job heeds, or take the default space (no --space)"
    if model is not None:
        unheeded = [*unheeded, *model.left_out]
        hint = f"NCCL's model ranks NCCL_ALGO and NCCL_PROTO; or {hint}"
    elif any(axis.is_modelled for axis in ignored):
        hint = (
            "give --topology MACHINE (dgx-h100 ..., or a YAML file) for NCCL's modelled ranking, "
            f"or {hint}"
        )
    return AdvisorError(f"nothing to vary: {'; '.join(unheeded)}", where=where, hint=hint)


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


def _predictions(sweep: Sweep, traced: TrialResult) -> Predicted:
    from advisor.tune.predictions import from_trace
    from advisor.tune.search import Predicted

    try:
        return from_trace(sweep.folder / "trials" / traced.folder, sweep.axes, sweep.start)
    except AdvisorError as error:
        click.echo(f"no predictions from the baseline's trace: {error}", err=True)
        return Predicted()


def _report(
    sweep: Sweep, result: Recommendation, version: NcclVersion, model: NcclModel | None
) -> list[Path]:
    """The store, the page, and what the model says of NCCL's settings on the named machine."""
    from advisor.cli._tune_output import print_modelled
    from advisor.tune import modelled, page

    store = page.build_store(sweep, [])
    if store is None:
        return []
    with store:
        name = sweep.workload.name
        calls = modelled.calls_of(store.con, name)
        if model is not None:
            settings = model.rank(calls)
            print_modelled(settings, model)
            rows = modelled.trial_rows(name, len(sweep.results), settings)
            if rows:
                store.con.executemany(
                    "INSERT INTO trial VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
                )
        files = [page.write_report(store, sweep, result)]
        files += _tuner(sweep, result, calls, modelled.release_of(store.con, name) or version)
        store.save()
        return [*files, sweep.folder / "sweep.duckdb"]


def _tuner(
    sweep: Sweep, result: Recommendation, calls: Sequence[Call], version: NcclVersion
) -> list[Path]:
    """A winner's NCCL_ALGO and NCCL_PROTO as rules by size, or a line that says why not."""
    from advisor.tune import tuner_file

    won = tuner_file.winning_variables(result.changes, sweep.start, os.environ)
    try:
        rules = tuner_file.tuner_rules(won, calls, version)
    except AdvisorError as error:
        click.echo(f"no tuner.csv: {error.message}", err=True)
        return []
    return tuner_file.write_tuner(rules, version, sweep.folder, result.verdict)


def _check_env(nccl_version: str | None) -> int:
    from advisor.cli.check_env import check

    return check(dict(os.environ), nccl_version)
