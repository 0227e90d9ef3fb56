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
    from advisor.model.nccl.settings import SettingCost
    from advisor.tune.recommend import Recommendation
    from advisor.tune.search import Predicted
    from advisor.tune.sweep import Plan, Sweep
    from advisor.tune.trial import TrialResult

_DEFAULT_BUDGET = "8m"
_NOISY = 0.1
_NCCL = "2.29.7"  # what torch 2.12 and 2.13 ship


@click.command(
    epilog="Example:  advisor tune --sweep workloads/gpt2.yaml --budget 20 -o runs/sweep"
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
    help="Trials (20) or time (8m); the search fits into it.",
)
@click.option("--timeout", default=120.0, show_default=True, help="Seconds without progress.")
@click.option(
    "--topology",
    metavar="MACHINE",
    help="Also model NCCL's settings on this machine (dgx-h100 ...); never counted as measured.",
)
@click.option("--nodes", default=1, show_default=True, help="Nodes of --topology.")
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
    nodes: int,
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
    limit, seconds = parse_budget(budget)
    from advisor.config.paths import shipped
    from advisor.config.sweep import default_space, load_space, on_interface
    from advisor.config.workload import load_workload
    from advisor.profile.failures import LaunchStoppedError
    from advisor.tune import recommend as outcome
    from advisor.tune import sweep as engine
    from advisor.tune.prepare import prepare

    job = load_workload(workload or shipped("workloads") / "gpt2.yaml")
    overrides = {"strategy": strategy, "world_size": nproc}
    job = job.with_settings({k: v for k, v in overrides.items() if v is not None})
    backend = "nccl" if job.device == "cuda" else "gloo"
    axes_file = load_space(space) if space else default_space(backend)
    axes, ignored = axes_file.for_job(backend, job.strategy)
    axes = on_interface(axes, os.environ.get("GLOO_SOCKET_IFNAME"))
    folder = output or Path("advisor-sweep")
    unheeded = [axis.why_ignored(backend, job.strategy) for axis in ignored]
    if not axes:
        raise AdvisorError(
            f"nothing to vary: {'; '.join(unheeded)}",
            where=str(space or backend),
            hint="name an axis that this job heeds, or take the default space (no --space)",
        )
    plan = prepare(
        job, axes, folder, dict(os.environ), limit=limit, seconds=seconds, timeout_s=timeout
    )
    if not quiet:
        _announce(plan, unheeded)
    progress = _Progress(plan, quiet=quiet)
    try:
        engine.run(plan, resume=resume, predict=_predictions, notify=progress)
    except LaunchStoppedError as error:
        stopped = AdvisorError(
            f"{error.message}; finished trials: {len(plan.results)}",
            hint="the same command with --resume goes on from there",
        )
        click.echo(f"advisor: {stopped}", err=True)
        # As shells expect it of a process that a signal ended: 130 or 143.
        return 128 + int(getattr(error.__cause__, "sigval", signal.SIGTERM))
    left_out = [*unheeded, *(f"{item.setting}: {item.why}" for item in axes_file.left_out)]
    result = outcome.recommend(plan, left_out)
    files = outcome.write_files(plan, result, folder)
    _print_result(plan, result)
    files += _report(plan, result, topology, nodes, nccl_version or _NCCL)
    for file in files:
        click.echo(f"Wrote {file}", err=True)
    return 0


