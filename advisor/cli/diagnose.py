"""``advisor diagnose``: traces in, findings out."""

import shlex
from pathlib import Path
from typing import Literal

import click

from advisor.cli import _options as options
from advisor.cli._diagnosis import Diagnosis, check_store
from advisor.cli._options import FiniteRange, argument, option
from advisor.cli._output import plan_outputs

_LEAST_S, _MOST_S = 0.1, 86_400.0


@options.command(
    epilog="Example:  advisor diagnose traces/ nccl.log --format text,html --fail-on warning"
)
def command(
    paths: tuple[str, ...] = argument(required=True, metavar="PATH...", type=click.Path()),
    nccl_log: tuple[str, ...] = option(
        metavar="FILE", type=click.Path(), help="Also read this NCCL_DEBUG log."
    ),
    nsys: tuple[str, ...] = option(
        metavar="FILE", type=click.Path(), help="Also read this nsys sqlite export."
    ),
    hardware: str | None = option(
        metavar="MACHINE",
        help="The machine that a benchmark ran on: a name of the hardware table, or a YAML file.",
    ),
    formats: str | None = option(
        "--format",
        help="text, html, json, junit, github, markdown, chat; several with commas.  "
        "[default: by -o, else text]",
    ),
    output: str | None = option(
        "-o", "--output", type=click.Path(), help="File; a folder for several formats."
    ),
    store: Path | None = option(help="Keep the tables in this file."),
    fail_on: Literal["critical", "warning", "info", "never"] = option(
        default="never",
        show_default=True,
        help="Exit with 1 when a finding is at least this severe.",
    ),
    select: tuple[str, ...] = option(metavar="RULE", help="Run only this rule (repeatable)."),
    ignore: tuple[str, ...] = option(metavar="RULE", help="Leave this rule out (repeatable)."),
    rule_dirs: tuple[Path, ...] = option(
        "--rules", metavar="DIR", help="Also run the rules in this folder."
    ),
    verbose: bool = option("-v", "--verbose", help="Show the evidence of each finding."),
    quiet: bool = option("-q", "--quiet", help="No progress and notes on stderr."),
    color: Literal["auto", "always", "never"] = option(default="auto"),
    lean: bool = option(help="Keep device events, collectives, annotations and what they rest on."),
    share: bool = option(help="Put pseudonyms for hosts, users and paths."),
    force: bool = option(help="Replace existing output files."),
    watching: bool = option("--watch", help="Diagnose again whenever PATH changes."),
    watch_interval: float = option(
        default=5.0,
        show_default=True,
        type=FiniteRange(_LEAST_S, _MOST_S),
        help=f"Seconds between looks, {_LEAST_S:g} or more.",
    ),
    watch_rounds: int | None = option(type=int, hidden=True),
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
