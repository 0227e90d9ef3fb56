"""Calibrated times against measured ones that the fit has not seen.

    python -m benchmarks.calibration

Tables are those of tests/rules/bench_tables.yaml whose machine has NCCL graphs. Every second size
of a table is fitted and the others judged, as are, by eight sizes of one table, all other rows of
that cluster; of 8 x A100 each collective is judged by a fit of the
others; each cluster by a fit of the other clusters of its kind; and each kind of machine by a fit
of the others with as many nodes, which is what a profile of another kind of machine is worth.
Printed are rows within 0.8 to 1.25 of what was measured; and what constants of
advisor/metrics/links rest on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median, pstdev
from typing import Any

from advisor.config.hardware import machine
from advisor.config.loader import read_plain
from advisor.metrics.links.expected import latency_us
from advisor.model.nccl.calibration import LEAST_ROWS, Calibration, Measured, fit
from advisor.model.nccl.cost import predict
from advisor.model.topology_machine import topology_of

TABLES = Path(__file__).parents[1] / "tests" / "rules" / "bench_tables.yaml"
SMALL = 64 << 10
# Table -> machine, nodes and NCCL: the one it names, else one of its time.
MACHINES = {
    "a100x8-allreduce": ("dgx-a100", 1, (2, 10, 3)),
    "a100x8-allgather": ("dgx-a100", 1, (2, 10, 3)),
    "a100x8-broadcast": ("dgx-a100", 1, (2, 10, 3)),
    "a100x8-reduce": ("dgx-a100", 1, (2, 10, 3)),
    "a100x8-reducescatter": ("dgx-a100", 1, (2, 10, 3)),
    "h100x8-p5": ("aws-p5", 1, (2, 18, 5)),
    "a100x16-p4d": ("aws-p4d", 2, (2, 10, 3)),
    "h100x16-a3mega": ("gcp-a3-mega", 2, (2, 18, 5)),
    "a100x8-oci": ("dgx-a100", 1, (2, 14, 3)),
    "a100x8-galvatron": ("dgx-a100", 1, (2, 14, 3)),
    "h100x8-host": ("aws-p5", 1, (2, 20, 5)),
    "a100x16-p4d-dlami": ("aws-p4d", 2, (2, 23, 4)),
    "h100x16-ib": ("dgx-h100", 2, (2, 26, 2)),
    "h100x16-bond": ("dgx-h100", 2, (2, 20, 5)),
    "h200x16-bf3": ("dgx-h200", 2, (2, 30, 4)),
    "b200x16-a4-west": ("dgx-b200", 2, (2, 26, 6)),
    "b200x16-a4-gke": ("dgx-b200", 2, (2, 26, 6)),
}
# Tables of one cluster; every other table is of its own.
SUPERBENCH = tuple(
    f"a100x8-{op}" for op in ("allreduce", "allgather", "broadcast", "reduce", "reducescatter")
)


@cache
def rows_of(name: str) -> tuple[Measured, ...]:
    """The table's rows out of place, from 1 KB to 1 GB, with NCCL's own prediction."""
    (table,) = [item for item in read_plain(TABLES) if item["id"] == name]
    hardware, nodes, nccl = MACHINES[name]
    topology = topology_of(machine(hardware), nodes)
    op = table["op"].replace("_", "")
    return tuple(
        Measured(time, predict(topology, op, size, nccl, algo=table.get("algo")))
        for size, time, *_ in table["rows"]
        if 1024 <= size <= 1 << 30
    )


def ratios(fitted: Calibration, rows: Sequence[Measured]) -> dict[bool, list[float]]:
    """Calibrated over measured times, of rows up to 64 KB (True) and above."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        small = row.prediction.bytes <= SMALL
        found[small].append(fitted.time_us(row.prediction)[0] / row.time_us)
    return found


def _cluster(name: str) -> str:
    return "superbenchmark" if name in SUPERBENCH else name


def _fit(rows: Sequence[Measured]) -> Calibration:
    return fit(rows, machine="held out", sources=["tables"], nccl="")


def held_out() -> Iterator[tuple[str, str, dict[bool, list[float]]]]:
    """Kind, name and ratios of everything that is judged without having been fitted."""
    for name in MACHINES:
        rows = rows_of(name)
        if len(rows) >= 16:
            yield "sizes", name, ratios(_fit(rows[::2]), rows[1::2])
        if len(rows) >= LEAST_ROWS + 6:
            steps = LEAST_ROWS - 1
            few = [rows[round(step * (len(rows) - 1) / steps)] for step in range(LEAST_ROWS)]
            others = [
                row
                for other in MACHINES
                if _cluster(other) == _cluster(name)
                for row in rows_of(other)
                if row not in few
            ]
            yield "eight sizes", name, ratios(_fit(few), others)
    for name in SUPERBENCH:
        others = [row for other in SUPERBENCH if other != name for row in rows_of(other)]
        yield "collectives", name, ratios(_fit(others), rows_of(name))
    for name in MACHINES:
        others = [
            row
            for other in MACHINES
            if MACHINES[other][:2] == MACHINES[name][:2] and _cluster(other) != _cluster(name)
            for row in rows_of(other)
        ]
        # The other operations of a cluster that others measured one operation of say nothing new.
        if len(others) >= LEAST_ROWS and name not in SUPERBENCH[1:]:
            yield "clusters", name, ratios(_fit(others), rows_of(name))
    by_machine: dict[tuple[Any, ...], list[str]] = {}
    for name, (hardware, nodes, _) in MACHINES.items():
        by_machine.setdefault((hardware, nodes), []).append(name)
    for key, names in by_machine.items():
        others = [
            row
            for other, (_, nodes, _) in MACHINES.items()
            if other not in names and nodes == key[1]
            for row in rows_of(other)
        ]
        judged = [row for name in names for row in rows_of(name)]
        yield "machines", f"{key[0]} x {key[1]}", ratios(_fit(others), judged)


def share(found: Sequence[float]) -> float:
    """Of ratios those within 0.8 to 1.25."""
    return sum(0.8 <= ratio <= 1.25 for ratio in found) / len(found)


def small_times() -> list[float]:
    """What calls up to 64 KB take over NCCL's latency: USUAL_TIMES (links/expected.py)."""
    small = [row for name in MACHINES for row in rows_of(name) if row.prediction.bytes <= SMALL]
    return [row.time_us / latency for row in small if (latency := latency_us(row.prediction))]


def main() -> None:
    """Print each table, the sum of each kind and what constants rest on."""
    sums: dict[tuple[str, bool], list[float]] = {}
    for kind, name, found in held_out():
        text = f"{kind:13}{name:24}"
        for small in (True, False):
            sums.setdefault((kind, small), []).extend(found[small])
            where = "to 64 KB" if small else "above"
            text += (
                f"  {where}: {share(found[small]):4.0%} of {len(found[small]):2}"
                if found[small]
                else ""
            )
        print(text)
    for (kind, small), values in sums.items():
        where = "up to 64 KB" if small else "above"
        print(f"all {kind} {where}: {share(values):.0%} of {len(values)}")
    off, times = pstdev(map(math.log, sums["sizes", False])), small_times()
    print(f"CALL (links/durations.py): sizes above 64 KB are off by {off:.2f}")
    print(f"USUAL_TIMES: {median(times):.1f} in the middle, {max(times):.1f} at most")


if __name__ == "__main__":
    main()
