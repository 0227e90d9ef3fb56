"""Changes as users write them, ``link.bandwidth=x2``: what is asked for, and the step under it."""

import re

from advisor.errors import AdvisorError
from advisor.whatif import sharded
from advisor.whatif.cost import Curves
from advisor.whatif.network import Latency, predict_bandwidth, predict_link_rate
from advisor.whatif.predict import (
    Prediction,
    data_parallel,
    predict,
    predict_bucket_cap,
    predict_without_lateness,
    service_models,
)
from advisor.whatif.program import Program

_SHARDED = (
    "reshard_after_forward",
    "prefetch",
    "prefetch_forward",
    "prefetch_backward",
    "wrap_layers",
)
_WHOLE = re.compile(r"[0-9]{1,6}")


def predicted(
    steps: list[Program], change: str, added: Latency, curves: Curves = lambda _: None
) -> Prediction:
    """The step under a change as users write it, ``bucket_cap_mb=100``; ns, with its interval.

    ``curves`` say what calls cost where the trace does not.
    Raises AdvisorError where the value is none, or the trace does not show what it changes.
    """
    name, _, value = change.partition("=")
    if name == "bucket_cap_mb":
        return _bucket_cap(steps, value, curves)
    if name in ("link.bandwidth", "net.bandwidth"):
        return _bandwidth(steps, value, added, curves)
    if name == "late_rank":
        return _late_rank(steps, value)
    if name in _SHARDED:
        return _sharded(steps, name, value, curves)
    raise AdvisorError(
        f"cannot predict a change of '{name}'",
        where=f"--set {change}",
        hint="known: bucket_cap_mb=N, link.bandwidth=x2 or 10Gb, late_rank=R, "
        "reshard_after_forward=False, prefetch=N, prefetch_forward=N, prefetch_backward=N, "
        "wrap_layers=N",
    )


def _bucket_cap(steps: list[Program], value: str, curves: Curves) -> Prediction:
    ddp = data_parallel(steps, curves)
    cap = None if value == "default" else _mebibytes(value, "bucket_cap_mb")
    found = None if ddp is None else predict_bucket_cap(steps, ddp, cap)
    if found is None:
        raise AdvisorError(
            "the trace does not show the gradients and buckets of data parallelism",
            where=f"bucket_cap_mb={value}",
            hint="needs DDP, record_shapes=True, and the traces of all ranks",
        )
    return found


def _bandwidth(steps: list[Program], value: str, added: Latency, curves: Curves) -> Prediction:
    match = re.fullmatch(r"(x?)(\d+(?:\.\d+)?)(?:\s*(Gb|Mb|GB)(?:/s)?)?", value)
    where = f"link.bandwidth={value}"
    if match is None or bool(match[1]) == bool(match[3]):
        raise AdvisorError(f"{value!r} is no bandwidth", where=where, hint="x2, 10Gb or 400Mb")
    number = float(match[2])
    models = service_models(steps, curves)
    if not number:
        raise AdvisorError(
            "a link needs some bandwidth",
            where=where,
            hint="above 0: x0.5 is half of now, x2 twice; or 10Gb, 400Mb",
        )
    if match[1]:
        found = predict_bandwidth(steps, models, number, added)
    else:
        gbps = number * {"Gb": 1 / 8, "Mb": 1 / 8000, "GB": 1.0}[match[3]]
        found = predict_link_rate(steps, models, gbps, added)
    if found is None:
        raise AdvisorError("cannot replay this run", where=where)
    return found


def _sharded(steps: list[Program], name: str, value: str, curves: Curves) -> Prediction:
    """FSDP: resharding, prefetch depth, units wrapped together (relative to now)."""
    number = _units(value, name)
    # No other calls change.
    moved = (sharded.GATHER, sharded.SCATTER) if name == "wrap_layers" else ()
    models = service_models(steps, lambda call: curves(call) if call.op in moved else None)

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
