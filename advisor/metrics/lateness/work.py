"""Whether a rank is given more work than its peers, or the same work takes it longer.

Shapes tell: FLOPs per call of the same operators say how much a rank has to do, and the same
kernels launched by operators of the same shapes say how long its device takes for it. On a host
operators of the same shapes tell its pace, and an operator that takes longer than that, or that no
other rank runs, is more to do. On a device attention does so: under a causal mask, or with
documents packed into sequences, its time follows the tokens attended to, which no shape tells.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.lateness.memory import memory_pace
from advisor.metrics.lateness.unlike import unlike_operands
from advisor.metrics.timeline.shapes import LAUNCHED_SHAPES
from advisor.model.operator_flops import NAME, flops_of_shapes
from advisor.statistics import binomial_tail, sign_flip_tail
from advisor.store.columns import rows

# What stands before the name of an operator's backward in torch's traces.
_BACKWARD = "autograd::engine::evaluate_function: "
# A kernel's median says something from so many calls on.
_FEWEST = 3
# A slow host slows all it runs: one operator that holds this share of the excess is more work.
_MOSTLY = 0.5
_ATTENTION = "attention"  # flash_fwd_kernel, fmha_cutlassF, attention_kernel
_MOST_PEERS = 8  # of a rank: the median of so many does not hang on one

_BySteps = dict[int, dict[str, float]]  # step -> operator -> FLOPs
_ByShapes = dict[str, dict[str, float]]  # operator -> shapes of its operands -> FLOPs per step
_Flops = tuple[dict[int, _BySteps], dict[int, _ByShapes]]  # by rank
_Known = tuple[_Flops, list["_Operator"]]


class Compared(NamedTuple):
    """A rank over the median of its peers: its FLOPs per step, time of equal kernels.

    Ratios are None where shapes were not recorded. ``own`` and ``usual`` are shapes of one
    operator on the rank and on its peers, where they differ; ``own_ns`` and ``usual_ns`` what it
    takes per step, where its time tells more than its shapes. ``cause_p_value``: of its having
    more FLOPs than each peer in step after step, by chance; ``pace_p_value``: of so many kinds of
    its kernels taking so much longer. ``mean_pace``: by the mean of calls of equal shapes, not the
    median: other processes on a host's cores stop a few calls for long, and a device may throttle
    in some of the steps. ``more_by_step``: what it has more in the steps where it has more, of all.
    ``memory_pace``: as :func:`memory_pace` says of a device.
    """

    work: float | None
    pace: float | None
    operator: str | None = None
    own: str | None = None
    usual: str | None = None
    own_ns: int | None = None
    usual_ns: int | None = None
    cause_p_value: float = 1.0
    pace_p_value: float = 1.0
    mean_pace: float | None = None
    more_by_step: float | None = None
    memory_pace: float | None = None


def compare_work(
    con: Any,
    run: str,
    rank: int,
    peers: Sequence[int],
    known: dict[tuple[int, ...], _Known] | None = None,
    needed: float = 0.0,
) -> Compared:
    """How a rank's work and pace compare with those of ``peers``.

    ``known`` keeps what is known of the same ranks from one call to the next. ``needed``: by what
    share its kernels have to take longer to be why it is late.
    """
    chosen = [rank, *peers[:_MOST_PEERS]]
    key = tuple(sorted(chosen))
    known = {} if known is None else known
    if key not in known:
        known.clear()
        known[key] = _flops(con, run, key), _operators(con, run, key)
    (flops, shapes), operators = known[key]
    by_shape = _by_shape(rank, chosen, flops, shapes)
    pace = _host_pace(rank, operators, lambda one: one.each_ns)
    if pace is None:
        others = [peer for peer in chosen[1:] if peer in flops]
        if rank in flops and others:
            pace, mean_pace, by_chance = _pace(con, run, rank, others, needed)
            by_shape = by_shape._replace(pace=pace, mean_pace=mean_pace, pace_p_value=by_chance)
        memory = memory_pace(con, run, rank, chosen[1:], needed)
        by_shape = by_shape._replace(memory_pace=memory)
        return _by_attention(_kernels(con, run, key), rank, by_shape)
    times = _times(rank, operators, len(chosen) - 1)
    mean_pace = _host_pace(rank, operators, lambda one: one.mean_ns)
    return _by_time(times, pace, by_shape._replace(pace=pace, mean_pace=mean_pace))


class _Operator(NamedTuple):
    """Calls of one operator with one shape on a rank's host, in its steps."""

    rank: int
    name: str
    dims: str | None
    calls: int
    ns_per_step: float
    each_ns: float
    mean_ns: float


