"""``advisor whatif``: what a change would give, replayed from a traced run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import argument, option
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.report.replayed import Replayed
    from advisor.whatif.network import Latency
    from advisor.whatif.predict import Prediction
    from advisor.whatif.program import Program

_SHARDED = (
    "reshard_after_forward",
    "prefetch",
    "prefetch_forward",
    "prefetch_backward",
    "wrap_layers",
)
_WHOLE = re.compile(r"[0-9]{1,6}")
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
    form: Literal["text", "json"] = option("--format", default="text"),
    quiet: bool = option("-q", "--quiet", help="No progress on stderr."),
) -> int:
    """Predict the step of RUN (traces, a directory, or a store) under each change.

    Each --set is predicted on its own, from the steps of the trace: gradients as they became
    ready, buckets as torch forms them, calls as they cost in this run. The interval holds the
    true step in about nine cases of ten (measured on two to four ranks: docs/whatif.md). Nothing
    is measured here.
    """
    from advisor import api
    from advisor.cli._progress import progress_bar
    from advisor.messages import WHATIF, say
    from advisor.report import summary
    from advisor.report.replayed import not_replayed, replayed
    from advisor.whatif.coverage import require_all_ranks
    from advisor.whatif.extract import programs
    from advisor.whatif.slow_places import added_latency

    inputs = [Path(path) for path in paths]
    with progress_bar(inputs, enabled=not quiet) as progress:
        loaded = api.load(*inputs, progress=progress)
    rows: list[Replayed] = []
    others: list[str] = []
    beside: list[tuple[str, str]] = []
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
            rows += [
                _named(change, _one(steps, change, added)).as_found(findings) for change in changes
            ]
    if form == "json":
        click.echo(json.dumps([_as_dict(row) for row in rows], indent=1))
        return 0
    unit = summary.unit(run.report)
    click.echo(say(WHATIF, "now", {"step_ns": now_ns, "any": bool(rows), **unit}))
    for line in _lines(rows):
        click.echo(line)
    if beside:
        click.echo(say(WHATIF, "beside", {}))
        for title, gain in beside:
            click.echo(f"{title}: {gain}")
    if others:
        click.echo(say(WHATIF, "others", {"changes": ", ".join(others)}))
    click.echo(say(WHATIF, "not-measured", {}))
    return 0


def _lines(rows: list[Replayed]) -> list[str]:
    """A line for each change, its columns as wide as their longest entry."""
    from advisor.messages import WHATIF, say
    from advisor.report.replayed import GIVES, lines

    said = lines(rows)
    name, step = (max((len(line[column]) for line in said), default=0) for column in (0, 2))
    found = [f"{line[0]:{name}s}  {line[2]:{step}s}  {line[1]}" for line in said]
    none = [] if any(row.kind in GIVES for row in rows) else [say(WHATIF, "none", {})]
    return none + found


def _named(change: str, found: Prediction) -> Replayed:
    from advisor.report.replayed import Replayed

    return Replayed(
        name=change,
        setting=change.partition("=")[0],
        step_ns=found.step_ns,
        step_low_ns=found.low_ns,
        step_high_ns=found.high_ns,
        measured_ns=found.measured_ns,
        replayed_ns=found.replayed_ns,
        gain_low_ns=found.gain_low_ns,
        gain_high_ns=found.gain_high_ns,
        extrapolates=found.extrapolates,
        inconclusive=found.inconclusive,
    )


def _can_be_replayed(steps: list[Program], change: str, added: Latency) -> bool:
    """Whether the job has what the change is of: no wrapped layers without FSDP."""
    try:
        return _one(steps, change, added).gain_high_ns > 0
    except AdvisorError:
        return False


def _one(steps: list[Program], change: str, added: Latency) -> Prediction:
    name, _, value = change.partition("=")
    if name == "bucket_cap_mb":
        return _bucket_cap(steps, value)
    if name in ("link.bandwidth", "net.bandwidth"):
        return _bandwidth(steps, value, added)
    if name == "late_rank":
        return _late_rank(steps, value)
    if name in _SHARDED:
        return _sharded(steps, name, value)
    raise AdvisorError(
        f"cannot predict a change of '{name}'",
        where=f"--set {change}",
        hint="known: bucket_cap_mb=N, link.bandwidth=x2 or 10Gb, late_rank=R, "
        "reshard_after_forward=False, prefetch=N, prefetch_forward=N, prefetch_backward=N, "
        "wrap_layers=N",
    )


def _bucket_cap(steps: list[Program], value: str) -> Prediction:
    from advisor.whatif.predict import data_parallel, predict_bucket_cap

    ddp = data_parallel(steps)
    cap = None if value == "default" else _mebibytes(value, "bucket_cap_mb")
    found = None if ddp is None else predict_bucket_cap(steps, ddp, cap)
    if found is None:
        raise AdvisorError(
            "the trace does not show the gradients and buckets of data parallelism",
            where=f"bucket_cap_mb={value}",
            hint="needs DDP, record_shapes=True, and the traces of all ranks",
        )
    return found


def _bandwidth(steps: list[Program], value: str, added: Latency) -> Prediction:
    from advisor.whatif.network import predict_bandwidth, predict_link_rate
    from advisor.whatif.predict import service_models

    match = re.fullmatch(r"(x?)(\d+(?:\.\d+)?)(?:\s*(Gb|Mb|GB)(?:/s)?)?", value)
    where = f"link.bandwidth={value}"
    if match is None or bool(match[1]) == bool(match[3]):
        raise AdvisorError(f"{value!r} is no bandwidth", where=where, hint="x2, 10Gb or 400Mb")
    number = float(match[2])
    if not number:
        raise AdvisorError(
            "a link needs some bandwidth",
            where=where,
            hint="above 0: x0.5 is half of now, x2 twice; or 10Gb, 400Mb",
        )
    if match[1]:
        found = predict_bandwidth(steps, service_models(steps), number, added)
    else:
        gbps = number * {"Gb": 1 / 8, "Mb": 1 / 8000, "GB": 1.0}[match[3]]
        found = predict_link_rate(steps, service_models(steps), gbps, added)
    if found is None:
        raise AdvisorError("cannot replay this run", where=where)
    return found


def _sharded(steps: list[Program], name: str, value: str) -> Prediction:
    """FSDP: resharding, prefetch depth, units wrapped together (relative to now)."""
    from advisor.whatif import sharded
    from advisor.whatif.predict import predict, service_models

    number = _units(value, name)
    models = service_models(steps)

    def change(program: Program) -> Program | None:
        if name == "reshard_after_forward":
            return sharded.without_resharding(program)
        if name == "wrap_layers":
            return sharded.with_wrapping(program, number, models)
        phases = (
            ("forward", "backward") if name == "prefetch" else (name.removeprefix("prefetch_"),)
        )
        return sharded.prefetched(program, phases, number)

    if (
        number == 0
        and name in ("prefetch", "prefetch_forward")
        and any(s.timeline != "host" for s in steps)
    ):
        raise AdvisorError(
            "a trace of GPUs does not show when the host would come to each unit's turn",
            where=f"{name}={value}",
            hint="`advisor tune --sweep` measures 0; 1 and more are predicted",
        )
    found = predict(steps, change)
    if found is None:
        raise AdvisorError(
            "the trace does not show the calls that this changes",
            where=f"{name}={value}",
            hint="needs FSDP, phases in the trace, and the traces of all ranks",
        )
    return found


def _late_rank(steps: list[Program], value: str) -> Prediction:
    from advisor.whatif.predict import predict_without_lateness

    ranks = value.split(",")
    if not all(_WHOLE.fullmatch(rank) for rank in ranks):
        raise AdvisorError(
            f"{value!r} is no rank", where="late_rank",
            hint="late_rank=2, or late_rank=8,9,10,11 for the ranks of a host",
        )  # fmt: skip
    found = predict_without_lateness(steps, sorted({int(rank) for rank in ranks}))
    if found is None:
        raise AdvisorError(f"rank {value} is not in this run", where="late_rank")
    return found


def _units(text: str, name: str) -> int:
    """The whole number of a sharding change; 0 for resharding, which is only left out."""
    where = f"{name}={text}"
    if name == "reshard_after_forward":
        if text.lower() != "false":
            raise AdvisorError(
                f"{text!r} cannot be predicted", where=where, hint="reshard_after_forward=False"
            )
        return 0
    meaning = (
        "neighbouring units made one, counted from those of this run: 1, 2, 4"
        if name == "wrap_layers"
        else "units gathered ahead: 0 (FSDP2's default), 1, 2"
    )
    if not _WHOLE.fullmatch(text):
        raise AdvisorError(f"{text!r} is no whole number", where=where, hint=meaning)
    if name == "wrap_layers" and not int(text):
        raise AdvisorError("wrap_layers joins 1 unit or more", where=where, hint=meaning)
    return int(text)


def _mebibytes(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise AdvisorError(f"{text!r} is no number", where=name) from error
    if not 0 < value < 1e6:
        raise AdvisorError(f"{text} is out of range", where=name, hint="above 0, below 1e6 MiB")
    return value


def _as_dict(row: Replayed) -> dict[str, Any]:
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
        "confidence": "replayed",
    }
