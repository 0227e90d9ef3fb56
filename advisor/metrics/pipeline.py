"""Stages of a pipeline, told from who sends to whom, and their bubbles (METRICS section 7)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.metrics.calls import Call
from advisor.metrics.operations import POINT_TO_POINT
from advisor.metrics.tables import rows


def pipeline_rows(con: Any, run: str, calls: Mapping[int, Sequence[Call]]) -> list[dict[str, Any]]:
    """Rows of ``pipeline_stage``: every chain of ranks that send both ways in every step."""
    chains = _chains(calls)
    if not chains:
        return []
    figures = {
        rank: values
        for rank, *values in rows(
            con,
            """
            SELECT b.rank, median(b.window_ns), median(b.compute_ns),
              median(b.idle_ns + coalesce(b.exposed_wait_ns, b.exposed_comm_ns)), count(*)
            FROM step_breakdown b WHERE b.run = ? AND b.complete GROUP BY b.rank
            """,
            [run],
        )
    }
    records = []
    for chain in chains:
        if not all(rank in figures for rank in chain):
            continue
        mean = sum(figures[rank][1] for rank in chain) / len(chain)
        micro_batches = _micro_batches(calls, chain)
        for stage, rank in enumerate(chain):
            step, compute, bubble, _ = figures[rank]
            ideal = None
            if micro_batches:
                ideal = (len(chain) - 1) / (micro_batches + len(chain) - 1)
            records.append(
                {
                    "run": run,
                    "rank": rank,
                    "stage": stage,
                    "stages": len(chain),
                    "micro_batches": micro_batches,
                    "step_ns": round(step),
                    "compute_ns": round(compute),
                    "bubble_ns": round(bubble),
                    "bubble_share": bubble / step if step else 0.0,
                    "ideal_bubble_share": ideal,
                    "imbalance_ns": round(compute - mean),
                }
            )
    return records


def _chains(calls: Mapping[int, Sequence[Call]]) -> list[list[int]]:
    """Ranks in the order of their stages.

    Neighbours send to each other both ways. The first stage is the end of the chain that sends
    before it receives.
    """
    sends: set[tuple[int, int]] = set()
    first: dict[int, str] = {}
    for rank, own in calls.items():
        for call in sorted(own, key=lambda c: c.start if c.enqueue is None else c.enqueue):
            if call.op in POINT_TO_POINT and call.peer is not None:
                first.setdefault(rank, call.op)
                sends.add((rank, call.peer) if call.op == "send" else (call.peer, rank))
    beside: dict[int, set[int]] = defaultdict(set)
    for source, destination in sends:
        if (destination, source) in sends and source != destination:
            beside[source].add(destination)
    chains, seen = [], set()
    for rank in sorted(beside):
        if rank in seen or len(beside[rank]) != 1 or first.get(rank) != "send":
            continue
        chain, here = [rank], rank
        seen.add(rank)
        while following := sorted(beside[here] - seen):
            if len(beside[following[0]]) > 2:
                break
            here = following[0]
            seen.add(here)
            chain.append(here)
        if len(chain) > 1:
            chains.append(chain)
    return chains


def _micro_batches(calls: Mapping[int, Sequence[Call]], chain: Sequence[int]) -> int | None:
    """Messages per step from the first stage to the second: one per micro-batch."""
    per_step = Counter(
        call.step
        for call in calls.get(chain[0], ())
        if call.op == "send" and call.peer == chain[1] and call.step is not None
    )
    if not per_step:
        return None
    return Counter(per_step.values()).most_common(1)[0][0]
