"""Whether a rank is given more work than its peers, or the same work takes it longer.

Shapes tell: FLOPs per call of the same operators say how much a rank has to do, and the same
kernels launched by operators of the same shapes say how long its device takes for it. On a host
operators of the same shapes tell its pace, and an operator that takes longer than that, or that no
other rank runs, is more to do.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.model.operator_flops import NAME, flops_of_shapes
from advisor.store.columns import rows

# What stands before the name of an operator's backward in torch's traces.
_BACKWARD = "autograd::engine::evaluate_function: "
# A kernel's median says something from so many calls on.
_FEWEST = 3
# A slow host slows all it runs: one operator that holds this share of the excess is more work.
_MOSTLY = 0.5
# Peers that a rank is compared with: the median of so many does not hang on one.
_MOST_PEERS = 8


@dataclass(frozen=True)
class Compared:
    """A rank over the median of its peers: FLOPs of its calls, time of equal kernels.

    Ratios are None where shapes were not recorded. ``own`` and ``usual`` are shapes of one
    operator on the rank and on its peers, where they differ; ``own_ns`` and ``usual_ns`` what it
    takes per step, where its time tells more than its shapes.
    """

    work: float | None
    pace: float | None
    operator: str | None = None
    own: str | None = None
    usual: str | None = None
    own_ns: int | None = None
    usual_ns: int | None = None


def compare_work(con: Any, run: str, rank: int, peers: Sequence[int]) -> Compared:
    """How a rank's work and pace compare with those of ``peers``."""
    chosen = [rank, *peers[:_MOST_PEERS]]
    by_shape = _by_shape(con, run, rank, chosen)
    return _by_time(con, run, rank, chosen, by_shape)


def _by_time(con: Any, run: str, rank: int, chosen: Sequence[int], by_shape: Compared) -> Compared:
    """On a host: its pace by operators of equal shapes, and the operator that it does not tell."""
    found = rows(
        con,
        """
        WITH operator AS MATERIALIZED (
          SELECT rank, name, input_dims AS dims, count(*) AS calls,
            sum(a.end_ns - a.start_ns) AS ns, median(a.end_ns - a.start_ns) AS each_ns
          FROM activity a JOIN event USING (run, rank, event_id)
            LEFT JOIN comm_event USING (run, rank, event_id)
          WHERE run = $1 AND list_contains($2::INTEGER[], rank) AND kind = 'compute'
            AND a.step IS NOT NULL AND device IS NULL GROUP BY ALL),
        steps AS (SELECT rank, count(DISTINCT step) AS steps FROM activity
          WHERE run = $1 AND step IS NOT NULL GROUP BY rank),
        pace AS (
          SELECT sum(own.each_ns * own.calls) / sum(other.each_ns * own.calls) AS pace
          FROM operator own JOIN operator other USING (name, dims)
          WHERE own.rank = $3 AND other.rank <> $3 AND least(own.calls, other.calls) >= $4)
        SELECT any_value(pace), name,
          coalesce(sum(ns / steps) FILTER (rank = $3), 0) AS own_ns,
          coalesce(sum(ns / steps) FILTER (rank <> $3), 0) / ($5 - 1) AS usual_ns
        FROM operator JOIN steps USING (rank), pace GROUP BY name ORDER BY name
        """,
        [run, list(chosen), rank, _FEWEST, len(chosen)],
    )
    pace = float(found[0][0]) if found and found[0][0] else None
    usual = sum(float(peers) for *_, peers in found)
    if pace is None or not usual or len(chosen) < 2:
        return by_shape
    told = max(pace, 1.0)
    excess = sum(float(own - peers) for *_, own, peers in found)
    beyond = sum(float(own) - told * float(peers) for *_, own, peers in found)
    _, name, own, peers = max(found, key=lambda row: row[2] - told * row[3])
    work = 1 + beyond / usual
    by_shape = replace(by_shape, pace=pace)
    if float(own) - told * float(peers) < _MOSTLY * excess or work <= (by_shape.work or 1.0):
        return by_shape
    name = name.removeprefix(_BACKWARD)
    return Compared(work, pace, name, own_ns=round(own), usual_ns=round(peers))


