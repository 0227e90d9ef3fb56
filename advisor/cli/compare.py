"""``advisor compare``: runs beside each other, with significance; a gate for regressions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli._output import Output, plan_outputs
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.metrics.compare import RunFigures
    from advisor.metrics.comparison import Comparison, Timed

_GATES = ("step_time", "exposed_comm", "idle", "memory")


@click.command(
    epilog="Example:  advisor compare runs/single runs/ddp runs/fsdp2 --fail-if 'step_time>3%'"
)
@click.argument("runs", nargs=-1, required=True, metavar="BASE RUN...")
@click.option("--format", "formats", default="text", show_default=True, help="text, json, html.")
@click.option("-o", "--output", type=click.Path(), help="File; a folder for several formats.")
@click.option(
    "--fail-if",
    "gates",
    multiple=True,
    metavar="METRIC>N%",
    help=f"Exit with 1 when a run is worse than BASE by more: {', '.join(_GATES)}.",
)
@click.option("--operators", default=10, show_default=True, help="Operators listed per run.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--force", is_flag=True, help="Replace existing output files.")
def command(
    runs: tuple[str, ...],
    formats: str,
    output: str | None,
    gates: tuple[str, ...],
    operators: int,
    quiet: bool,
    force: bool,
) -> int:
    """Compare RUNs (folders of traces, single traces, or stores) with BASE.

    Step times come from profile.json where there is one (steps timed without the profiler), else
    from the traced steps; a difference counts when its 95 % interval leaves out zero.
    """
    if len(runs) < 2:
        raise click.UsageError("name at least two runs")
    checks = [_parse_gate(text) for text in gates]
    outputs = plan_outputs(formats, output, force=force)
    from advisor import api
    from advisor.cli import _compare_tables as tables
    from advisor.metrics.comparison import comparison

    names = api.run_names(runs)
    timed = {name: _timed(Path(path)) for name, path in zip(names, runs, strict=True)}
    loaded = api.load_runs(runs)
    with loaded:
        found = comparison(loaded.store.con, timed, operators=operators)
        for item in outputs:
            if item.format == "html":
                text = loaded.render("html", comparison=found)
            elif item.format == "json":
                text = json.dumps(tables.document(found), indent=1)
            else:
                text = tables.text(found)
            _emit(item, text, quiet=quiet)
    failed = [line for check in checks for line in _failures(check, found)]
    for line in failed:
        click.echo(f"FAILED   {line}", err=True)
    return 1 if failed else 0


def _timed(path: Path) -> Timed:
    """Step times and tokens per step from profile.json beside the traces, if there is one."""
    from advisor.metrics.comparison import Timed

    file = path / "profile.json"
    if not file.is_file():
        return Timed()
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        samples = (document.get("step_ns") or {}).get("samples") or []
        tokens = document.get("tokens_per_step")
        return Timed([int(value) for value in samples], None if tokens is None else int(tokens))
    except (ValueError, AttributeError, TypeError) as error:
        raise AdvisorError(f"cannot be read: {error}", where=str(file)) from error


def _parse_gate(text: str) -> tuple[str, float]:
    match = re.fullmatch(r"\s*([a-z_]+)\s*>\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if match is None or match[1] not in _GATES:
        raise AdvisorError(
            f"--fail-if {text!r} is not understood",
            hint=f"for example step_time>3%; metrics: {', '.join(_GATES)}",
        )
    return match[1], float(match[2]) / 100


def _failures(gate: tuple[str, float], found: Comparison) -> list[str]:
    metric, limit = gate
    lines = []
    for row, step in zip(found.runs[1:], found.differences, strict=True):
        if metric == "step_time":
            # Noise must not fail a build: the whole interval has to be above no change.
            if step.share > limit and step.low > 0:
                lines.append(
                    f"{row.run}: step_time {step.share:+.1%} ({step.low:+.1%} to {step.high:+.1%}) "
                    f"is worse than {limit:.1%}"
                )
            continue
        before, after = _value(found.base, metric), _value(row, metric)
        if before and after is not None and after / before - 1 > limit:
            lines.append(f"{row.run}: {metric} {after / before - 1:+.1%} is worse than {limit:.1%}")
    return lines


def _value(row: RunFigures, metric: str) -> float | None:
    known = {
        "exposed_comm": row.exposed_comm_ns,
        "idle": row.idle_ns,
        "memory": row.peak_memory_bytes,
    }
    return known[metric]


def _emit(item: Output, text: str, *, quiet: bool) -> None:
    if item.path is None:
        click.echo(text)
        return
    item.write(text)
    if not quiet:
        click.echo(f"Wrote {item.path}", err=True)
