"""``advisor whatif``: what a change would give, replayed from a traced run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import argument, option
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.report.replayed import Replayed
    from advisor.whatif.network import Latency
    from advisor.whatif.program import Program

_OTHERS = (
    "link.bandwidth=x2",
    "wrap_layers=2",
    "prefetch_forward=1",
    "reshard_after_forward=False",
)


@options.command(
    epilog="Example:  advisor whatif runs/ddp --set bucket_cap_mb=100 --set link.bandwidth=x2"
)
def command(
    paths: tuple[str, ...] = argument(required=True, metavar="RUN...", type=click.Path()),
    changes: tuple[str, ...] = option(
        "--set",
        metavar="NAME=VALUE",
        help="bucket_cap_mb=N|default, link.bandwidth=xF|NGb, late_rank=R[,R...], "
        "reshard_after_forward=False, prefetch=N, prefetch_forward=N, prefetch_backward=N (0: "
        "FSDP2's default), wrap_layers=N. Default: what findings ask for, with their gains.",
    ),
    fitted: Path | None = option(
        "--calibration",
        help="A file of advisor calibrate, for what --set asks of calls that RUN does not tell.",
    ),
    form: Literal["text", "json"] = option("--format", default="text"),
    quiet: bool = option("-q", "--quiet", help="No progress on stderr."),
) -> int:
    """Predict the step of RUN (traces, a directory, or a store) under each change.

    Each --set is predicted on its own, from the steps of the trace: gradients as they became
    ready, buckets as torch forms them, calls as they cost in this run. The interval holds the
    true step in about nine cases of ten (measured on two to four ranks: docs/whatif.md). Nothing
    is measured here. --calibration says how calls of other sizes cost on that machine.
    """
    from advisor import api
    from advisor.cli._progress import progress_bar
    from advisor.messages import WHATIF, say
    from advisor.model.nccl.calibration import load_calibration
    from advisor.report import summary
    from advisor.report.replayed import GIVES, Replayed, not_replayed, replayed, sets
    from advisor.whatif.calibrated import Calibrated
    from advisor.whatif.coverage import require_all_ranks
    from advisor.whatif.extract import programs
    from advisor.whatif.settings import predicted
    from advisor.whatif.slow_places import added_latency

    if fitted is not None and not changes:
        raise click.UsageError("--calibration has no effect without --set")
    calibration = load_calibration(fitted) if fitted is not None else None
    inputs = [Path(path) for path in paths]
    with progress_bar(inputs, enabled=not quiet) as progress:
        loaded = api.load(*inputs, progress=progress)
    rows: list[Replayed] = []
    others: list[str] = []
    beside: list[tuple[str, str]] = []
    calls: list[dict[str, Any]] = []
    with loaded as run, progress_bar((), enabled=not quiet):
        for (name,) in run.store.con.execute("SELECT run FROM run ORDER BY run").fetchall():
            steps = programs(run.store, name)
            if not steps:
                raise AdvisorError(
                    "no used step with communication to replay",
                    where=name,
                    hint="record at least three steps of all ranks (advisor.record, or "
                    "torch.profiler with a schedule) and pass all the ranks' traces",
                )
            require_all_ranks(run.store, name, steps)
            now_ns = next(it.step_ns_median for it in run.report.runs if it.run == name)
            findings = [item for item in run.report.findings if item.run == name]
            added = added_latency(run.store.con, name)
            if not changes:
                own = replayed(run.store, name, findings)
                if form != "json":
                    listed = {*others, *(row.name for row in own)}
                    others += [it for it in _OTHERS if it not in listed
                               and _can_be_replayed(steps, it, added)]  # fmt: skip
                beside += not_replayed(own, findings, now_ns or 0)
                rows += own
                continue
            for change in changes:
                curves = None
                if calibration is not None:
                    curves = Calibrated.of_run(run.store.con, name, calibration)
                try:
                    found = predicted(steps, change, added, curves or (lambda _: None))
                except AdvisorError:
                    # What cannot be replayed may be modelled: a finding then says what it gives.
                    asked = [item for item in findings if sets(item, change)]
                    if form == "json" or not asked:
                        raise
                    beside += not_replayed(rows, asked, now_ns or 0)
                else:
                    used = curves.used() if curves is not None else []
                    row = Replayed(change, change.partition("=")[0], *found)
                    # A finding's gain rests on the recording alone.
                    rows.append(row if used else row.as_found(findings))
                    calls += [
                        {"change": change, "kind": it.kind, "scale": it.scale(steps)} for it in used
                    ]
    if form == "json":
        click.echo(json.dumps([_as_dict(row, calls) for row in rows], indent=1))
        return 0
    unit = summary.unit(run.report)
    click.echo(say(WHATIF, "now", {"step_ns": now_ns, "any": bool(rows), **unit}))
    if not changes and not any(row.kind in GIVES for row in rows):
        click.echo(say(WHATIF, "none", {}))
    for line in _lines(rows):
        click.echo(line)
    if beside:
        click.echo(say(WHATIF, "beside", {}))
        for title, gain in beside:
            click.echo(f"{title}: {gain}")
    if calibration is not None:
        of: dict[str, Any] = {"file": str(fitted), "machine": calibration.machine}
        of["changes"] = [*dict.fromkeys(it["change"] for it in calls)]
        of["kinds"] = {it["kind"]: it["scale"] for it in calls}
        click.echo(say(WHATIF, "calibrated" if calls else "not-calibrated", of))
    if others:
        click.echo(say(WHATIF, "others", {"changes": ", ".join(others)}))
    click.echo(say(WHATIF, "not-measured", {}))
    return 0


def _lines(rows: list[Replayed]) -> list[str]:
    """A line for each change, its columns as wide as their longest entry."""
    from advisor.report.replayed import lines

    said = lines(rows)
    name, step = (max((len(line[column]) for line in said), default=0) for column in (0, 2))
    return [f"{line[0]:{name}s}  {line[2]:{step}s}  {line[1]}" for line in said]


def _can_be_replayed(steps: list[Program], change: str, added: Latency) -> bool:
    """Whether the job has what the change is of: no wrapped layers without FSDP."""
    from advisor.whatif.settings import predicted

    try:
        return predicted(steps, change, added).gain_high_ns > 0
    except AdvisorError:
        return False


def _as_dict(row: Replayed, calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "change": row.name,
        "step_ns": round(row.step_ns),
        "step_low_ns": round(row.step_low_ns),
        "step_high_ns": round(row.step_high_ns),
        "measured_step_ns": round(row.measured_ns),
        "replayed_step_ns": round(row.replayed_ns),
        "gain_ns": round(row.gain_ns),
        "gain_low_ns": round(row.gain_low_ns),
        "gain_high_ns": round(row.gain_high_ns),
        "extrapolates": row.extrapolates,
        "inconclusive": row.inconclusive,
        "calibrated": sorted({it["kind"] for it in calls if it["change"] == row.name}),
        "confidence": "replayed",
    }
