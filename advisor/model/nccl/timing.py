"""Time of one (function, algorithm, protocol): latency, bandwidth and NCCL's own factors."""

from __future__ import annotations

from math import ceil

from advisor.model.nccl.channels import communicator_channels
from advisor.model.nccl.constants import Constants
from advisor.model.nccl.latency import floor_log2
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Topology

# Collectives in one batch of work; latency of non-ring algorithms is paid once per batch.
_BATCH_COLLECTIVES = 9
_FP8 = {"float8_e4m3fn", "float8_e5m2"}


def time_us(
    topology: Topology,
    function: str,
    algorithm: str,
    protocol: str,
    total_bytes: int,
    version: NcclVersion,
    constants: Constants,
    latency: float,
    bandwidth: float,
    pipe_ops: int,
) -> float:
    bandwidth *= _correction(
        topology, function, algorithm, protocol, total_bytes, version, constants
    )
    if (algorithm, protocol, function) == ("Ring", "Simple", "AllReduce") and topology.nodes > 1:
        latency *= _plateau(topology, total_bytes, version)
    count = pipe_ops if algorithm == "Ring" else ceil(pipe_ops / _BATCH_COLLECTIVES)
    return latency * count + total_bytes / (1000 * bandwidth)


def _correction(
    topology: Topology,
    function: str,
    algorithm: str,
    protocol: str,
    total_bytes: int,
    version: NcclVersion,
    constants: Constants,
) -> float:
    """Trees fall short of the model at middle sizes: a measured factor per power of two."""
    limit = 0
    if algorithm == "Tree" and function == "AllReduce":
        limit = 23
    elif algorithm == "NVLSTree" and version >= (2, 29, 0):
        blackwell = topology.compute_capability >= 100 and topology.arch == "x86"
        limit = 24 if blackwell else 0
    chunks = total_bytes >> 6
    if chunks == 0 and version >= (2, 22, 0):
        return 1.0
    index = floor_log2(chunks)
    return constants.tree_correction[protocol][index] if index < limit else 1.0


def _plateau(topology: Topology, total_bytes: int, version: NcclVersion) -> float:
    """Rings across nodes take longer once every rank's part fills its buffers."""
    if version < (2, 18, 0):
        if total_bytes < topology.ranks * 4096:
            return 1.0
        return 1.5 if version >= (2, 17, 0) and topology.compute_capability >= 90 else 1.9
    channels = communicator_channels(topology, version)
    if total_bytes // (channels * topology.ranks) < 64:
        return 1.0
    return 1.9 if topology.compute_capability < 80 else 1.4


def slow_fp8(
    topology: Topology, function: str, algorithm: str, dtype: str, version: NcclVersion
) -> bool:
    """Rings add fp8 many times over and lose precision: priced out above 8 ranks (2.24+)."""
    reduces = function in ("AllReduce", "ReduceScatter", "Reduce")
    return (
        version >= (2, 24, 0)
        and dtype in _FP8
        and reduces
        and algorithm == "Ring"
        and topology.ranks > 8
    )