def _operators(con: Any, run: str, ranks: Sequence[int]) -> list[_Operator]:
    found = rows(
        con,
        """
        WITH steps AS (SELECT rank, count(DISTINCT step) AS steps FROM activity
          WHERE run = $1 AND step IS NOT NULL GROUP BY rank)
        SELECT rank, name, input_dims, count(*), sum(a.end_ns - a.start_ns) / any_value(steps),
          median(a.end_ns - a.start_ns), avg(a.end_ns - a.start_ns)
        FROM activity a JOIN event USING (run, rank, event_id)
          LEFT JOIN comm_event USING (run, rank, event_id) JOIN steps USING (rank)
        WHERE run = $1 AND list_contains($2::INTEGER[], rank) AND kind = 'compute'
          AND a.step IS NOT NULL AND device IS NULL GROUP BY ALL ORDER BY ALL
        """,
        [run, list(ranks)],
    )
    return [_Operator(*row) for row in found]


def _host_pace(
    rank: int, operators: Sequence[_Operator], takes_ns: Callable[[_Operator], float]
) -> float | None:
    """What operators of equal shapes take on the rank's host over what they take on its peers'."""
    own: dict[tuple[str, str | None], _Operator] = {
        (one.name, one.dims): one
        for one in operators
        if one.rank == rank and one.dims is not None and one.calls >= _FEWEST
    }
    took = usual = 0.0
    for other in operators:
        mine = own.get((other.name, other.dims))
        if mine is not None and other.rank != rank and other.calls >= _FEWEST:
            took += takes_ns(mine) * mine.calls
            usual += takes_ns(other) * mine.calls
    return took / usual if took and usual else None


def _times(rank: int, operators: Sequence[_Operator], peers: int) -> dict[str, tuple[float, float]]:
    """Operator -> its time per step on the rank, and on the mean of its ``peers``; by name."""
    times: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in operators:
        times[one.name][one.rank != rank] += one.ns_per_step
    return {name: (own, others / peers) for name, (own, others) in sorted(times.items())}


def _by_time(times: Mapping[str, tuple[float, float]], pace: float, by_shape: Compared) -> Compared:
    """By :func:`_times`: the operator whose time the pace does not tell."""
    usual = sum(peers for _, peers in times.values())
    told = max(pace, 1.0)
    excess = sum(own - peers for own, peers in times.values())
    beyond = {name: own - told * peers for name, (own, peers) in times.items()}
    name = max(beyond, key=lambda one: beyond[one])
    own, peers = times[name]
    work = 1 + sum(beyond.values()) / usual
    if beyond[name] < _MOSTLY * excess or work <= (by_shape.work or 1.0):
        return by_shape
    # Where all else takes longer alike, the largest operator holds most of it in any case: a CPU
    # under a quota stops long operators and lets those pass that are short of its period.
    others, usual_others = sum(mine for mine, _ in times.values()) - own, usual - peers
    if peers and usual_others and others / usual_others - 1 > _MOSTLY * (own / peers - 1):
        return by_shape
    name = name.removeprefix(_BACKWARD)
    return by_shape._replace(
        work=work, operator=name, own=None, usual=None, own_ns=round(own), usual_ns=round(peers)
    )


