"""advisor calibrate: NCCL's model held against measurements of a machine, kept as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import _options as options
from advisor.cli._options import POSITIVE, argument, option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.model.nccl.calibration import Calibration, Measured
    from advisor.model.nccl.version import NcclVersion
    from advisor.model.topology import Topology

# What the measured calls were told to take, by the NCCL lines in the results.
_FORCED = """
SELECT name, list(DISTINCT value ORDER BY value) FROM topology
WHERE kind = 'env' AND name IN ('NCCL_ALGO', 'NCCL_PROTO') GROUP BY name
"""
# Medians: in place and out of place, and the calls of a trace, are one row per size.
_ROWS = """
SELECT op, ranks, bytes, median(time_us) AS time_us FROM (
  SELECT op, ranks, bytes, time_us FROM bench WHERE src IS NULL AND time_us > 0 AND bytes > 0
  UNION ALL
  SELECT op, group_size, bytes, transfer_ns / 1e3 FROM collective
  WHERE transfer_ns > 0 AND bytes > 0 AND t_is = 'matched' AND library IN ('nccl', 'rccl'))
GROUP BY ALL ORDER BY ALL
"""


@options.command(
    "calibrate", epilog="Example:  advisor calibrate tables/ --hardware dgx-h100 -o my-cluster.yaml"
)
def command(
    results: tuple[str, ...] = argument(required=True, metavar="RESULTS..."),
    hardware: str | None = option(metavar="NAME", help="A machine of the hardware table."),
    topology: Path | None = option(help="Topology file (YAML)."),
    nodes: int | None = option(type=POSITIVE, help="Nodes of --hardware.  [default: 1]"),
    nccl: str | None = option(
        metavar="VERSION", help="NCCL release, where the results do not name it."
    ),
    algo: str | None = option(
        metavar="VALUE", help="NCCL_ALGO of the measured calls, where it was set."
    ),
    proto: str | None = option(metavar="VALUE", help="NCCL_PROTO of the measured calls, likewise."),
    output: Path = option("-o", "--output", required=True),
) -> None:
    """Fit what NCCL's model leaves out to measured collectives of a machine.

    RESULTS are nccl-tests tables, traces or files of advisor probe. The file serves nccl-model,
    plan, whatif and tune with --calibration. Measure with a process per GPU (-g 1), as jobs run.

    Example:  advisor calibrate tables/ --hardware dgx-h100 -o my-cluster.yaml
    """
    from advisor import api
    from advisor.config.hardware import machine
    from advisor.errors import AdvisorError, not_written
    from advisor.model.nccl.calibration import fit, save_calibration
    from advisor.model.nccl.version import format_version, parse_covered
    from advisor.model.topology import load_topology
    from advisor.model.topology_machine import topology_of

    if (hardware is None) == (topology is None):
        raise click.UsageError("give one of --hardware and --topology")
    if topology is not None and nodes is not None:
        raise click.UsageError("--nodes has no effect with --topology, which says it itself")
    with api.load(*results) as run:
        rows = run.store.con.execute(_ROWS).fetchall()
        named = run.store.con.execute(
            "SELECT max(value) FROM topology WHERE kind = 'version' AND name = 'nccl'"
        ).fetchone()
        printed = dict(run.store.con.execute(_FORCED).fetchall())
    release = nccl or (named and named[0])
    if release is None:
        raise click.UsageError("give --nccl VERSION (the results do not name the release)")
    version = parse_covered(release)
    if hardware is not None:
        shape = topology_of(machine(hardware), nodes or 1)
    else:
        assert topology is not None
        shape = load_topology(topology)
    forced = _forced(printed, {"NCCL_ALGO": algo, "NCCL_PROTO": proto})
    measured, dropped = _measured(rows, shape, version, forced)
    try:
        calibration = fit(
            measured, machine=shape.name, sources=results, nccl=format_version(version)
        )
    except AdvisorError as error:
        raise AdvisorError(
            "; ".join([error.message, *dropped]), hint=error.hint, where=", ".join(results)
        ) from error
    try:
        save_calibration(calibration, output)
    except OSError as error:
        raise not_written(error, output) from error
    _say(calibration, forced, dropped, output, shape.library)


def _forced(printed: Mapping[str, list[str]], given: Mapping[str, str | None]) -> dict[str, str]:
    """NCCL_ALGO and NCCL_PROTO of the measured calls: as given, else as the results print them."""
    forced = {}
    for name, value in given.items():
        values = [value] if value is not None else printed.get(name, [])
        if len(values) > 1:
            option = "--algo" if name == "NCCL_ALGO" else "--proto"
            raise click.UsageError(
                f"the results were measured with {name} of {' and '.join(values)}: "
                f"fit them apart, or say {option}"
            )
        if values:
            forced[name] = values[0]
    return forced


def _measured(
    rows: list[Any], shape: Topology, version: NcclVersion, forced: Mapping[str, str]
) -> tuple[list[Measured], list[str]]:
    """The rows of this machine's size that NCCL's model covers, and what was left out and why."""
    from advisor.errors import AdvisorError
    from advisor.model.nccl.calibration import Measured
    from advisor.model.nccl.cost import predict
    from advisor.model.nccl.filters import parse_algorithms, parse_protocols

    algo, proto = forced.get("NCCL_ALGO"), forced.get("NCCL_PROTO")
    parse_algorithms(algo, version)
    parse_protocols(proto, version)
    measured, uncovered, without, other = [], 0, 0, set()
    for op, ranks, size, time_us in rows:
        if ranks is not None and ranks != shape.ranks:
            other.add(ranks)
            continue
        try:
            prediction = predict(shape, op, size, version, algo=algo, proto=proto)
        except AdvisorError:
            uncovered += 1
            continue
        if prediction.choice is None:
            without += 1
        else:
            measured.append(Measured(time_us, prediction))
    dropped = []
    if uncovered:
        dropped.append(f"{uncovered} rows of operations that NCCL's model does not cover")
    if without:
        told = "".join(f" with {name}={value}" for name, value in forced.items())
        dropped.append(f"{without} rows for which NCCL has no algorithm{told}")
    if other:
        seen = ", ".join(str(count) for count in sorted(other))
        dropped.append(f"rows of {seen} ranks, where the machine has {shape.ranks}")
    return measured, dropped


# Up to these latency and floor are nearly all of a call's time.
SMALL_BYTES = 64 << 10
# 15 public tables have 0.6 to 1.1 (those of benchmarks/calibration.py, each fitted by itself).
SLOW_TRANSFER = 1.5


def _say(
    calibration: Calibration,
    forced: Mapping[str, str],
    dropped: list[str],
    output: Path,
    library: str,
) -> None:
    def text(name: str, interval: Any, unit: str = "") -> str:
        return f"  {name}: {interval.value:.3g}{unit} ({interval.low:.3g} to {interval.high:.3g})"

    click.echo(
        f"{calibration.machine}, {calibration.nodes} node"
        f"{'s' if calibration.nodes > 1 else ''}, NCCL {calibration.nccl}: "
        f"{calibration.rows} sizes from {calibration.least_bytes:,} to "
        f"{calibration.most_bytes:,} bytes"
    )
    if forced:
        click.echo(f"  measured with {', '.join(f'{k}={v}' for k, v in forced.items())}")
    click.echo(text("floor per call", calibration.floor_us, " us"))
    for name, interval in calibration.latency.items():
        click.echo(text(f"latency factor, {name}", interval))
    click.echo(text("transfer factor", calibration.transfer))
    click.echo(text("middle sizes", calibration.middle))
    click.echo(
        f"  {calibration.within_a_quarter:.0%} of these rows come out within 0.8 to 1.25 of "
        "what was measured (fitted, not held out)"
    )
    click.echo(
        f"  it is of {calibration.machine}. In 17 public tables other clusters of a kind had 86 % "
        "(to 64 KB) and 93 % (above) so. Other kinds of machine had 2 % and 45 %."
    )
    if calibration.least_bytes > SMALL_BYTES:
        click.echo(
            f"  no call below {calibration.least_bytes:,} bytes: the floor is that of larger ones, "
            "up to twice what small calls take. Measure from 1 KB (-b 1K)."
        )
    if library == "nccl" and calibration.transfer.low > SLOW_TRANSFER:
        click.echo(
            f"  transfers take {calibration.transfer.value:.2g} times NCCL's own estimate, "
            "0.6 to 1.1 times in public tables. Find out why before planning: a fault (advisor "
            "diagnose RESULTS), or NCCL_ALGO or NCCL_PROTO was set (--algo, --proto)"
        )
    for line in dropped:
        click.echo(f"  left out: {line}")
    click.echo(f"written: {output}")
