"""``advisor compare``: runs beside each other, with significance; a gate for regressions."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import ABOVE_ZERO, argument, option
from advisor.cli._output import plan_outputs, use_color
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.metrics.compare.figures import RunFigures
    from advisor.metrics.compare.runs import Comparison, Timed
    from advisor.metrics.compare.significance import Difference

_GATES = {  # with the figure of each
    "step_time": "step_ns", "exposed_comm": "exposed_comm_ns", "idle": "idle_ns",
    "memory": "peak_memory_bytes",
}  # fmt: skip
_WORSE, _INCONCLUSIVE = 1, 2  # exit statuses
_FILES = {"text": "comparison.txt", "json": "comparison.json", "html": "comparison.html"}


@options.command(
    epilog="Example:  advisor compare runs/single runs/ddp runs/fsdp2 --fail-if 'step_time>3%'"
)
def command(
    runs: tuple[str, ...] = argument(required=True, metavar="BASE RUN...", type=click.Path()),
    formats: str | None = option("--format", help="text, json, html.  [default: by -o, else text]"),
    output: str | None = option(
        "-o", "--output", type=click.Path(), help="File; a folder for several formats."
    ),
    gates: tuple[str, ...] = option(
        "--fail-if",
        metavar="METRIC>N%",
        help=f"Exit with 1 when a run is worse than BASE by more: {', '.join(_GATES)}; with 2 when "
        "its steps cannot tell.",
    ),
    peak_tflops: float | None = option(
        type=ABOVE_ZERO,
        help="Dense peak of one rank's device for MFU.  [default: from the hardware table]",
    ),
    operators: int = option(default=10, show_default=True, help="Operators listed per run."),
    verbose: bool = option(
        "-v", "--verbose", help="Every figure, traffic and operators too, as files and pages have."
    ),
    quiet: bool = option("-q", "--quiet", help="No progress on stderr."),
    color: Literal["auto", "always", "never"] = option(default="auto"),
    force: bool = option(help="Replace existing output files."),
) -> int:
    """Compare RUNs (folders of traces, single traces, or stores) with BASE.

    A difference of step times counts when its 95 % interval leaves out zero: an exact rank test,
    for which each run needs at least 4 steps (those timed without the profiler, where profile.json
    of both runs has some, else the traced ones). --fail-if step_time, exposed_comm
    and idle fail (1) on a value over the limit that is beyond noise, and cannot tell (2) where it
    is within noise; memory is one number, taken as it is.
    """
    if len(runs) < 2:
        raise AdvisorError("needs at least two runs, the base first", hint=_instead(Path(runs[0])))
    checks = [_parse_gate(text) for text in gates]
    outputs = plan_outputs(
        formats, output, force=force, file_names=_FILES, text_in_folder=True, inputs=runs
    )
    from advisor import api
    from advisor.cli import _compare_tables as tables
    from advisor.ingest.run_names import run_names
    from advisor.metrics.compare.runs import comparison

    names = run_names(runs)
    timed = {name: _timed(Path(path)) for name, path in zip(names, runs, strict=True)}
    loaded = api.load_runs(runs)
    with loaded:
        found = comparison(
            loaded.store.con,
            timed,
            operators=operators,
            device_peak_flops=None if peak_tflops is None else peak_tflops * 1e12,
            findings=loaded.report.findings,
        )
        for item in outputs:
            if item.format == "html":
                text = loaded.render("html", comparison=found)
            elif item.format == "json":
                text = json.dumps(tables.document(found), indent=1)
            else:
                painted = use_color(color, to_file=item.path is not None)
                text = tables.text(found, whole=verbose or item.path is not None, color=painted)
            item.emit(text, quiet=quiet)
    judged = [verdict for check in checks for verdict in _judge(check, found)]
    for verdict in judged:
        click.echo(f"{verdict.word:13s}{verdict.line}", err=True)
    # A failure is sure whatever else cannot be told.
    return min((verdict.status for verdict in judged), default=0)


def _instead(path: Path) -> str:
    """What somebody who names one run may have meant."""
    inside = sorted({trace.parent for trace in path.glob("*/rank*.json*")}) if path.is_dir() else []
    if len(inside) > 1:
        names = sorted(inside, key=lambda folder: folder.name != "single")
        return f"it holds {len(inside)}: advisor compare {shlex.join(map(str, names))}"
    run = shlex.quote(str(path))
    return f"advisor compare {run} OTHER; one run by itself: advisor diagnose {run}"


def _timed(path: Path) -> Timed:
    """Step times and tokens per step from profile.json beside the traces, if there is one."""
    from advisor.metrics.compare.runs import Timed

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


@dataclass(frozen=True)
class _Verdict:
    """What a gate says of a run; only what is worse, or cannot be told, is said."""

    status: int
    line: str

    @property
    def word(self) -> str:
        return "FAILED" if self.status == _WORSE else "INCONCLUSIVE"


def _judge(gate: tuple[str, float], found: Comparison) -> list[_Verdict]:
    """Noise must not fail a build, and steps that cannot show a difference must not pass one."""
    from advisor.report.comparison_figures import signed_share
    from advisor.vocabulary.words import percent

    metric, limit = gate
    said = []
    for row, step in zip(found.runs[1:], found.differences, strict=True):
        share, is_worse = _change(metric, found.base, row, step)
        if is_worse is None:
            said.append(
                _Verdict(_INCONCLUSIVE, f"{row.run}: {metric}: {_why_inconclusive(metric, step)}")
            )
        elif share > limit:
            between = ""
            if metric == "step_time" and step.low is not None and step.high is not None:
                between = f" ({signed_share(step.low)} to {signed_share(step.high)})"
            text = signed_share(share) if math.isfinite(share) else "from zero"
            if is_worse:
                line = f"{row.run}: {metric} {text}{between} is worse than {percent(limit)}"
                said.append(_Verdict(_WORSE, line))
            else:
                line = f"{row.run}: {metric} {text}{between}, within noise: cannot tell"
                said.append(_Verdict(_INCONCLUSIVE, f"{line}; record more steps of both"))
    return said


def _change(
    metric: str, base: RunFigures, row: RunFigures, step: Difference
) -> tuple[float, bool | None]:
    """(share by which a metric grew, whether beyond noise; None where that cannot be told)."""
    from advisor.metrics.compare.significance import is_larger

    if metric == "step_time":
        return step.share, None if step.low is None else step.low > 0
    before, after = (getattr(of, _GATES[metric]) for of in (base, row))
    if before is None or after is None:
        return 0.0, None
    share = after / before - 1 if before else (math.inf if after else 0.0)
    if metric == "memory":
        return share, share > 0
    name = {"exposed_comm": "exposed_samples_ns", "idle": "idle_samples_ns"}[metric]
    return share, is_larger(getattr(base, name), getattr(row, name))


def _why_inconclusive(metric: str, step: Difference) -> str:
    from advisor.report.comparison import too_few

    if metric == "memory":
        return "the peak is not recorded in both runs"
    if metric == "step_time":
        return f"{too_few(step)} (advisor record --steps, advisor profile --timed-steps)"
    return (
        "too few recorded steps to tell a difference from noise: at least 4 in each run (--steps)"
    )
