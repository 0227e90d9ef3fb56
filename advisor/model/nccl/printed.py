"""The tables NCCL prints of its own model (NCCL_DEBUG_SUBSYS=TUNING), compared with ours.

A log that holds both the graphs and the tables is the best check of this model there is, and it
tells what no other line says: the GPUs' compute capability and the CPU vendor are those that
reproduce the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from advisor.errors import AdvisorError
from advisor.model.nccl.cost import predict
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Topology

_CELL = re.compile(r"\s*(-?\d{1,15}(?:\.\d{1,9})?)/\s*(-?\d{1,15}(?:\.\d{1,9})?)\s*")
_ALGORITHM_ROW = re.compile(r"\s*Algorithm\s*\|(.*)")
_OLD_HEADER = re.compile(r"\s*Latency/AlgBw \|(.*)")
_ROW = re.compile(rf"\s*({'|'.join(FUNCTIONS)}) \|(.*)")
_SET = re.compile(r"NCCL_(ALGO|PROTO) set by environment to (\S+)")
_NAMES = {name.lower(): name for name in ALGORITHMS} | {"collnet": "CollNetDirect"}
# Printed to one decimal from float32.
_HALF_DIGIT = 0.0501


@dataclass
class PrintedTable:
    """Cells as printed: (function, algorithm, protocol) -> (latency us, bandwidth GB/s)."""

    cells: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    _algorithms: list[str] = field(default_factory=list)

    def feed(self, text: str) -> None:
        """Take one log line without its prefix; lines that belong to no table are ignored."""
        if found := _SET.search(text):
            self.environment[found[1]] = found[2]
        elif found := _ALGORITHM_ROW.fullmatch(text):
            self._algorithms = [_NAMES.get(word.lower(), "") for word in _words(found[1])]
        elif found := _OLD_HEADER.fullmatch(text):
            names = [cell.split("/")[0].strip() for cell in found[1].split("|")[::3]]
            self._algorithms = [_NAMES.get(name.lower(), "") for name in names if name]
        elif self._algorithms and (found := _ROW.fullmatch(text)):
            for position, cell in enumerate(found[2].split("|")):
                pair = _CELL.fullmatch(cell)
                place, protocol = divmod(position, 3)
                if pair and place < len(self._algorithms) and self._algorithms[place]:
                    key = (found[1], self._algorithms[place], PROTOCOLS[protocol])
                    self.cells.setdefault(key, (float(pair[1]), float(pair[2])))


def _words(text: str) -> Iterator[str]:
    return (word for word in text.replace("|", " ").split() if word)


@dataclass(frozen=True)
class Check:
    """How many printed cells that can be used the model reproduces; `differing` names others."""

    cells: int
    equal: int
    differing: tuple[str, ...]


def check_table(table: PrintedTable, topology: Topology, version: NcclVersion) -> Check:
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
            algo=table.environment.get("ALGO"),
            proto=table.environment.get("PROTO"),
        )
        for row in prediction.rows:
            printed = table.cells.get((function, row.algo, row.proto))
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
    table: PrintedTable,
    candidates: list[Topology],
    version: NcclVersion,
) -> tuple[Topology, Check] | None:
    """The first candidate that reproduces most cells; None without a table to compare."""
    best: tuple[Topology, Check] | None = None
    for topology in candidates:
        try:
            check = check_table(table, topology, version)
        except AdvisorError:
            return None
        if check.cells and (best is None or check.equal > best[1].equal):
            best = (topology, check)
    return best
