"""``advisor diagnose``: traces in, findings out."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from advisor.cli._diagnosis import Diagnosis, check_store
from advisor.cli._options import FiniteRange
from advisor.cli._output import plan_outputs

_LEAST_S, _MOST_S = 0.1, 86_400.0


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
    "--hardware",
    metavar="MACHINE",
    help="The machine that a benchmark ran on: a name of the hardware table, or a YAML file.",
)
@click.option(
    "--format",
    "formats",
    help="text, html, json, junit, github, markdown, chat; several with commas.  "
    "[default: by -o, else text]",
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
@click.option("--share", is_flag=True, help="Put pseudonyms for hosts, users and paths.")
@click.option("--force", is_flag=True, help="Replace existing output files.")
@click.option("--watch", "watching", is_flag=True, help="Diagnose again whenever PATH changes.")
@click.option("--watch-interval", default=5.0, show_default=True,
              type=FiniteRange(_LEAST_S, _MOST_S),
              help=f"Seconds between looks, {_LEAST_S:g} or more.")  # fmt: skip
@click.option("--watch-rounds", type=int, hidden=True)
def command(
    paths: tuple[str, ...],
    nccl_log: tuple[str, ...],
    nsys: tuple[str, ...],
    hardware: str | None,
    formats: str | None,
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
    share: bool,
    force: bool,
    watching: bool,
    watch_interval: float,
    watch_rounds: int | None,
) -> int:
    """Say what costs the time in PATH... and what to change.

    PATH is a trace (Chrome/Kineto JSON, .gz or not), a directory, a glob, an NCCL log, an nsys
    sqlite export, nccl-tests output, a flight-recorder dump, an op table, or a store; any mix of
    one run.

    With --watch, PATH need not be there yet. A file that is still being written is left out, and
    named, until it rests; every diagnosis writes --format, -o and --store anew; the first one with
    a finding at --fail-on ends the watch with 1.
    """
    everything = [Path(path) for path in (*paths, *nccl_log, *nsys)]
    there = [path for path in everything if path.exists()] if watching else everything
    outputs = plan_outputs(formats, output, force=force, inputs=there)
    check_store(store, outputs, there, force=force)
    once = Diagnosis(
        inputs=everything,
        outputs=outputs,
        store=store,
        fail_on=fail_on,
        rules={"rule_dirs": rule_dirs, "select": select, "ignore": ignore},
        verbose=verbose,
        quiet=quiet,
        color=color,
        lean=lean,
        hardware=hardware,
        force=force,
        command="advisor diagnose --share" if share else _command_line(),
        share=share,
    )
    if not watching:
        return 1 if once.run() else 0
    from advisor.cli._watch import watch

    once.check_rules()
    found = watch(
        list(map(str, everything)),
        watch_interval,
        once.again,
        own=once.written(),
        rounds=watch_rounds,
    )
    return 1 if found else 0


def _command_line() -> str:
    return shlex.join(["advisor", *(click.get_current_context().find_root().obj or ())])
