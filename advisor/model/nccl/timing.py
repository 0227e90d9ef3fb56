"""Time of one cell of NCCL's table: latency, bandwidth and NCCL's own factors."""

from __future__ import annotations

from math import ceil

from advisor.model.nccl.cell import Cell
from advisor.model.nccl.channels import communicator_channels
from advisor.model.nccl.latency import floor_log2

# Collectives in one batch of work; latency of non-ring algorithms is paid once per batch.
_BATCH_COLLECTIVES = 9
_FP8 = {"float8_e4m3fn", "float8_e5m2"}


def time_us(cell: Cell, total_bytes: int, latency: float, bandwidth: float, pipe_ops: int) -> float:
    """Time of a call of `total_bytes`; `pipe_ops` is how many calls a channel has in a group."""
    bandwidth *= _correction(cell, total_bytes)
    plateau = cell.topology.nodes > 1 and cell.topology.library == "nccl"
    if plateau and (cell.algorithm, cell.protocol, cell.function) == (
        "Ring",
        "Simple",
        "AllReduce",
    ):
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
        constants = cell.constants
        factors = (
            constants.tree_correction if cell.algorithm == "Tree" else constants.ring_correction
        )
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


def slow_fp8(cell: Cell, dtype: str) -> bool:
    """Rings add fp8 many times over and lose precision: priced out above 8 ranks (2.24+)."""
    return (
        cell.version >= (2, 24, 0)
        and dtype in _FP8
        and cell.function in ("AllReduce", "ReduceScatter", "Reduce")
        and cell.algorithm == "Ring"
        and cell.topology.ranks > 8
    )
