"""Which calls go over the places that a recording shows to be slow, and what these add to them."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.metrics.rings.locations import homes_of
from advisor.metrics.rings.nccl import PASSES
from advisor.vocabulary.operations import POINT_TO_POINT
from advisor.whatif.program import Call, Program

_OF_LIKE = (0.5, 0.1, 0.0)
_ADDED = """
SELECT evidence FROM link_excess
WHERE run = ? AND (try_cast(evidence AS JSON) ->> '$.added_ns')::DOUBLE > 0
"""


def hosts_of(con: Any, run: str) -> dict[int, str]:
    """What stands for the host of each rank, of those that were not read too."""
    named = "SELECT rank, host FROM rank WHERE run = ? AND host IS NOT NULL"
    every = (
        "SELECT rank FROM rank WHERE run = $1 UNION "
        "SELECT unnest(ranks) FROM process_group WHERE run = $1"
    )
    ranks = [rank for (rank,) in con.execute(every, [run]).fetchall()]
    return homes_of(ranks, dict(con.execute(named, [run]).fetchall()))


def joined_by(con: Any, run: str) -> Callable[[Call], tuple[int, ...]]:
    """The ranks of a call, with those of its group whose part in it is not recorded."""
    sql = (
        "SELECT process_group, list(DISTINCT rank ORDER BY rank) "
        "FROM (SELECT process_group, unnest(ranks) AS rank FROM process_group WHERE run = ?) "
        "GROUP BY process_group"
    )
    groups = {str(name): tuple(ranks) for name, ranks in con.execute(sql, [run]).fetchall()}

    def ranks(call: Call) -> tuple[int, ...]:
        whole = () if call.op in POINT_TO_POINT else groups.get(call.channel, ())
        return (*call.ranks, *(rank for rank in whole if rank not in call.ranks))

    return ranks


def uses_place(
    near: frozenset[int], far: list[int] | None, link: str | None, hosts: Mapping[int, str]
) -> Callable[[tuple[int, ...]], bool]:
    """Whether calls of some ranks go over a place: its near side, its far side (None: any other),
    and whether only calls inside or between hosts use it."""

    def uses(ranks: tuple[int, ...]) -> bool:
        if link is not None:
            spans = len({hosts.get(rank, rank) for rank in ranks}) > 1
            beside = far is None or not set(far).isdisjoint(ranks)
            return spans == (link == "between") and beside and not near.isdisjoint(ranks)
        others = set(ranks) - near if far is None else set(ranks) & set(far)
        return bool(others) and not near.isdisjoint(ranks)

    return uses


def restored(
    places: Sequence[tuple[tuple[float, float, float], Callable[[tuple[int, ...]], bool]]],
    joined: Callable[[Call], tuple[int, ...]],
) -> Callable[[int, Call], float]:
    """What calls take (ns) without the share (low, middle, high) of it that a place adds."""

    def service(end: int, call: Call) -> float:
        ranks = joined(call)
        part = next((share[end] for share, affects in places if affects(ranks)), 0.0)
        return call.service_ns * (1 - part)

    return service


def steadied(
    programs: Sequence[Program],
    affects: Callable[[tuple[int, ...]], bool],
    joined: Callable[[Call], tuple[int, ...]],
) -> Callable[[int, Call], float]:
    """What calls take (ns) where none takes longer than the median of its like, than the fastest
    tenth, than the fastest: a call in a quiet moment gains nothing."""

    def kind(call: Call) -> tuple[Any, ...]:
        return call.op, call.channel, call.ranks, call.bytes

    times: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for program in programs:
        for call in program.calls.values():
            if affects(joined(call)):
                times[kind(call)].append(call.service_ns)
    most = {like: np.quantile(own, _OF_LIKE) for like, own in times.items()}

    def service(end: int, call: Call) -> float:
        bounds = most.get(kind(call))
        return call.service_ns if bounds is None else min(call.service_ns, float(bounds[end]))

    return service


def added_latency(con: Any, run: str) -> Callable[[Call], float]:
    """Of a call what slow places add to it whatever its size, ns; 0 where bandwidth is slow."""
    hosts, joined, places = hosts_of(con, run), joined_by(con, run), []
    for (evidence,) in con.execute(_ADDED, [run]).fetchall():
        found = json.loads(evidence)
        near = frozenset(found.get("near", ()))
        goes_over = uses_place(near, found.get("far"), found.get("link"), hosts)
        places.append((goes_over, float(found["added_ns"])))

    def added(call: Call) -> float:
        over = (ns for goes_over, ns in places if goes_over(joined(call)))
        return PASSES.get(call.op, 1) * max(over, default=0.0)

    return added
