"""``advisor open``: the stretch of trace behind a finding, in Perfetto or as a small file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli import _options as options
from advisor.cli._options import FiniteRange, argument, option
from advisor.cli._output import Output, check_report_target, refuse_inputs
from advisor.errors import AdvisorError
from advisor.vocabulary.numbers import decimal

if TYPE_CHECKING:
    from advisor.findings import Finding, FindingsReport
    from advisor.report.perfetto import TraceCrop


@options.command(epilog="Example:  advisor open 1 traces/ --write slow-link.json")
def command(
    finding: str = argument(metavar="FINDING"),
    paths: tuple[str, ...] = argument(metavar="[PATH]...", type=click.Path()),
    findings: Path | None = option(
        metavar="FILE",
        help="findings.json whose numbering and inputs to use; default ./findings.json without "
        "PATH.",
    ),
    write: Path | None = option(
        metavar="FILE",
        help="Write the trace of the window instead of serving it; needs no network.",
    ),
    context: float = option(
        type=FiniteRange(min=0, max=1_000),
        default=0.25,
        show_default=True,
        help="How much to keep before and after, in windows of the finding.",
    ),
    no_browser: bool = option(help="Print the link, do not open a browser."),
    force: bool = option(help="Replace an existing FILE."),
) -> None:
    """Show the moment behind FINDING (its number, id or rule) in ui.perfetto.dev.

    PATH is what `advisor diagnose` was given, or a store. The trace stays on this machine: the
    page fetches it from the loopback address, once, and Perfetto works inside the browser. Our
    process in it says who waited for whom; --write makes a file that opens offline.
    """
    from advisor import api
    from advisor.report.perfetto import finding_trace

    if write is not None:
        refuse_inputs([write], [*paths, *([findings] if findings else [])])
        check_report_target(write, force=force)
    known = _read_findings(findings) if findings or not paths else None
    read = [one.recordings or one.inputs for one in known.runs] if known else []
    inputs = list(paths) or [path for run in read for path in run]
    if not inputs:
        raise AdvisorError("findings.json names no inputs", hint="name them: advisor open 1 PATH")
    with api.load(*inputs) as run:
        chosen = choose((known or run.report).findings, finding)
        crop = finding_trace(run.store, chosen, context=context)
    if crop.left_out:
        click.echo(f"{crop.left_out:,} of the shortest events are left out", err=True)
    if write is not None:
        Output("json", write).write(crop.text)
        click.echo(f"Wrote {write} ({crop.events:,} events). Open it in {_PERFETTO_HINT}")
        return
    serve(crop, browser=not no_browser)


_PERFETTO_HINT = "ui.perfetto.dev, a local Perfetto, or chrome://tracing"


def choose(findings: list[Finding], wanted: str) -> Finding:
    """The finding with this number (from 1), id or, if it is the only one, rule."""
    number = decimal(wanted, 1, len(findings))
    if number is not None:
        return findings[number - 1]
    named = [item for item in findings if item.id == wanted]
    named = named or [item for item in findings if item.rule == wanted]
    if len(named) == 1:
        return named[0]
    listed = "; ".join(f"{place} {item.id}" for place, item in enumerate(findings, 1))
    problem = "is the rule of several findings" if named else "is none of the findings"
    raise AdvisorError(f"'{wanted}' {problem}", hint=f"there are: {listed or 'no findings'}")


def _read_findings(path: Path | None) -> FindingsReport:
    from pydantic import ValidationError

    from advisor.findings import FindingsReport

    path = path or Path("findings.json")
    try:
        return FindingsReport.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise AdvisorError(
            "no such file", where=str(path), hint="name the traces: advisor open 1 PATH"
        ) from error
    except (OSError, ValidationError) as error:
        raise AdvisorError("not a findings.json of this version", where=str(path)) from error


def serve(crop: TraceCrop, *, browser: bool) -> None:
    """Serve the trace on the loopback address until it was fetched once or Ctrl-C."""
    import webbrowser

    from advisor.cli._trace_server import TraceServer
    from advisor.report.perfetto import PORT, deep_link

    try:
        server = TraceServer(crop.text.encode(), PORT)
    except OSError as error:
        raise AdvisorError(
            f"port {PORT} of the loopback address is taken, and Perfetto reads from no other",
            hint="end the program that uses it, or write a file: --write FILE",
        ) from error
    with server:
        link = deep_link(server.url, crop)
        click.echo(link)
        click.echo(
            "Waiting for Perfetto to fetch the trace; Ctrl-C to stop. Where the browser asks "
            "whether the page may reach this device (Chrome does), allow it.",
            err=True,
        )
        if browser and not webbrowser.open(link):
            click.echo("No browser here: open the link on this machine.", err=True)
        try:
            while not server.fetched:
                server.handle_request()
        except KeyboardInterrupt:
            sys.exit(130)
    click.echo("Fetched.", err=True)
