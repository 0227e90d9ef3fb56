"""``advisor diagnose``: traces in, findings out."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli._output import Output, plan_outputs, use_color
from advisor.cli._progress import progress_bar
from advisor.cli._targets import refuse_inputs
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.findings import FindingsReport

_MOST_NOTES = 20
_FAIL_ORDER = {"critical": 0, "warning": 1, "info": 2}


@click.command(
    epilog="Example:  advisor diagnose traces/ nccl.log --format text,html --fail-on warning"
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option(
    "--nccl-log",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="Also read this NCCL_DEBUG log.",
)
@click.option(
    "--nsys",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="Also read this nsys sqlite export.",
)
@click.option(
    "--format",
    "formats",
    default="text",
    show_default=True,
    help="text, html, json, junit, github, markdown; several with commas.",
)
@click.option("-o", "--output", type=click.Path(), help="File; a folder for several formats.")
@click.option("--store", type=click.Path(path_type=Path), help="Keep the tables in this file.")
@click.option(
    "--fail-on",
    type=click.Choice(["critical", "warning", "info", "never"]),
    default="never",
    show_default=True,
    help="Exit with 1 when a finding is at least this severe.",
)
@click.option("--select", multiple=True, metavar="RULE", help="Run only this rule (repeatable).")
@click.option("--ignore", multiple=True, metavar="RULE", help="Leave this rule out (repeatable).")
@click.option("--rules", "rule_dirs", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Also run the rules in this folder.")  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Show the evidence of each finding.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and notes on stderr.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
@click.option(
    "--lean",
    is_flag=True,
    help="Keep device events, collectives, annotations and what they rest on.",
)
@click.option("--force", is_flag=True, help="Replace existing output files.")
@click.option("--watch", "watching", is_flag=True, help="Diagnose again whenever PATH changes.")
@click.option("--watch-interval", default=5.0, show_default=True, help="Seconds between looks.")
@click.option("--watch-rounds", type=int, hidden=True)
def command(
    paths: tuple[str, ...],
    nccl_log: tuple[str, ...],
    nsys: tuple[str, ...],
    formats: str,
    output: str | None,
    store: Path | None,
    fail_on: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    rule_dirs: tuple[Path, ...],
    verbose: bool,
    quiet: bool,
    color: str,
    lean: bool,
    force: bool,
    watching: bool,
    watch_interval: float,
    watch_rounds: int | None,
) -> int:
    """Say what costs the time in PATH... and what to change.

    PATH is a trace (Chrome/Kineto JSON, .gz or not), a directory, a glob, an NCCL log, an nsys
    sqlite export, nccl-tests output, a flight-recorder dump, an op table, or a store; any mix of
    one run.
    """
    from advisor import api

    if watching:
        from advisor.cli._watch import watch

        def again() -> str:
            with api.load(*paths, *nccl_log, *nsys, lean=lean, command=_command_line()) as run:
                run.diagnose(rule_dirs=rule_dirs, select=select, ignore=ignore)
                return run.render("text", verbose=verbose, color=use_color(color))

        watch([*paths, *nccl_log, *nsys], watch_interval, again, rounds=watch_rounds)
        return 0
    everything = [Path(path) for path in (*paths, *nccl_log, *nsys)]
    outputs = plan_outputs(formats, output, force=force, inputs=everything)
    _check_store(store, outputs, everything, force=force)
    started = time.monotonic()
    with progress_bar(everything, enabled=not quiet) as progress:
        run = api.load(
            *everything,
            store=store,
            lean=lean,
            force=force,
            command=_command_line(),
            progress=progress,
        )
    with run:
        report = run.diagnose(rule_dirs=rule_dirs, select=select, ignore=ignore)
        if not quiet:
            _note_what_was_read(report, time.monotonic() - started)
        for item in outputs:
            options = {"verbose": verbose, "color": use_color(color)} if item.is_text else {}
            _emit(item, run.render(item.format, **options), quiet=quiet)
        if store is not None:
            run.store.save()
            if not quiet:
                click.echo(f"Wrote {store}", err=True)
    worst = min((_FAIL_ORDER[f.severity] for f in report.findings), default=99)
    return 1 if fail_on != "never" and worst <= _FAIL_ORDER[fail_on] else 0


def _check_store(
    store: Path | None, outputs: Sequence[Output], inputs: Sequence[Path], *, force: bool
) -> None:
    """Raise AdvisorError before anything is read where the store could not be kept."""
    from advisor.store.target import check_store_target

    if store is None:
        return
    refuse_inputs([store], inputs)
    if any(item.path is not None and item.path.resolve() == store.resolve() for item in outputs):
        raise AdvisorError("is to be both the store and a report", where=str(store))
    check_store_target(store, force=force)


def _emit(item: Output, text: str, *, quiet: bool) -> None:
    if item.path is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    item.write(text)
    if not quiet:
        click.echo(f"Wrote {item.path}", err=True)


def _note_what_was_read(report: FindingsReport, seconds: float) -> None:
    several = len(report.runs) > 1
    if several:
        click.echo(
            f"These files are of {len(report.runs)} recordings: each is diagnosed by itself",
            err=True,
        )
    for run in report.runs:
        name = f"{run.run}: " if several else ""
        dropped = f", {run.events_dropped:,} dropped" if run.events_dropped else ""
        if not run.ranks_read:
            files = len(run.inputs)
            click.echo(
                f"{name}Read {files} file{'s' if files != 1 else ''}, no trace among them, "
                f"in {seconds:.1f} s",
                err=True,
            )
            _note_losses(run.notes)
            continue
        events = f"{run.events_read:,} events" if run.events_read else "no trace among them"
        click.echo(
            f"{name}Read {run.ranks_read} rank{'s' if run.ranks_read != 1 else ''}, "
            f"{events}{dropped} in {seconds:.1f} s",
            err=True,
        )
        _note_losses(run.notes)


def _note_losses(notes: list[str]) -> None:
    """What was lost in reading; other notes can wait for the report."""
    losses = [
        note for note in notes if note.startswith(("the recording of rank", "rank ", "file "))
    ]
    for note in losses[:_MOST_NOTES]:
        click.echo(f"  {note}", err=True)
    if len(losses) > _MOST_NOTES:
        click.echo(f"  and {len(losses) - _MOST_NOTES} more: see the report", err=True)


def _command_line() -> str:
    return shlex.join(["advisor", *sys.argv[1:]])
