"""What ``advisor tune --sweep`` prints: a line per trial, the result, and what the model says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.model.nccl.settings import SettingCost
    from advisor.tune.modelled import NcclModel
    from advisor.tune.recommend import Recommendation
    from advisor.tune.sweep import Plan, Sweep
    from advisor.tune.trial import TrialResult

_NOISY = 0.1


class Progress:
    """One line per trial on stderr, with the time left; of a failed one also why, and its logs."""

    def __init__(self, sweep: Sweep, *, quiet: bool) -> None:
        self._sweep = sweep
        self._quiet = quiet

    def __call__(self, plan: Plan | None, result: TrialResult | None) -> None:
        if self._quiet or result is None:
            return
        from advisor.report.numbers import milliseconds
        from advisor.tune.verdict import describe, faster

        name = describe(self._sweep.changes(result.configuration)) or "present settings"
        if result.is_timed:
            ratio = next(
                (r for t, r in self._sweep.with_ratios() if t.number == result.number), None
            )
            gain = "" if ratio is None else f"  {faster(ratio)}"
            note = "" if result.status == "ok" else f"  {result.status}"
            median, spread = milliseconds(result.median_ns), milliseconds(result.mad_ns)
            figure = f"{median:>9s} ms ±{spread}{gain}{note}"
        else:
            figure = f"{result.status:>9s}"
        number = f"{result.number:3d}"
        click.echo(f"{number} {result.purpose:9s} {name:44s} {figure}{self._left()}", err=True)
        for line in [] if result.is_timed else self._why(result):
            click.echo(f"{'':14s}{line}", err=True)

    def _why(self, result: TrialResult) -> list[str]:
        logs = self._sweep.folder / "trials" / result.folder / "logs"
        return [
            *result.message.splitlines()[:1],
            *([f"logs: {logs}"] if result.folder and logs.is_dir() else []),
        ]

    def _left(self) -> str:
        seconds = self._sweep.left_s
        if not seconds:
            return ""
        minutes = f"about {seconds / 60:.0f} min"
        return f"  ({minutes if seconds >= 90 else f'{seconds:.0f} s'} left)"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds >= 90 else f"{seconds:.3g} s"


def announce(sweep: Sweep, unheeded: Iterable[str], model: NcclModel | None) -> None:
    """What is about to be run, and what of the space is not."""
    if not sweep.axes and model is not None:
        click.echo(
            "No setting can be measured here: the present settings run once, then NCCL's model on "
            f"{model.nodes} x {model.machine_name}",
            err=True,
        )
        return
    from advisor.tune.budget import trials_of
    from advisor.vocabulary.words import plural

    settings = ", ".join(axis.setting.removeprefix("env.") for axis in sweep.axes)
    most = sweep.limit
    in_all = trials_of(most, len(sweep.points) - 1)
    if sweep.seconds is not None:
        needed = f" (about {_time(sweep.trial_s * in_all)})" if sweep.trial_s else ""
        limit = f"as many as fit into {_time(sweep.seconds)}, at most {most}{needed}"
    else:
        limit = f"at most {most} tried, {in_all} trials in all"
    click.echo(
        f"Sweeping {settings}: {plural(len(sweep.points) - 1, 'other combination')}, {limit}",
        err=True,
    )
    for line in unheeded:
        click.echo(line, err=True)
    if sweep.fixed:
        listed = ", ".join(name.removeprefix("env.") for name in sweep.fixed)
        click.echo(f"Not swept, this job has one value only: {listed}", err=True)
    for line in sweep.refused:
        click.echo(f"Refused {line}", err=True)


def print_result(sweep: Sweep, result: Recommendation) -> None:
    """The verdict, the noise, and the five best of the search."""
    from advisor.tune.recommend import predicted_gain, start_line
    from advisor.tune.verdict import describe, faster, not_reached
    from advisor.vocabulary.words import about, percent, span

    click.echo(f"RESULT   {result.verdict}")
    if result.why:
        click.echo(f"WHY      {result.why}")
    for text in result.also:
        click.echo(f"ALSO     {text}")
    if result.baseline_step_ns is not None:
        emulated = " (compute is emulated)" if sweep.job.is_emulated else ""
        click.echo(f"NOW      {about(result.baseline_step_ns)} per step{emulated}")
    noise, seen = result.resolution_share, result.confirmed_resolution_share
    if seen is not None and seen > _NOISY:
        low, high = sweep.baseline_range_ms
        click.echo(
            f"NOISE    the present settings alone took {span(1e6 * low, 1e6 * high)}: gains below "
            f"{percent(seen)} cannot be seen; a quiet machine shows more"
        )
    if not sweep.axes:
        return
    click.echo(
        f"TRIED    {result.tried_points - 1} of {result.grid_points - 1} other combinations, in "
        f"{len(sweep.results)} trials: "
        + ", ".join(f"{count} {status}" for status, count in sorted(result.trials.items()))
    )
    for line in not_reached(sweep):
        click.echo(f"UNTRIED  {line}")
    ranked = sorted(
        ((t.ratio, t.configuration) for t in sweep.tried() if t.ratio is not None),
        key=lambda entry: entry[0],
    )
    for ratio, configuration in ranked[:5]:
        hidden = noise is not None and abs(1 - ratio) <= noise
        gain = predicted_gain(sweep, configuration)
        said = "" if gain is None else f"; replay: {faster(1 - gain)}"
        note = f"{said} (within the noise)" if hidden else said
        click.echo(f"         {faster(ratio):>14s}  {describe(sweep.changes(configuration))}{note}")
    if result.predicted_gain_share is not None:
        click.echo(f"MODEL    predicted from the trace: {faster(1 - result.predicted_gain_share)}")
    for line in result.how_to_set:
        click.echo(f"WRITE    {line}")
    for line in result.care:
        click.echo(f"CARE     {line}")
    if result.recommended:
        click.echo(f"NEXT     {start_line(sweep.folder)}")


def print_modelled(settings: list[SettingCost], model: NcclModel) -> None:
    """The modelled ranking, labelled as such."""
    from advisor.model.nccl.version import format_version

    where = f"NCCL {format_version(model.version)} on {model.nodes} x {model.machine_name}"
    if not settings:
        click.echo(f"MODELLED {where}: nothing, the model covers none of this job's calls")
        return
    click.echo(f"MODELLED {where}, this job's calls; not measured")
    for row in settings:
        name = f"{row.variable}={row.value}" if row.variable else "NCCL's own choice"
        if row.time_us is None:
            click.echo(f"         {'fails':>10s}  {name}: breaks {', '.join(row.breaks)}")
        else:
            share = "" if row.extra_share is None else f"  {row.extra_share:+.1%}"
            click.echo(f"         {row.time_us:8.1f} us  {name}{share}")
    for text in model.left_out:
        click.echo(f"         {text}")
