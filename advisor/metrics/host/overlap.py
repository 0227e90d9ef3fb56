"""The price of overlap: the same kernels beside communication and without (METRICS section 3)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.collectives.call import Call, when_moving
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import COMPUTE, Timeline
from advisor.statistics import mean_interval
from advisor.store.events import Events

# Seen this often each way, a kernel's medians can be compared.
_FEWEST = 3
# Kernels shorter than this are dominated by their launch.
_SHORTEST_NS = 5_000
# Contention slows all calls of a kernel by about one factor; where one name stands for several
# shapes and another mix of them ran beside communication, the quartiles disagree by more than that.
_QUARTILES = (0.25, 0.5, 0.75)
_ONE_FACTOR = 1.3
# Under communication: half of it beside what transfers, so that its slowing is not lost in noise.
_COVERED = 0.5


class Beside(NamedTuple):
    """When a rank computes beside transfers, and the share of that time that those cost it."""

    when: Intervals
    share: float

    def lost(self, low: Sequence[int] | Int64s, high: Sequence[int] | Int64s) -> Int64s:
        """What transfers slow its compute by in windows ``[low, high)``, ns."""
        lost: Int64s = np.rint(self.share * self.when.covered(low, high)).astype(np.int64)
        return lost


def beside_transfers(
    slowdowns: Sequence[Mapping[str, Any]],
    occupancy: Mapping[int, Occupancy],
    moving: Mapping[int, Intervals],
) -> dict[int, Beside]:
    """Of each rank with a row that :func:`overlap_row` made, by that."""
    shares = {row["rank"]: 1 - 1 / row["slowdown"] for row in slowdowns if row["slowdown"] > 1}
    own = {rank: occupancy[rank] for rank in shares}
    return {r: Beside(own[r].compute & own[r].comm & moving[r], shares[r]) for r in shares}


def overlap_row(
    events: Events, line: Timeline, occupancy: Occupancy, calls: Sequence[Call], steps: Steps
) -> dict[str, Any] | None:
    """The row of ``overlap_slowdown`` of one GPU; None without kernels seen both ways.

    Compute that runs ``slowdown`` times slower beside a transfer loses 1 - 1 / slowdown of the time
    that it spends there. A collective that waits for late ranks moves nothing and slows nothing.
    """
    if not len(occupancy.comm):
        return None
    chosen = np.flatnonzero((line.kind == COMPUTE) & (line.end - line.start >= _SHORTEST_NS))
    if not len(chosen):
        return None
    start, end = line.start[chosen], line.end[chosen]
    duration = end - start
    beside = (when_moving(calls) & occupancy.comm).covered(start, end)
    under, alone = beside >= _COVERED * duration, occupancy.comm.covered(start, end) == 0
    if under.sum() < _FEWEST or alone.sum() < _FEWEST:
        return None
    kernel, shaped = _kernels(events, line.rank, line.event_id[chosen], on_device=line.on_device)
    losses, weights, compared, compared_ns, with_shapes = [], [], 0, 0, 0
    order = np.argsort(kernel, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(kernel[order])) + 1):
        with_comm, without = own[under[own]], duration[own[alone[own]]]
        if len(with_comm) < _FEWEST or len(without) < _FEWEST:
            continue
        longer = duration[with_comm] - np.median(without)
        lost = float(np.median(longer / beside[with_comm]))
        unslowed = duration[with_comm] - lost * beside[with_comm]
        times = np.quantile(unslowed, _QUARTILES) / np.quantile(without, _QUARTILES)
        if lost >= 1 or times.max() > _ONE_FACTOR * times.min():
            continue  # not all of it slower by one factor: other shapes ran beside communication
        losses.append(lost)
        weights.append(float(beside[with_comm].sum()))
        compared += len(with_comm)
        with_shapes += int(shaped[with_comm].sum())
        compared_ns += int(beside[own].sum())
    if not losses:
        return None
    lost = float(np.average(losses, weights=weights))
    low, high = (1 / (1 - at) for at in mean_interval(losses, weights))
    count = max(len(steps.steps), 1)
    return {
        "run": events.run,
        "rank": line.rank,
        "kernels": len(losses),
        "calls_under": compared,
        "with_shapes": with_shapes,
        "slowdown": 1 / (1 - lost),
        "slowdown_low": low,
        "slowdown_high": high,
        "cost_ns_per_step": round(lost * int(beside.sum()) / count),
        "compared_ns_per_step": round(lost * compared_ns / count),
    }


def _kernels(
    events: Events, rank: int, chosen: Int64s, *, on_device: bool
) -> tuple[Int64s, Int64s]:
    """For each of some kernels a number for what it does, in the order of what is compared.

    That is its name, and the shapes of the operator that launched it; and 1 where those were
    recorded.
    """
    found = events.read(
        rank,
        """
        WITH shape AS MATERIALIZED (
          SELECT rank, external_id, any_value(input_dims) AS dims FROM event
          JOIN comm_event USING (run, rank, event_id)
          WHERE run = $1 AND rank BETWEEN $2 AND $3 AND external_id > 0 AND class = 'cpu_op'
            AND NOT $4 GROUP BY ALL),
        kernel AS MATERIALIZED (
          SELECT rank, event_id, external_id, name FROM event
          WHERE run = $1 AND rank BETWEEN $2 AND $3 AND (class = 'compute' AND device IS NOT NULL
            OR class = 'cpu_op' AND $4)),
        shaped AS MATERIALIZED (
          SELECT rank, event_id, name, coalesce(dims, own) AS dims
          FROM kernel LEFT JOIN shape USING (rank, external_id)
            LEFT JOIN (SELECT rank, event_id, input_dims AS own FROM comm_event
              WHERE run = $1 AND rank BETWEEN $2 AND $3 AND $4) USING (rank, event_id)),
        numbered AS (
          SELECT name, dims, row_number() OVER (ORDER BY name, dims) AS number
          FROM (SELECT DISTINCT name, dims FROM shaped))
        SELECT rank, event_id, number, (s.dims IS NOT NULL)::BIGINT AS has_shape
        FROM shaped s JOIN numbered n ON s.name = n.name AND s.dims IS NOT DISTINCT FROM n.dims
        ORDER BY rank, event_id
        """,
        [not on_device],
    )
    places = np.searchsorted(found["event_id"], chosen)
    number, has_shape = (
        np.asarray(found[key][places], np.int64) for key in ("number", "has_shape")
    )
    return number, has_shape
