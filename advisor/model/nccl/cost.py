"""Predicted time of every legal (algorithm, protocol) of one call, and the one NCCL takes.

time = latency x latency count + total bytes / bandwidth, smallest wins; ties keep the earlier in
NCCL's order. The number ranks options as NCCL does. It is not a prediction of a measured time:
for small messages launch and host time dominate and are not in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from advisor.errors import AdvisorError
from advisor.model.nccl.availability import filter_reason, machine_reason
from advisor.model.nccl.bandwidth import bandwidth_gbps
from advisor.model.nccl.cell import Cell
from advisor.model.nccl.channels import (
    channels_and_threads,
    communicator_channels,
    scheduled_channels,
)
from advisor.model.nccl.constants import constants_for
from advisor.model.nccl.filters import COLLNET, parse_algorithms, parse_protocols
from advisor.model.nccl.latency import floor_log2, latency_us
from advisor.model.nccl.names import PROTOCOLS, algorithms, function_name, legal
from advisor.model.nccl.version import NcclVersion, format_version
from advisor.model.topology import Topology

# Collectives in one batch of work; latency of non-ring algorithms is paid once per batch.
_BATCH_COLLECTIVES = 9
_FP8 = {"float8_e4m3fn", "float8_e5m2"}

Printed = Mapping[tuple[str, str, str], tuple[float, float]]
"""By function, algorithm and protocol the latency (us) and bandwidth (GB/s) of a log's table."""

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
    ReduceScatter). `library` is nccl or rccl, `nccl` its release, and `constants_version` the
    release whose constants were used. `instead` is what RCCL does without choosing any row.
    """

    op: str
    bytes: int
    nodes: int
    ranks: int
    nccl: str
    library: str
    constants_version: str
    basis: str
    rows: tuple[Row, ...]
    choice: Choice | None
    instead: str = ""

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
    cuda_11_8: bool = False,
    printed: Printed | None = None,
) -> Prediction:
    """NCCL's cost table for `op` on `total_bytes`.

    `algo` and `proto` are values of NCCL_ALGO and NCCL_PROTO; `calls` is how many equal calls one
    group aggregates (the size is theirs together). `printed` takes the place of what follows from
    the graphs. Raises AdvisorError on an op without a cost model, a release before 2.8, or a value
    NCCL itself refuses.
    """
    function = function_name(op)
    if total_bytes < 0:
        raise AdvisorError(f"bytes is {total_bytes}: a size cannot be negative")
    constants = constants_for(version, topology.library)
    cells = [
        Cell(topology, version, constants, function, algorithm, protocol)
        for algorithm in algorithms(version)
        for protocol in PROTOCOLS
        if legal(function, algorithm, protocol, version)
    ]
    collnet = topology.collnet is not None and topology.collnet.channels > 0
    off = frozenset() if collnet else COLLNET | {"NVLS" if topology.nodes > 1 else "NVLSTree"}
    chosen = parse_algorithms(algo, version, off), parse_protocols(proto, version)
    # What the log's own settings rule out has no bandwidth in its table.
    filters = printed is None or algo is not None or proto is not None
    rows: list[Row] = []
    rings: list[Row] = []
    for cell in cells if topology.ranks > 1 else ():
        if printed is not None:
            key = (function, cell.algorithm, cell.protocol)
            latency, bandwidth = printed.get(key, (0.0, 0.0))
            reason = "" if bandwidth > 0 else "not in the printed table"
        else:
            latency, bandwidth = latency_us(cell), bandwidth_gbps(cell)
            no_bandwidth = "no bandwidth" if bandwidth == 0 else ""
            reason = machine_reason(cell, dtype, reduce_op) or no_bandwidth
        if filters:
            reason = reason or filter_reason(cell, *chosen, cuda_11_8=cuda_11_8)
        time = None
        if not reason:
            pipe_ops = ceil(calls / communicator_channels(topology, version))
            time = _time_us(cell, total_bytes, latency, bandwidth, pipe_ops)
            time *= 1024 if _slow_fp8(cell, dtype) else 1
        figures = (cell.algorithm, cell.protocol, latency)
        rows.append(Row(*figures, 0.0 if reason else bandwidth, time, not reason, reason))
        if cell.algorithm == "Ring":
            backup = _time_us(cell, total_bytes, latency, bandwidth, 1) if bandwidth else None
            rings.append(Row(*figures, bandwidth, backup, bandwidth > 0, _BACKUP))
    if (2, 19, 0) <= version < (2, 24, 0) and not any(row.available for row in rows):
        rows = [row for row in rows if row.algo != "Ring"] + rings
    if topology.ranks == 1:
        rows = [Row("Ring", "Simple", 0.0, 0.0, 0.0, True)]
    rules = constants.rules
    instead = rules.instead(topology, function, total_bytes) if rules else ""
    return Prediction(
        op=function.lower(),
        bytes=total_bytes,
        nodes=topology.nodes,
        ranks=topology.ranks,
        nccl=format_version(version),
        library=topology.library,
        constants_version=format_version(constants.version),
        basis="modelled" if printed is None else "printed",
        rows=tuple(rows),
        choice=None if instead else _choose(cells, total_bytes, rows, proto),
        instead=instead,
    )


def _choose(
    cells: Sequence[Cell], total_bytes: int, rows: Sequence[Row], proto: str | None
) -> Choice | None:
    timed = [(row.time_us, row) for row in rows if row.time_us is not None]
    if not timed:
        return None
    time, best = min(timed, key=lambda pair: pair[0])  # ties keep the earlier
    cell = next(c for c in cells if (c.algorithm, c.protocol) == (best.algo, best.proto))
    ranks = cell.topology.ranks
    if ranks == 1:
        return Choice(best.algo, best.proto, 1, 0, time)
    if proto is None and (rules := cell.constants.rules) is not None:
        taken = rules.protocol(cell.topology, cell.function, total_bytes, cell.protocol)
        cell = cell._replace(protocol=taken)
        time = next(at for at, row in timed if (row.algo, row.proto) == (best.algo, taken))
    channels, threads = channels_and_threads(cell, total_bytes)
    if not cell.algorithm.startswith("CollNet"):
        own = total_bytes // ranks if cell.gathers else total_bytes
        channels = scheduled_channels(cell, own, channels)
    return Choice(cell.algorithm, cell.protocol, channels, threads, time)


def _time_us(
    cell: Cell, total_bytes: int, latency: float, bandwidth: float, pipe_ops: int
) -> float:
    """Time of a call of `total_bytes`; `pipe_ops` is how many calls a channel has in a group."""
    bandwidth *= _correction(cell, total_bytes)
    call = (cell.algorithm, cell.protocol, cell.function)
    across = cell.topology.nodes > 1 and cell.topology.library == "nccl"
    if across and call == ("Ring", "Simple", "AllReduce"):
        latency *= _plateau(cell, total_bytes)
    count = pipe_ops if cell.algorithm == "Ring" else ceil(pipe_ops / _BATCH_COLLECTIVES)
    return latency * count + total_bytes / (1000 * bandwidth)


def _correction(cell: Cell, total_bytes: int) -> float:
    """Trees fall short of the model at middle sizes: a measured factor per power of two.

    RCCL has such factors for rings over several nodes too, and the last is for all that is larger.
    """
    if cell.topology.library == "rccl":
        if cell.algorithm == "Ring" and cell.topology.nodes == 1:
            return 1.0
        own = cell.constants
        factors = own.tree_correction if cell.algorithm == "Tree" else own.ring_correction
        return factors[cell.protocol][min(floor_log2(total_bytes >> 6), 26)]
    limit = 0
    if cell.algorithm == "Tree" and cell.function == "AllReduce":
        limit = 23
    elif cell.algorithm == "NVLSTree" and cell.version >= (2, 29, 0):
        blackwell = cell.topology.compute_capability >= 100 and cell.topology.arch == "x86"
        limit = 24 if blackwell else 0
    chunks = total_bytes >> 6
    if chunks == 0 and cell.version >= (2, 22, 0):
        return 1.0
    index = floor_log2(chunks)
    return cell.constants.tree_correction[cell.protocol][index] if index < limit else 1.0


def _plateau(cell: Cell, total_bytes: int) -> float:
    """Rings across nodes take longer once every rank's part fills its buffers."""
    topology, version = cell.topology, cell.version
    if version < (2, 18, 0):
        if total_bytes < topology.ranks * 4096:
            return 1.0
        return 1.5 if version >= (2, 17, 0) and topology.compute_capability >= 90 else 1.9
    channels = communicator_channels(topology, version)
    if total_bytes // (channels * topology.ranks) < 64:
        return 1.0
    return 1.9 if topology.compute_capability < 80 else 1.4


def _slow_fp8(cell: Cell, dtype: str) -> bool:
    """Rings add fp8 many times over and lose precision: priced out above 8 ranks (2.24+)."""
    return (
        cell.version >= (2, 24, 0)
        and dtype in _FP8
        and cell.function in ("AllReduce", "ReduceScatter", "Reduce")
        and cell.algorithm == "Ring"
        and cell.topology.ranks > 8
    )