def _kernels(con: Any, run: str, ranks: Sequence[int]) -> list[_Operator]:
    """Kernels of attention and all others, as operators of their rank's device."""
    found = rows(
        con,
        """
        SELECT rank, if(regexp_matches(name, '(?i)flash_|fmha|attention|attn'), $3, '') AS what,
          count(*), sum(a.end_ns - a.start_ns) / count(DISTINCT a.step)
        FROM activity a JOIN event USING (run, rank, event_id)
        WHERE run = $1 AND list_contains($2::INTEGER[], rank) AND kind = 'compute'
          AND a.step IS NOT NULL AND device IS NOT NULL GROUP BY ALL ORDER BY ALL
        """,
        [run, list(ranks), _ATTENTION],
    )
    return [_Operator(rank, kind, None, calls, ns, 0.0, 0.0) for rank, kind, calls, ns in found]


def _by_attention(kernels: Sequence[_Operator], rank: int, by_shape: Compared) -> Compared:
    """Attention, where it holds most of what the rank computes longer and the rest does not."""
    times = _times(rank, kernels, max(1, len({one.rank for one in kernels} - {rank})))
    found = _by_time(times, by_shape.pace or 1.0, by_shape) if len(times) > 1 else by_shape
    return found if found.operator == _ATTENTION else by_shape


def _by_shape(
    rank: int,
    chosen: Sequence[int],
    flops: Mapping[int, _BySteps],
    shapes: Mapping[int, _ByShapes],
) -> Compared:
    """By the FLOPs of recorded shapes; without its pace."""
    if rank not in flops or not (others := [peer for peer in chosen[1:] if peer in flops]):
        return Compared(None, None)
    means = {r: _mean(by_step) for r, by_step in flops.items()}
    own, usual = means[rank], {}
    for operator in own:
        if found := [means[peer][operator] for peer in others if operator in means[peer]]:
            usual[operator] = float(np.median(found))
    total = sum(usual.values())
    work = sum(own[name] for name in usual) / total if total else None
    steps = sorted(set.intersection(*(set(flops[r]) for r in (rank, *others))))
    by_step = [sum(flops[rank][step].values()) for step in steps]
    peers = [[sum(flops[r][step].values()) for r in others] for step in steps]
    compared = Compared(work, None, more_by_step=_more_by_step(by_step, peers))
    if work is None or abs(work - 1) < 0.005:
        return compared
    compared = compared._replace(cause_p_value=_by_chance(by_step, peers))
    name = max(usual, key=lambda it: abs(own[it] - usual[it]))
    theirs = next((shapes[p][name] for p in others if name in shapes[p]), {})
    if own[name] > usual[name]:
        pair = unlike_operands(shapes[rank][name], theirs)
    else:
        pair = unlike_operands(theirs, shapes[rank][name])[::-1]
    return compared._replace(operator=name, own=pair[0], usual=pair[1]) if all(pair) else compared


def _more_by_step(own: Sequence[float], peers: Sequence[Sequence[float]]) -> float | None:
    usual = [float(np.median(of)) for of in peers]
    more = float(np.subtract(own, usual).clip(0).sum())
    return round(more / sum(usual), 4) if sum(usual) else None


def _by_chance(own: Sequence[float], peers: Sequence[Sequence[float]]) -> float:
    """How often equal ranks would differ as much; ``peers``: of each step those of all others.

    Where its least step has more than any step of a peer, all values may be dealt anew (Fisher):
    signs alone leave six steps of three times the work to chance. Where each rank's steps are alike
    besides, whatever deals two values deals them so no more often than where it gives the larger
    one to one rank in all: four steps of two ranks once in 128 times, not in 35.
    """
    most = [max(of) for of in peers]
    ranks = 1 + len(peers[0]) if peers else 1
    apart = min(own, default=0.0) > max(most, default=math.inf)
    dealt = 1 / math.comb(ranks * len(own), len(own)) if apart else 1.0
    if apart and len(own) > 1 and len({*own}) == len({*itertools.chain(*peers)}) == 1:
        dealt = (((ranks - 1) / ranks) ** (ranks - 1) / ranks) ** len(own)
    return min(1.0, ranks * min(dealt, sign_flip_tail(np.subtract(own, most).tolist())))


