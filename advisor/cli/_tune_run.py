"""Runs a prepared sweep, and prints and writes what came of it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.errors import AdvisorError, EndedBySignalError, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model.nccl.settings import Call
    from advisor.model.nccl.version import NcclVersion
    from advisor.tune.modelled import NcclModel
    from advisor.tune.recommend import Recommendation
    from advisor.tune.search import Predicted
    from advisor.tune.sweep import Sweep
    from advisor.tune.trial import TrialResult


@dataclass(frozen=True)
class Prepared:
    """``unheeded`` is what this job ignores of the space, ``left_out`` all that is not swept."""

    plan: Sweep
    unheeded: Sequence[str] = ()
    left_out: Sequence[str] = ()
    model: NcclModel | None = None


def sweep_through(ready: Prepared, version: NcclVersion, *, resume: bool, quiet: bool) -> int:
    """Run what was prepared to its end, and print and write what came of it."""
    from advisor.cli import _tune_output as output_lines
    from advisor.profile.failures import LaunchStoppedError
    from advisor.store.running import was_stopped
    from advisor.tune import recommend as outcome
    from advisor.tune import run as engine

    plan, model = ready.plan, ready.model
    if not quiet:
        output_lines.announce(plan, ready.unheeded, model)
    progress = output_lines.Progress(plan, quiet=quiet)
    try:
        engine.run(plan, resume=resume, predict=_predictions, notify=progress)
        result = outcome.recommend(plan, [*ready.left_out, *(model.left_out if model else ())])
        files = outcome.write_files(plan, result, plan.folder)
        output_lines.print_result(plan, result)
        files += _report(plan, result, version, model)
    except LaunchStoppedError as error:
        number = int(getattr(error.__cause__, "sigval", signal.SIGTERM))
        return _stopped(plan, error.message, number)
    except (KeyboardInterrupt, Exception) as error:
        # Ctrl-C between two trials, or while the results are written.
        if not isinstance(error, KeyboardInterrupt) and not was_stopped(error):
            if (known := refused(error, plan.folder)) is None:
                raise
            known.hint += "; the same command with --resume goes on from the last whole trial"
            raise known from error
        number = EndedBySignalError.last
        return _stopped(plan, f"stopped by {signal.Signals(number).name}", number)
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
    from advisor.store.columns import insert_rows
    from advisor.tune import modelled, page

    store = page.build_store(sweep)
    if store is None:
        return []
    with store:
        name = sweep.job.name
        calls = modelled.calls_of(store.con, name)
        if model is not None:
            settings = model.rank(calls)
            print_modelled(settings, model)
            rows = modelled.trial_rows(name, len(sweep.results), settings)
            insert_rows(store.con, "trial", rows)
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
