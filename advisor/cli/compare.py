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
    from advisor.metrics.compare import Difference, RunFigures

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
    from advisor.metrics import compare
    from advisor.metrics.theory import theory

    loaded = api.load_runs(runs)
    with loaded:
        con = loaded.store.con
        found = []
        for name, path in zip(api.run_names(runs), runs, strict=True):
            timed, tokens = _profile(Path(path))
            row = compare.figures(con, name, timed_ns=timed, tokens_per_step=tokens)
            if row is None:
                raise AdvisorError(
                    "no complete step in this run", where=path, hint="record at least two steps"
                )
            found.append(row)
        base, others = found[0], found[1:]
        differences = [
            compare.difference(base.step_samples_ns, row.step_samples_ns) for row in others
        ]
        changes = {
            row.run: compare.operators(con, base.run, row.run, limit=operators) for row in others
        }
        theories = [theory(con, row.run) for row in found]
        document = tables.document(found, differences, changes, theories)
        for item in outputs:
            if item.format == "html":
                text = loaded.render("html")
            elif item.format == "json":
                text = json.dumps(document, indent=1)
            else:
                text = tables.table(found, differences, theories) + tables.traffic(found, theories)
                text += tables.operators(changes)
            _emit(item, text, quiet=quiet)
    failed = [line for check in checks for line in _failures(check, base, others, differences)]
    for line in failed:
        click.echo(f"FAILED   {line}", err=True)
    return 1 if failed else 0


def _profile(path: Path) -> tuple[list[int], int | None]:
    """Step times and tokens per step from profile.json beside the traces, if there is one."""
    file = path / "profile.json"
    if not file.is_file():
        return [], None
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        samples = (document.get("step_ns") or {}).get("samples") or []
        tokens = document.get("tokens_per_step")
        return [int(value) for value in samples], None if tokens is None else int(tokens)
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


def _failures(
    gate: tuple[str, float],
    base: RunFigures,
    others: list[RunFigures],
    differences: list[Difference],
) -> list[str]:
    metric, limit = gate
    lines = []
    for row, step in zip(others, differences, strict=True):
        if metric == "step_time":
            # Noise must not fail a build: the whole interval has to be above no change.
            if step.share > limit and step.low > 0:
                lines.append(
                    f"{row.run}: step_time {step.share:+.1%} ({step.low:+.1%} to {step.high:+.1%}) "
                    f"is worse than {limit:.1%}"
                )
            continue
        before, after = _value(base, metric), _value(row, metric)
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
