"""What values of NCCL_ALGO and NCCL_PROTO would cost a job, by NCCL's own model.

For the axes that cannot be measured here (gloo, or a machine one does not have). NCCL without
settings takes the minimum of this very model, so no setting can come out ahead of it: the ranking
shows what a setting would lose or break, and a gain over the default has to be measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import AdvisorError
from advisor.model.nccl.calibration import Calibration
from advisor.model.nccl.cost import predict
from advisor.model.nccl.filters import PER_FUNCTION_SINCE, parse_algorithms, parse_protocols
from advisor.model.nccl.names import FUNCTIONS, algorithms, function_name, legal
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Topology


@dataclass(frozen=True)
class Call:
    """Calls of one kind in a step; `total_bytes` as nccl-tests counts."""

    op: str
    total_bytes: int
    count: int = 1


@dataclass(frozen=True)
class SettingCost:
    """One setting: modelled time of the step's calls, and what it adds to the default's.

    `time_us` is None when nothing is left for a call; `breaks` names the functions.
    """

    variable: str
    value: str
    time_us: float | None
    extra_share: float | None
    breaks: tuple[str, ...]
    basis: str = "modelled"


def rank_settings(
    topology: Topology,
    version: NcclVersion,
    calls: Sequence[Call],
    settings: Sequence[tuple[str, str]] = (),
    calibration: Calibration | None = None,
) -> list[SettingCost]:
    """The default and ``settings`` (variable, value), cheapest first, broken last.

    With a ``calibration`` times are those of the measured machine, else NCCL's own estimates.
    Without ``settings`` every safe one of the calls' functions; LL128 is never named: forcing it
    can corrupt data. Raises AdvisorError without calls.
    """
    if not calls:
        raise AdvisorError("no calls to rank settings for")
    default, rows = None, []
    for variable, value in [("", ""), *(settings or _candidates(version, calls))]:
        algo = value if variable == "NCCL_ALGO" else None
        proto = value if variable == "NCCL_PROTO" else None
        time, broken = _time(topology, version, calls, algo, proto, calibration)
        default = default if variable else time
        share = time / default - 1 if time is not None and default else None
        rows.append(SettingCost(variable, value, time, share, broken))
    return sorted(rows, key=lambda row: (row.time_us is None, row.time_us or 0.0))


def forces_ll128(variable: str, value: str, version: NcclVersion) -> bool:
    """Whether a setting turns LL128 on where NCCL might not dare to.

    Raises AdvisorError where the release would refuse the value.
    """
    if variable != "NCCL_PROTO":
        parse_algorithms(value, version)
        return False
    selection = parse_protocols(value, version)
    return any("LL128" in (selection.names(function) or ()) for function in FUNCTIONS)


def _candidates(version: NcclVersion, calls: Sequence[Call]) -> list[tuple[str, str]]:
    functions = sorted({function_name(call.op) for call in calls})
    found: list[tuple[str, str]] = []
    for algorithm in algorithms(version):
        fitting = [f for f in functions if legal(f, algorithm, "Simple", version)]
        if version >= PER_FUNCTION_SINCE:
            found += [("NCCL_ALGO", f"{f.lower()}:{algorithm.lower()}") for f in fitting]
        elif fitting:
            found.append(("NCCL_ALGO", algorithm))
    for protocols in ("LL", "Simple", "LL,Simple"):
        if version >= PER_FUNCTION_SINCE:
            found += [("NCCL_PROTO", f"{f.lower()}:{protocols}") for f in functions]
        else:
            found.append(("NCCL_PROTO", protocols))
    return found


def _time(
    topology: Topology,
    version: NcclVersion,
    calls: Sequence[Call],
    algo: str | None,
    proto: str | None,
    calibration: Calibration | None,
) -> tuple[float | None, tuple[str, ...]]:
    total, broken = 0.0, set()
    for call in calls:
        prediction = predict(topology, call.op, call.total_bytes, version, algo=algo, proto=proto)
        choice = prediction.choice
        # 2.19 to 2.23 then fall back to rings of every protocol, LL128 included where it is unsafe.
        if choice is None or prediction.row(choice.algo, choice.proto).reason:
            broken.add(function_name(call.op))
        else:
            one = calibration.time_us(prediction)[0] if calibration else choice.time_us
            total += call.count * one
    return (None if broken else total), tuple(sorted(broken))
