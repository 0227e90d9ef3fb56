"""The tables NCCL prints of its own model (NCCL_DEBUG_SUBSYS=TUNING), compared with ours.

A log that holds both the graphs and the tables is the best check of this model there is, and it
tells what no other line says: the GPUs' compute capability and the CPU vendor are those that
reproduce the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from advisor.errors import AdvisorError
from advisor.model.nccl.cost import predict
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS, function_name
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Topology

_ALGORITHM = {name.upper(): name for name in ALGORITHMS}
_PROTOCOL = {name.upper(): name for name in PROTOCOLS}
# Printed to one decimal from float32.
_HALF_DIGIT = 0.0501

Cells = Mapping[tuple[str, str, str], tuple[float, float]]
"""As printed: (function, algorithm, protocol) -> (latency us, bandwidth GB/s)."""


def cells_of(con: duckdb.DuckDBPyConnection, ranks: int) -> Cells:
    """The cells that a communicator of so many ranks printed, as the log's reader stored them."""
    rows = con.execute(
        "SELECT op, replace(algorithm, '_', ''), protocol, latency_us, bandwidth_gbps "
        "FROM nccl_choice WHERE source = 'table' AND coalesce(ranks, $1) = $1 ORDER BY rowid",
        [ranks],
    ).fetchall()
    cells: dict[tuple[str, str, str], tuple[float, float]] = {}
    for op, algorithm, protocol, *figures in rows:
        if algorithm in _ALGORITHM and protocol in _PROTOCOL:
            key = (function_name(op), _ALGORITHM[algorithm], _PROTOCOL[protocol])
            cells.setdefault(key, (figures[0], figures[1]))
    return cells


@dataclass(frozen=True)
class Check:
    """How many printed cells that can be used the model reproduces; `differing` names others."""

    cells: int
    equal: int
    differing: tuple[str, ...]


def check_table(
    cells: Cells, environment: Mapping[str, str], topology: Topology, version: NcclVersion
) -> Check:
    """Compare every cell that is available by the print or by the model.

    Raises AdvisorError when the environment in the log holds values NCCL refuses.
    """
    compared, differing = 0, []
    for function in FUNCTIONS:
        prediction = predict(
            topology,
            function,
            1 << 20,
            version,
            algo=environment.get("NCCL_ALGO"),
            proto=environment.get("NCCL_PROTO"),
        )
        for row in prediction.rows:
            printed = cells.get((function, row.algo, row.proto))
            if printed is None or (printed[1] == 0 and not row.available):
                continue
            compared += 1
            close = (
                abs(printed[1] - row.bandwidth_gbps) <= _HALF_DIGIT
                and abs(printed[0] - row.latency_us) <= _HALF_DIGIT
            )
            if not close:
                differing.append(
                    f"{function} {row.algo}/{row.proto}: printed {printed[0]}/{printed[1]}, "
                    f"modelled {row.latency_us:.1f}/{row.bandwidth_gbps:.1f}"
                )
    return Check(compared, compared - len(differing), tuple(differing))


def best_match(
    cells: Cells, environment: Mapping[str, str], candidates: list[Topology], version: NcclVersion
) -> tuple[Topology, Check] | None:
    """The first candidate that reproduces most cells; None without a table to compare."""
    best: tuple[Topology, Check] | None = None
    for topology in candidates:
        try:
            check = check_table(cells, environment, topology, version)
        except AdvisorError:
            return None
        if check.cells and (best is None or check.equal > best[1].equal):
            best = (topology, check)
    return best