def parse_budget(text: str) -> tuple[int | None, float | None]:
    """``20`` is trials; ``90s``, ``8m``, ``1h`` is time. Returns (trials, seconds)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise AdvisorError(
            f"--budget {text!r} is neither trials nor time", hint="for example 20, 90s, 8m or 1h"
        )
    if not match[2]:
        return int(float(match[1])), None
    return None, float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


class _Progress:
    """One line per trial on stderr, with the time left."""

    def __init__(self, sweep: Sweep, *, quiet: bool) -> None:
        self._sweep = sweep
        self._quiet = quiet

    def __call__(self, plan: Plan | None, result: TrialResult | None) -> None:
        if self._quiet or result is None:
            return
        from advisor.tune.recommend import describe, faster

        start = self._sweep.start
        changes = {k: v for k, v in result.configuration.items() if v != start[k]}
        name = describe(changes) or "present settings"
        if result.is_timed:
            ratio = next(
                (r for t, r in self._sweep.with_ratios() if t.number == result.number), None
            )
            gain = "" if ratio is None else f"  {faster(ratio)}"
            note = "" if result.status == "ok" else f"  {result.status}"
            figure = f"{result.median_ns / 1e6:9.2f} ms ±{result.mad_ns / 1e6:.2f}{gain}{note}"
        else:
            reason = result.message.splitlines()[0] if result.message else ""
            figure = f"{result.status}: {reason}"[:60]
        number = f"{result.number + 1:3d}"
        click.echo(f"{number} {result.purpose:9s} {name:44s} {figure}{self._left()}", err=True)

    def _left(self) -> str:
        seconds = self._sweep.left_s
        if seconds is None:
            return ""
        return (
            f"  (about {seconds / 60:.0f} min left)"
            if seconds >= 90
            else f"  ({seconds:.0f} s left)"
        )


def _predictions(sweep: Sweep, traced: TrialResult) -> Predicted:
    from advisor.tune.predictions import from_trace
    from advisor.tune.search import Predicted

    try:
        return from_trace(sweep.folder / "trials" / traced.folder, sweep.axes, sweep.start)
    except AdvisorError as error:
        click.echo(f"no predictions from the baseline's trace: {error}", err=True)
        return Predicted()


def _announce(sweep: Sweep, unheeded: list[str]) -> None:
    settings = ", ".join(axis.setting.removeprefix("env.") for axis in sweep.axes)
    most = sweep.limit
    if sweep.seconds is not None:
        limit = f"as many as fit into {sweep.seconds / 60:.3g} min, at most {most}"
    else:
        limit = f"at most {most} tried"
    click.echo(f"Sweeping {settings}: {len(sweep.points)} combinations, {limit}", err=True)
    for line in unheeded:
        click.echo(line, err=True)
    if sweep.fixed:
        listed = ", ".join(name.removeprefix("env.") for name in sweep.fixed)
        click.echo(f"Not swept, this job has one value only: {listed}", err=True)


def _print_result(sweep: Sweep, result: Recommendation) -> None:
    from advisor.tune.recommend import describe, faster

    click.echo(f"RESULT   {result.verdict}")
    if result.baseline_step_ns is not None:
        click.echo(f"NOW      {result.baseline_step_ns / 1e6:.2f} ms per step")
    noise, seen = result.resolution_share, result.confirmed_resolution_share
    if seen is not None and seen > _NOISY:
        low, high = sweep.baseline_range_ms
        click.echo(
            f"NOISE    the present settings alone ran from {low:.1f} to {high:.1f} ms: gains below "
            f"{seen:.1%} cannot be seen; a quiet machine shows more"
        )
    click.echo(
        f"TRIED    {result.tried_points - 1} of {result.grid_points - 1} other combinations, in "
        f"{len(sweep.results)} trials: "
        + ", ".join(f"{count} {status}" for status, count in sorted(result.trials.items()))
    )
    ranked = sorted(
        ((t.ratio, t.configuration) for t in sweep.tried() if t.ratio is not None),
        key=lambda entry: entry[0],
    )
    for ratio, configuration in ranked[:5]:
        changes = {k: v for k, v in configuration.items() if v != sweep.start[k]}
        hidden = noise is not None and abs(1 - ratio) <= noise
        note = " (within the noise)" if hidden else ""
        click.echo(f"         {faster(ratio):>14s}  {describe(changes)}{note}")
    if result.recommended:
        click.echo(f"NEXT     sh {sweep.folder / 'run.sh'}")


def _report(
    sweep: Sweep, result: Recommendation, topology: str | None, nodes: int, nccl: str
) -> list[Path]:
    """The store, the page, and what the model says of NCCL's settings on the named machine."""
    from advisor.model.nccl.version import parse_version
    from advisor.tune import modelled, page

    version = parse_version(nccl)
    store = page.build_store(sweep, [])
    if store is None:
        return []
    with store:
        calls = modelled.calls_of(store.con, sweep.workload.name)
        if topology is not None:
            settings = modelled.nccl_settings(calls, topology, nodes, version)
            _print_modelled(settings, topology, nodes, nccl)
            rows = modelled.trial_rows(sweep.workload.name, len(sweep.results), settings)
            store.con.executemany("INSERT INTO trial VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        files = [page.write_report(store, sweep, result)]
        rules = modelled.tuner_rules(result.changes, calls, version)
        files += modelled.write_tuner(rules, version, sweep.folder, result.verdict)
        store.save()
        return [*files, sweep.folder / "sweep.duckdb"]


def _print_modelled(settings: list[SettingCost], topology: str, nodes: int, nccl: str) -> None:
    click.echo(f"MODELLED NCCL {nccl} on {nodes} x {topology}, this job's calls; not measured")
    for row in settings:
        name = f"{row.variable}={row.value}" if row.variable else "NCCL's own choice"
        if row.time_us is None:
            click.echo(f"         {'fails':>10s}  {name}: breaks {', '.join(row.breaks)}")
        else:
            share = "" if row.extra_share is None else f"  {row.extra_share:+.1%}"
            click.echo(f"         {row.time_us:8.1f} us  {name}{share}")


def _check_env(nccl_version: str | None) -> int:
    from advisor.cli.check_env import check

    return check(dict(os.environ), nccl_version)
