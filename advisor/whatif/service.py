"""How long each traced call would take with the network for itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from advisor.whatif.queries import CallRow

# Passes over the ring: an all-reduce is a reduce-scatter and an all-gather.
_PASSES = {"all_reduce": 2}


def transfers(
    rows: dict[int, list[CallRow]], offsets: dict[int, int]
) -> dict[int, tuple[int, int]]:
    """Per call its transfer: from the last rank's start to the last rank's end, aligned clocks."""
    spans: dict[int, tuple[int, int]] = {}
    for rank, of_rank in rows.items():
        for row in of_rank:
            start, end = row.start + offsets[rank], row.end + offsets[rank]
            old = spans.get(row.call_id)
            spans[row.call_id] = (max(old[0], start), max(old[1], end)) if old else (start, end)
    return spans


def burst_numbers(spans: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Number the stretches of overlapping transfers; call to its stretch."""
    bursts: dict[int, int] = {}
    reach, number = -1, -1
    for call, (start, end) in sorted(spans.items(), key=lambda entry: entry[1]):
        if start >= reach:
            number += 1
        bursts[call] = number
        reach = max(reach, end)
    return bursts


def service_times(
    rows: dict[int, list[CallRow]], spans: dict[int, tuple[int, int]]
) -> dict[int, float]:
    """Per call: its time with the network for itself.

    Transfers that run at once on a rank share the network in proportion to the bytes they move
    (see simulate.py), so service = integral of own bytes / all bytes over the transfer.
    """
    members: dict[int, set[int]] = {}
    weight: dict[int, float] = {}
    for rank, of_rank in rows.items():
        for row in of_rank:
            members.setdefault(row.call_id, set()).add(rank)
            weight[row.call_id] = float(max(row.bytes or 0, 1)) * _PASSES.get(row.op, 1)
    service: dict[int, float] = {}
    ordered = sorted(spans.items(), key=lambda entry: entry[1])
    starts = np.array([start for _, (start, _) in ordered], dtype=np.int64)
    ends = np.array([end for _, (_, end) in ordered], dtype=np.int64)
    for call, (start, end) in ordered:
        begun = int(np.searchsorted(starts, end, side="left"))
        at_once = [ordered[place] for place in np.flatnonzero(ends[:begun] > start)]
        others = [
            (*span, weight[other])
            for other, span in at_once
            if other != call and members[other] & members[call]
        ]
        cuts = sorted({start, end, *(t for span in others for t in span[:2] if start < t < end)})
        total = 0.0
        for left, right in pairwise(cuts):
            rest = sum(of for since, until, of in others if since <= left and until >= right)
            total += (right - left) * weight[call] / (weight[call] + rest)
        service[call] = max(total, 0.0)
    return service
