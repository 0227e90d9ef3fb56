"""Predicted time of every legal (algorithm, protocol) of one call, and the one NCCL takes.

time = latency x latency count + total bytes / bandwidth, smallest wins; ties keep the earlier in
NCCL's order. The number ranks options as NCCL does. It is not a prediction of a measured time:
for small messages launch and host time dominate and are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from advisor.errors import AdvisorError
from advisor.model.nccl.availability import filter_reason, machine_reason
from advisor.model.nccl.bandwidth import bandwidth_gbps
from advisor.model.nccl.channels import (
    channels_and_threads,
    communicator_channels,
    scheduled_channels,
)
from advisor.model.nccl.constants import Constants, constants_for
from advisor.model.nccl.filters import parse_algorithms, parse_protocols
from advisor.model.nccl.latency import latency_us
from advisor.model.nccl.names import PROTOCOLS, algorithms, function_name, legal
from advisor.model.nccl.timing import slow_fp8, time_us
from advisor.model.nccl.version import NcclVersion, format_version
from advisor.model.topology import Topology

Cell = tuple[str, str, str]
"""Function, algorithm, protocol."""

# 2.19 to 2.23 kept rings of every protocol for when filters leave nothing.
_BACKUP = "ring backup: the filters left nothing"


@dataclass(frozen=True)
class Row:
    """One combination; as in NCCL's own table an unavailable one has bandwidth 0.

    `time_us` is then None and `reason` says why.
    """

    algo: str
    proto: str
    latency_us: float
    bandwidth_gbps: float
    time_us: float | None
    available: bool
    reason: str = ""


@dataclass(frozen=True)
class Choice:
    """What NCCL takes: `channels` is what a lone call occupies, `threads` per channel."""

    algo: str
    proto: str
    channels: int
    threads: int
    time_us: float


@dataclass(frozen=True)
class Prediction:
    """All combinations of one call and the choice. Sizes are bytes, times microseconds.

    `bytes` is the total size as nccl-tests counts it (ranks x count for AllGather and
    ReduceScatter). `constants_version` is the release whose constants were used.
    """

    op: str
    bytes: int
    nodes: int
    ranks: int
    nccl: str
    constants_version: str
    basis: str
    rows: tuple[Row, ...]
    choice: Choice | None

    def row(self, algo: str, proto: str) -> Row:
        """The row of one combination. Raises KeyError when the release does not have it."""
        for row in self.rows:
            if (row.algo.lower(), row.proto.lower()) == (algo.lower(), proto.lower()):
                return row
        raise KeyError((algo, proto))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def predict(
    topology: Topology,
    op: str,
    total_bytes: int,
    version: NcclVersion,
    *,
    algo: str | None = None,
    proto: str | None = None,
    dtype: str = "float32",
    reduce_op: str = "sum",
    calls: int = 1,
    net_overhead_us: float | None = None,
    cuda_11_8: bool = False,
    printed: Mapping[Cell, tuple[float, float]] | None = None,
) -> Prediction:
    """NCCL's cost table for `op` on `total_bytes`.

    `algo` and `proto` are values of NCCL_ALGO and NCCL_PROTO; `calls` is how many equal calls one
    group aggregates (the size is theirs together). `printed` are the latencies (us) and bandwidths
    (GB/s) of a log's own table, in the place of those that follow from the graphs. Raises
    AdvisorError on an op without a cost
    model, a release before 2.8, or a value NCCL itself refuses.
    """
    function = function_name(op)
    if total_bytes < 0:
        raise AdvisorError(f"bytes is {total_bytes}: a size cannot be negative")
    constants = constants_for(version)
    if topology.ranks == 1:
        only = Row("Ring", "Simple", 0.0, 0.0, 0.0, True)
        rows: tuple[Row, ...] = (only,)
    else:
        rows = _rows(
            topology,
            function,
            total_bytes,
            version,
            constants,
            algo=algo,
            proto=proto,
            dtype=dtype,
            reduce_op=reduce_op,
            calls=calls,
            net_overhead_us=net_overhead_us,
            cuda_11_8=cuda_11_8,
            printed=printed,
        )
    return Prediction(
        op=function.lower(),
        bytes=total_bytes,
        nodes=topology.nodes,
        ranks=topology.ranks,
        nccl=format_version(version),
        constants_version=format_version(constants.version),
        basis="modelled" if printed is None else "printed",
        rows=rows,
        choice=_choose(topology, function, total_bytes, version, rows),
    )


def _rows(
    topology: Topology,
    function: str,
    total_bytes: int,
    version: NcclVersion,
    constants: Constants,
    *,
    algo: str | None,
    proto: str | None,
    dtype: str,
    reduce_op: str,
    calls: int,
    net_overhead_us: float | None,
    cuda_11_8: bool,
    printed: Mapping[Cell, tuple[float, float]] | None,
) -> tuple[Row, ...]:
    chosen_algorithms = parse_algorithms(algo, version)
    chosen_protocols = parse_protocols(proto, version)
    pipe_ops = ceil(calls / communicator_channels(topology, version))
    rows: list[Row] = []
    rings: list[Row] = []
    for algorithm in algorithms(version):
        for protocol in PROTOCOLS:
            if not legal(function, algorithm, protocol, version):
                continue
            if printed is not None:
                latency, bandwidth = printed.get((function, algorithm, protocol), (0.0, 0.0))
                reason = "" if bandwidth > 0 else "not in the printed table"
            else:
                bandwidth = bandwidth_gbps(
                    topology, function, algorithm, protocol, version, constants
                )
                latency = latency_us(
                    topology, function, algorithm, protocol, version, constants, net_overhead_us
                )
                reason = machine_reason(
                    topology, function, algorithm, version, dtype=dtype, reduce_op=reduce_op
                ) or ("no bandwidth" if bandwidth == 0 else "")
            # What the log's own settings rule out has no bandwidth in its table.
            if printed is None or algo is not None or proto is not None:
                reason = reason or filter_reason(
                    topology,
                    function,
                    algorithm,
                    protocol,
                    version,
                    chosen_algorithms,
                    chosen_protocols,
                    cuda_11_8=cuda_11_8,
                )
            time = None
            if not reason:
                time = time_us(
                    topology,
                    function,
                    algorithm,
                    protocol,
                    total_bytes,
                    version,
                    constants,
                    latency,
                    bandwidth,
                    pipe_ops,
                )
                if slow_fp8(topology, function, algorithm, dtype, version):
                    time *= 1024
            shown = 0.0 if reason else bandwidth
            rows.append(Row(algorithm, protocol, latency, shown, time, not reason, reason))
            if algorithm == "Ring":
                backup = latency + total_bytes / (1000 * bandwidth) if bandwidth else None
                rings.append(
                    Row(algorithm, protocol, latency, bandwidth, backup, bandwidth > 0, _BACKUP)
                )
    if (2, 19, 0) <= version < (2, 24, 0) and not any(row.available for row in rows):
        rows = [row for row in rows if row.algo != "Ring"] + rings
    return tuple(rows)


def _choose(
    topology: Topology,
    function: str,
    total_bytes: int,
    version: NcclVersion,
    rows: tuple[Row, ...],
) -> Choice | None:
    best: Row | None = None
    for row in rows:
        if row.time_us is not None and (
            best is None or best.time_us is None or row.time_us < best.time_us
        ):
            best = row
    if best is None or best.time_us is None:
        return None
    if topology.ranks == 1:
        return Choice(best.algo, best.proto, 1, 0, best.time_us)
    channels, threads = channels_and_threads(topology, best.algo, best.proto, total_bytes, version)
    if not best.algo.startswith("CollNet"):
        own = total_bytes
        if function in ("AllGather", "ReduceScatter"):
            own = total_bytes // topology.ranks
        channels = scheduled_channels(topology, function, best.proto, own, channels, version)
    return Choice(best.algo, best.proto, channels, threads, best.time_us)