def _mean(by_step: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Operator -> its FLOPs per step."""
    sums: dict[str, float] = defaultdict(float)
    for of_step in by_step.values():
        for name, value in of_step.items():
            sums[name] += value / len(by_step)
    return sums


def _flops(con: Any, run: str, ranks: Sequence[int]) -> _Flops:
    """Of complete steps."""
    found = rows(
        con,
        "SELECT e.rank, s.step, name, input_dims, concrete_inputs, count(*) FROM event e "
        "JOIN comm_event c USING (run, rank, event_id) JOIN step s ON s.run = e.run "
        "AND s.rank = e.rank AND e.start_ns >= coalesce(s.host_start_ns, s.start_ns) "
        "AND e.start_ns < coalesce(s.host_end_ns, s.end_ns) "
        "WHERE e.run = ? AND class = 'cpu_op' AND s.complete "
        "AND list_contains(?::INTEGER[], e.rank) AND input_dims IS NOT NULL "
        "AND regexp_full_match(name, ?) GROUP BY ALL ORDER BY ALL",
        [run, list(ranks), NAME],
    )
    sums: dict[int, _BySteps] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    of_shape: dict[int, dict[str, dict[str, float]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(float))
    )
    for rank, step, name, dims, concrete, count in found:
        flops = flops_of_shapes(name, dims, concrete)
        if flops:
            sums[rank][step][name] += flops * count
            of_shape[rank][name][dims] += flops * count
    return sums, {
        rank: {
            name: {dims: value / len(sums[rank]) for dims, value in by_dims.items()}
            for name, by_dims in names.items()
        }
        for rank, names in of_shape.items()
    }


def _pace(
    con: Any, run: str, rank: int, peers: Sequence[int], needed: float
) -> tuple[float | None, float | None, float]:
    """Median and mean time of the rank's kernels over the same ones' on its peers, by time.

    And how often so many kinds of them would take the share ``needed`` longer by chance: by their
    means where their medians do not (a device that is slow in some of the steps).

    The same are those of one name whose launching operators had equal shapes.
    """
    found = rows(
        con,
        f"""
        WITH {LAUNCHED_SHAPES},
        kernel AS (
          SELECT rank, name, dims, median(dur_ns) AS ns, avg(dur_ns) AS mean_ns, count(*) AS calls
          FROM event JOIN shape USING (rank, external_id)
          WHERE run = $1 AND class = 'compute' AND device IS NOT NULL
          GROUP BY ALL HAVING count(*) >= $3)
        SELECT any_value(own.calls), any_value(own.ns), median(other.ns), any_value(own.mean_ns),
          median(other.mean_ns)
        FROM kernel own JOIN kernel other USING (name, dims)
        WHERE own.rank = $4 AND other.rank <> $4 GROUP BY name, dims
        """,
        [run, [rank, *peers], _FEWEST, rank],
    )
    paces, chances = [], []
    for own, other in ((1, 2), (3, 4)):
        usual = sum(float(kind[other]) * kind[0] for kind in found)
        if not usual:
            return None, None, 1.0
        paces.append(sum(float(kind[own]) * kind[0] for kind in found) / usual)
        slower = sum(float(kind[own]) >= (1 + needed) * float(kind[other]) for kind in found)
        chances.append(min(1.0, (len(peers) + 1) * binomial_tail(slower, len(found), 0.5)))
    return paces[0], paces[1], chances[0 if paces[0] - 1 >= needed else 1]
