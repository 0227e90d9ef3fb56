"""Stages of a pipeline, told from who sends to whom, and their bubbles (METRICS section 7)."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.models.stage_layers import add_stage_layers
from advisor.metrics.models.stage_pace import add_stage_pace
from advisor.metrics.timeline.intervals import Intervals
from advisor.store.columns import rows
from advisor.vocabulary.operations import POINT_TO_POINT


def pipeline_rows(
    con: Any, run: str, calls: Mapping[int, Sequence[Call]], compute: Mapping[int, Intervals]
) -> list[dict[str, Any]]:
    """Rows of ``pipeline_stage``: every chain of ranks that send both ways in every step.

    ``compute`` is when each rank computes. A stage whose recording is missing shows in what its
    neighbours send it; it has no row.
    """
    beside, first = _neighbours(calls)
    chains = _chains(beside, first)
    if not chains:
        return []
    figures = _figures(con, run, calls, compute)
    records = []
    for chain in chains:
        read = [(stage, rank) for stage, rank in enumerate(chain) if rank in figures]
        if len(read) < 2:
            continue
        mean = sum(figures[rank][1] for _, rank in read) / len(read)
        micro_batches, chunks = _micro_batches(calls, chain), 1
        if chain[-1] in beside[chain[0]] and len(chain) > 2:
            micro_batches, chunks = _interleaved(calls, chain)
        own = []
        for stage, rank in read:
            step, computed, bubble = figures[rank]
            ideal = None
            if micro_batches:
                ideal = (len(chain) - 1) / (micro_batches * chunks + len(chain) - 1)
            own.append(
                {
                    "run": run,
                    "rank": rank,
                    "stage": stage,
                    "stages": len(chain),
                    "micro_batches": micro_batches,
                    "chunks": chunks,
                    "step_ns": round(step),
                    "compute_ns": round(computed),
                    "bubble_ns": round(bubble),
                    "bubble_share": bubble / step if step else 0.0,
                    "ideal_bubble_share": ideal,
                    "imbalance_ns": round(computed - mean),
                }
            )
        add_stage_layers(con, run, own)
        records += own
    add_stage_pace(con, run, records)
    return records


def _figures(
    con: Any, run: str, calls: Mapping[int, Sequence[Call]], compute: Mapping[int, Intervals]
) -> dict[int, tuple[float, float, float]]:
    """rank -> medians over its used steps of their length, compute and bubble, ns.

    The bubble is the time in which a stage has nothing to work on: idle, or waiting for a
    neighbour, also while a message of its own is on its way.
    """
    found = rows(
        con,
        """
        SELECT b.rank, s.start_ns, s.end_ns, b.window_ns, b.compute_ns,
          b.idle_ns + coalesce(b.exposed_wait_ns, 0), b.exposed_wait_ns IS NOT NULL
        FROM step_breakdown b JOIN step s USING (run, rank, step)
        WHERE b.run = ? AND b.used ORDER BY b.rank, b.step
        """,
        [run],
    )
    steps: dict[int, list[list[float]]] = defaultdict(list)
    messages = {rank: _messages(own) for rank, own in calls.items()}
    hidden = {
        rank: (_held_while_sending(own) | _span(c for c in messages[rank] if c.wait is None))
        - compute[rank]
        for rank, own in calls.items()
    }
    for rank, start, end, window, computed, bubble, waits_known in found:
        if rank in hidden:
            beside = hidden[rank] if waits_known else _span(messages[rank]) - compute[rank]
            bubble += int(beside.covered([start], [end])[0])
        steps[rank].append([window, computed, bubble])
    return {rank: tuple(np.median(own, axis=0).tolist()) for rank, own in steps.items()}


def _held_while_sending(calls: Sequence[Call]) -> Intervals:
    """When a rank waits for a neighbour to begin sending while a call of its own moves data."""
    moving = Intervals.of([c.start + (c.wait or 0) for c in calls], [c.end for c in calls])
    waits = [c for c in calls if c.op == "recv" and c.wait]
    held = Intervals.of([c.start for c in waits], [c.start + (c.wait or 0) for c in waits])
    return held & moving


def _messages(calls: Sequence[Call]) -> list[Call]:
    """Those that send from stage to stage, or receive, or both."""
    groups = {c.group for c in calls if c.op in POINT_TO_POINT} | {None}
    return [c for c in calls if c.op in POINT_TO_POINT or (c.op == "other" and c.group in groups)]


def _span(calls: Iterable[Call]) -> Intervals:
    found = list(calls)
    return Intervals.of([c.start for c in found], [c.end for c in found])


def _neighbours(
    calls: Mapping[int, Sequence[Call]],
) -> tuple[Mapping[int, set[int]], Mapping[int, tuple[str, int]]]:
    """Whom each rank sends to and receives from; kind and peer of the message its steps begin with.

    A recording's own first message may be of the middle of a step, where the host is ahead.
    """
    sends: set[tuple[int, int]] = set()
    first: dict[int, tuple[str, int]] = {}
    for rank, own in calls.items():
        begins: dict[int | None, tuple[str, int]] = {}
        for call in sorted(own, key=lambda c: c.asked):
            if call.op in POINT_TO_POINT and call.peer is not None:
                begins.setdefault(call.step, (call.op, call.peer))
                sends.add((rank, call.peer) if call.op == "send" else (call.peer, rank))
        told = [begin for step, begin in begins.items() if step is not None] or begins.values()
        if told:
            first[rank] = Counter(told).most_common(1)[0][0]
    beside: dict[int, set[int]] = defaultdict(set)
    for source, destination in sends:
        if (destination, source) in sends and source != destination:
            beside[source].add(destination)
    return beside, first


def _chains(
    beside: Mapping[int, set[int]], first: Mapping[int, tuple[str, int]]
) -> list[list[int]]:
    """Ranks in the order of their stages.

    Neighbours send to each other both ways. The first stage is the end of the chain that sends
    before it receives (or is not read, while the other end receives first). Interleaved stages
    (Narayanan et al., SC 2021) close the chain to a ring, in which it alone sends first.
    """
    op = {rank: begin[0] for rank, begin in first.items()}
    chains: list[list[int]] = []
    seen: set[int] = set()
    for rank in sorted(beside):
        if rank in seen or len(beside[rank]) != 1:
            continue
        chain = _followed([rank], beside)
        seen |= {chain[0], chain[-1]}
        if op.get(chain[0]) == "recv" or op.get(chain[-1]) == "send":
            chain.reverse()
        if len(chain) > 1 and op.get(chain[0]) != "recv" and op.get(chain[-1]) != "send":
            chains.append(chain)
    for rank in sorted(beside):
        peer = first[rank][1] if op.get(rank) == "send" else None
        if rank in seen or peer is None or not len(beside[rank]) == 2 == len(beside.get(peer, ())):
            continue
        chain = _followed([rank, peer], beside)
        if chain[-1] in beside[rank] and all(op.get(one) != "send" for one in chain[1:]):
            chains.append(chain)
    return chains


def _followed(chain: list[int], beside: Mapping[int, set[int]]) -> list[int]:
    """The same with all that come after it, as far as each has one next neighbour."""
    while following := sorted(beside[chain[-1]] - set(chain)):
        if len(beside[following[0]]) > 2:
            break
        chain.append(following[0])
    return chain


def _interleaved(
    calls: Mapping[int, Sequence[Call]], chain: Sequence[int]
) -> tuple[int | None, int]:
    """Micro-batches, and into how many chunks each stage is split.

    All micro-batches go from the first stage to the second in each chunk, and from the last back to
    the first in each but one.
    """
    first, second, last = chain[0], chain[1], chain[-1]
    own = calls.get(first, ())
    on = _per_step(c for c in own if c.op == "send" and c.peer == second)
    back = _per_step(c for c in own if c.op == "recv" and c.peer == last)
    if on is None or back is None or not 0 < on - back <= on // 2 or on % (on - back):
        return None, 1
    return on - back, on // (on - back)


def _micro_batches(calls: Mapping[int, Sequence[Call]], chain: Sequence[int]) -> int | None:
    """Messages per step from one stage to the next: one per micro-batch.

    Counted at an end of the pipeline that was read, where a kernel that sends and receives at once
    (batch_isend_irecv) holds one of each; else at the first neighbours of which one was read, by
    the receiver where the sender was not.
    """
    for rank, op in ((chain[0], "send"), (chain[-1], "recv")):
        own = [call for call in calls.get(rank, ()) if call.step is not None]
        groups = {call.group for call in own if call.op in POINT_TO_POINT} | {None}
        found = _per_step(c for c in own if c.op == op or (c.op == "other" and c.group in groups))
        if found:
            return found
    for source, target in itertools.pairwise(chain):
        op, rank, peer = ("send", source, target) if source in calls else ("recv", target, source)
        found = _per_step(c for c in calls.get(rank, ()) if c.op == op and c.peer == peer)
        if found:
            return found
    return None


def _per_step(calls: Iterable[Call]) -> int | None:
    """How many there are in most steps."""
    counts = Counter(call.step for call in calls if call.step is not None)
    return Counter(counts.values()).most_common(1)[0][0] if counts else None
