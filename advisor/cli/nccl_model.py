"""advisor nccl-model: what NCCL's own cost model predicts and chooses for one call."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import POSITIVE, option

if TYPE_CHECKING:
    from advisor.model.nccl.cost import Prediction
    from advisor.model.nccl.inputs import Read
    from advisor.model.nccl.version import NcclVersion


_CALIBRATED = ("time", "low", "high")
# Below, the estimate is 2.7 times too short in the median up to 4 MB, 1.5 times to 64 MB
# (263 rows of nccl-tests on machines of the table).
_UNTRUSTED_BYTES = 64 << 20

# What each input leaves open for an option to say.
_USED = {
    "topology": (),
    "log": ("--compute-capability", "--cpu-vendor"),
    "graph": ("--nodes", "--compute-capability", "--cpu-vendor"),
    "hardware": ("--nodes",),
}


@options.command(
    "nccl-model",
    epilog="Example:  advisor nccl-model --topology dgx-h100.yaml --nccl 2.29.7 --op allreduce "
    "--bytes 67108864",
)
def command(
    topology: Path | None = option(help="Topology file (YAML)."),
    log: Path | None = option(help="NCCL log with the GRAPH subsystem."),
    graph: Path | None = option(help="File of NCCL_GRAPH_DUMP_FILE."),
    hardware: str | None = option(metavar="NAME", help="A machine of the hardware table."),
    nccl: str | None = option(
        metavar="VERSION",
        help="NCCL release, e.g. 2.29.7; to be given where the input does not name it.",
    ),
    op: str = option(required=True, help="allreduce, allgather, reducescatter, broadcast, reduce."),
    size: str = option(
        "--bytes",
        required=True,
        metavar="N",
        help="Total size as nccl-tests counts it (64M, 1G work).",
    ),
    nodes: int | None = option(type=POSITIVE, help="Nodes, for --graph and --hardware."),
    compute_capability: str | None = option(metavar="CC", help="For --log and --graph, e.g. 9.0."),
    cpu_vendor: str | None = option(help="For --log and --graph: intel, amd, mixed, arm ..."),
    algo: str | None = option(metavar="VALUE", help="As NCCL_ALGO would be set."),
    proto: str | None = option(metavar="VALUE", help="As NCCL_PROTO would be set."),
    dtype: str = option(
        default="float32", show_default=True, help="Element type, by torch's name."
    ),
    fitted: Path | None = option(
        "--calibration", help="A file of advisor calibrate, for the time a call really takes."
    ),
    form: Literal["text", "json"] = option("--format", default="text"),
) -> None:
    """Predict every algorithm and protocol for one call, and NCCL's choice among them.

    The times are NCCL's own estimate (modelled, not measured): they rank options. Small messages
    take three to four times as long; --calibration says how long on a measured machine.

    Example:  advisor nccl-model --hardware dgx-h100 --nccl 2.29.7 --op allreduce --bytes 64M
    """
    from advisor.model.nccl.calibration import load_calibration
    from advisor.model.nccl.constants import constants_for
    from advisor.model.nccl.cost import predict
    from advisor.model.nccl.inputs import Read, parse_capability
    from advisor.model.nccl.names import element_type
    from advisor.model.nccl.version import parse_covered
    from advisor.model.sizes import parse_bytes
    from advisor.model.topology import load_topology

    inputs = {"topology": topology, "log": log, "graph": graph, "hardware": hardware}
    given = [name for name, item in inputs.items() if item is not None]
    if len(given) != 1:
        raise click.UsageError("give exactly one of --topology, --log, --graph, --hardware")
    (source,) = given
    used = _USED[source]
    for flag, value in (
        ("--nodes", nodes),
        ("--compute-capability", compute_capability),
        ("--cpu-vendor", cpu_vendor),
    ):
        if value is not None and flag not in used:
            raise click.UsageError(f"{flag} has no effect with --{source}, which says it itself")
    release = parse_covered(nccl) if nccl else None
    element_type(dtype)
    capability = parse_capability(compute_capability)
    if topology is not None:
        read = Read(load_topology(topology), None, ())
    elif (file := log or graph) is not None:
        read = read_file(file, nodes, capability, cpu_vendor, release)
    else:
        from advisor.config.hardware import machine
        from advisor.model.topology_machine import topology_of

        assert hardware is not None
        read = Read(topology_of(machine(hardware), nodes or 1), None, ())
    version = release or read.version
    if version is None:
        raise click.UsageError("give --nccl VERSION (the input does not name the release)")
    applied = {
        name: value
        for name, value in read.environment.items()
        if (algo if name == "NCCL_ALGO" else proto) is None
    }
    assumptions = read.assumptions
    constants = constants_for(version, read.topology.library)
    if (limit := constants.msccl_mib) and read.topology.nodes == 1:
        assumptions += (f"no schedule of MSCCL, which takes all-reduces up to {limit} MiB",)
    if constants.note:
        assumptions += (constants.note,)
    prediction = predict(
        read.topology,
        op,
        parse_bytes(size),
        version,
        algo=applied.get("NCCL_ALGO", algo),
        proto=applied.get("NCCL_PROTO", proto),
        dtype=dtype,
        printed=read.printed,
    )
    calibrated, unmeasured = None, ""
    if fitted is not None:
        calibration = load_calibration(fitted)
        # What a log or a dumped graph is of is the user's word.
        of = calibration.machine if source in ("log", "graph") else read.topology.name
        calibration.check(of, read.topology.nodes)
        calibrated = calibration.time_us(prediction)
        if not calibration.measures(prediction.bytes):
            unmeasured = f", as none below {calibration.least_bytes:,} bytes was measured"
    if form == "json":
        check = asdict(read.check) if read.check else None
        extra: dict[str, Any] = {"assumptions": assumptions, "printed_table": check}
        extra["log_environment"] = {"set": dict(read.environment), "applied": applied}
        extra["calibrated_us"] = calibrated and dict(zip(_CALIBRATED, calibrated, strict=True))
        click.echo(json.dumps({**prediction.to_dict(), **extra}, indent=2))
    else:
        click.echo(_text(prediction, assumptions))
        if calibrated is not None:
            time, low, high = calibrated
            click.echo(f"calibrated: {time:,.1f} us ({low:,.1f} to {high:,.1f}{unmeasured})")
        elif prediction.library == "rccl":
            click.echo("RCCL's own figures rank its options: they are no times")
        elif prediction.choice is not None and prediction.bytes < _UNTRUSTED_BYTES:
            click.echo(
                "NCCL's own estimate: calls this small take two to four times as long in "
                "practice (advisor calibrate fits a machine)"
            )
        for name, value in read.environment.items():
            flag = "--algo" if name == "NCCL_ALGO" else "--proto"
            click.echo(
                f"as in the log's environment: {name}={value} ({flag} takes another)"
                if name in applied
                else f"not as in the log's environment, where {name}={value}: {flag} was given"
            )
        if read.check:
            click.echo(
                f"the model reproduces {read.check.equal} of {read.check.cells} cells of the "
                "table that NCCL printed into this log"
            )
            for line in read.check.differing:
                click.echo(f"  {line}")


def read_file(
    path: Path,
    nodes: int | None = None,
    capability: int | None = None,
    cpu_vendor: str | None = None,
    release: NcclVersion | None = None,
) -> Read:
    """The topology of a log or of dumped graphs. Raises AdvisorError."""
    from advisor import api
    from advisor.errors import AdvisorError
    from advisor.model.nccl.inputs import topology_of_run

    with api.load(path) as run:
        (jobs,) = run.store.con.execute("SELECT count(*) FROM run").fetchall()[0]
        if jobs > 1:
            raise AdvisorError(f"holds logs of {jobs} jobs", where=str(path), hint="name one's")
        damaged = "SELECT note FROM source WHERE format = 'nccl-xml' AND events_dropped > 0"
        for (note,) in run.store.con.execute(damaged).fetchall():
            raise AdvisorError(note, where=str(path), hint="copy or dump it again")
        return topology_of_run(
            run.store.con,
            where=str(path),
            nodes=nodes,
            capability=capability,
            cpu_vendor=cpu_vendor,
            release=release,
        )


def _written(algorithm: str, release: str) -> str:
    """The algorithm by the name it has in the release: CollNet was one until 2.13."""
    from advisor.model.nccl.names import algorithms
    from advisor.model.nccl.version import parse_version

    one = "CollNetChain" not in algorithms(parse_version(release))
    return "CollNet" if one and algorithm == "CollNetDirect" else algorithm


def _text(prediction: Prediction, assumptions: tuple[str, ...]) -> str:
    from advisor.model.nccl.constants import newest
    from advisor.model.nccl.version import format_version

    library = prediction.library.upper()
    used, asked = prediction.constants_version, prediction.nccl
    if library == "NCCL" and used == format_version(newest()) != asked:
        used += f", the newest that are known: {asked} may have others"
    lines = [
        f"{prediction.op} of {prediction.bytes:,} bytes on {prediction.ranks} ranks, "
        f"{prediction.nodes} node{'s' if prediction.nodes > 1 else ''}, "
        f"{library} {asked} (constants of {used}; "
        "modelled, not measured)",
        f"{'algorithm':15}{'protocol':10}{'latency us':>11}{'GB/s':>9}{'time us':>13}",
    ]
    chosen = prediction.choice
    for row in prediction.rows:
        time = f"{row.time_us:13,.1f}" if row.time_us is not None else f"{'-':>13}"
        is_chosen = chosen and (row.algo, row.proto) == (chosen.algo, chosen.proto)
        mark = f"  <- {library}'s choice" if is_chosen else f"  {row.reason}".rstrip()
        lines.append(
            f"{_written(row.algo, prediction.nccl):15}{row.proto:10}{row.latency_us:11.1f}"
            f"{row.bandwidth_gbps:9.1f}{time}{mark}"
        )
    if prediction.instead:
        lines.append(f"none of these: {prediction.instead}")
    elif chosen is None:
        lines.append(f"{library} would fail: no algorithm and protocol is left for this call")
    else:
        lines.append(f"channels {chosen.channels}, threads per channel {chosen.threads}")
    lines += [f"assumed: {text}" for text in assumptions]
    return "\n".join(lines)