def _by_shape(con: Any, run: str, rank: int, chosen: Sequence[int]) -> Compared:
    """By the FLOPs of recorded shapes, and on a device by kernels of equal ones."""
    flops, shapes = _flops(con, run, chosen)
    others = [peer for peer in chosen[1:] if peer in flops]
    if rank not in flops or not others:
        return Compared(None, None)
    own, usual = flops[rank], {}
    for operator in own:
        found = [flops[peer][operator] for peer in others if operator in flops[peer]]
        if found:
            usual[operator] = float(np.median(found))
    total = sum(usual.values())
    work = sum(own[name] for name in usual) / total if total else None
    pace = _pace(con, run, rank, others)
    if work is None or abs(work - 1) < 0.005:
        return Compared(work, pace)
    name = max(usual, key=lambda it: abs(own[it] - usual[it]))
    mine = shapes[rank][name]
    theirs = next((shapes[p][name] for p in others if name in shapes[p]), None)
    if theirs == mine:
        return Compared(work, pace)
    return Compared(work, pace, name, mine, theirs)


def _flops(
    con: Any, run: str, ranks: Sequence[int]
) -> tuple[dict[int, dict[str, float]], dict[int, dict[str, str]]]:
    """rank -> operator -> FLOPs of its mean call times its calls per call of all; its main shape.

    Means per call do not depend on how many steps a rank recorded.
    """
    found = rows(
        con,
        "SELECT rank, name, input_dims, concrete_inputs, count(*) FROM event "
        "JOIN comm_event USING (run, rank, event_id) WHERE run = ? AND class = 'cpu_op' "
        "AND list_contains(?::INTEGER[], rank) AND input_dims IS NOT NULL "
        "AND regexp_full_match(name, ?) GROUP BY ALL ORDER BY ALL",
        [run, list(ranks), NAME],
    )
    sums: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    counts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    largest: dict[int, dict[str, tuple[float, str]]] = defaultdict(dict)
    for rank, name, dims, concrete, count in found:
        flops = flops_of_shapes(name, dims, concrete)
        if not flops:
            continue
        sums[rank][name] += flops * count
        counts[rank][name] += count
        largest[rank][name] = max(largest[rank].get(name, (0.0, "")), (flops * count, dims))
    total = {name: sum(own.get(name, 0) for own in counts.values()) for own in counts.values()
             for name in own}  # fmt: skip
    means = {
        rank: {name: value / counts[rank][name] * total[name] for name, value in own.items()}
        for rank, own in sums.items()
    }
    shapes = {
        rank: {name: _first(dims) for name, (_, dims) in own.items()}
        for rank, own in largest.items()
    }
    return means, shapes


def _first(dims: str) -> str:
    """The first shape that says something, as text."""
    shapes = [shape for shape in json.loads(dims) if shape]
    return json.dumps(shapes[0]).replace(" ", "") if shapes else dims


def _pace(con: Any, run: str, rank: int, peers: Sequence[int]) -> float | None:
    """Median time of the rank's kernels over the same ones' on its peers, weighted by time.

    The same are those of one name whose launching operators had equal shapes.
    """
    found = rows(
        con,
        """
        WITH shape AS MATERIALIZED (
          SELECT rank, external_id, any_value(input_dims) AS dims FROM event
          JOIN comm_event USING (run, rank, event_id)
          WHERE run = $1 AND list_contains($2::INTEGER[], rank) AND external_id > 0
            AND class = 'cpu_op' AND input_dims IS NOT NULL GROUP BY ALL),
        kernel AS (
          SELECT rank, name, dims, median(dur_ns) AS ns, count(*) AS calls
          FROM event JOIN shape USING (rank, external_id)
          WHERE run = $1 AND class = 'compute' AND device IS NOT NULL
          GROUP BY ALL HAVING count(*) >= $3)
        SELECT any_value(own.ns), any_value(own.calls), median(other.ns)
        FROM kernel own JOIN kernel other USING (name, dims)
        WHERE own.rank = $4 AND other.rank <> $4 GROUP BY name, dims
        """,
        [run, [rank, *peers], _FEWEST, rank],
    )
    weights = [float(other) * calls for _, calls, other in found]
    if not sum(weights):
        return None
    return float(sum(float(own) * calls for own, calls, _ in found) / sum(weights))
