"""Which calls of different ranks are the same collective (METRICS section 5).

By sequence number where the trace carries it; else each group's sequences of signatures are
aligned by longest common subsequence, step by step where the steps are annotated, so that a missing
event or rank shifts nothing else. Sends are paired with their receives.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.align import MAX_PENALTY, align_many
from advisor.metrics.calls import Call
from advisor.metrics.groups import Group
from advisor.metrics.operations import POINT_TO_POINT

# A disagreement of this many ns in time is as bad as any, when equal signatures compete.
_TIME_SCALE_NS = 1 << 34


@dataclass
class Matched:
    """The calls of all ranks, by call; ``unmatched`` counts (rank, group, reason)."""

    columns: list[dict[int, Call]] = field(default_factory=list)
    unmatched: Counter[tuple[int, str | None, str]] = field(default_factory=Counter)


def match(
    calls: Mapping[int, Sequence[Call]],
    groups: Mapping[str, Group],
    stepped: bool,
    offsets: Mapping[int, int] | None = None,
) -> Matched:
    """Give every call its ``call_id``, ``seq`` and ``matched``.

    ``stepped`` tells that all ranks have annotated steps. ``offsets`` (rank -> ns to add) align
    clocks that are already known roughly.
    """
    result = Matched()
    by_group: dict[str | None, dict[int, list[Call]]] = defaultdict(dict)
    for rank in sorted(calls):
        for call in calls[rank]:
            if call.op not in POINT_TO_POINT:
                by_group[call.group].setdefault(rank, []).append(call)
    for name in sorted(by_group, key=lambda n: (n is None, n or "")):
        members = by_group[name]
        group = groups.get(name) if name is not None else None
        columns = _columns(members, stepped, offsets or {})
        present = set(members)
        if group is not None and group.ranks is not None:
            expected = set(group.ranks) & set(calls)
            missing = bool(set(group.ranks) - set(calls))
        else:
            expected = present
            size = max((c.group_size or 0 for own in members.values() for c in own), default=0)
            missing = size > len(present)
        _count(result, columns, name, expected | present, missing)
        result.columns.extend(columns)
    result.columns.extend(_pairs(calls, result, offsets or {}))
    result.columns.sort(key=_order)
    for call_id, column in enumerate(result.columns):
        for call in column.values():
            call.call_id = call_id
            call.matched = len(column)
    return result


def _order(column: dict[int, Call]) -> tuple[int, int, int]:
    first = min(column)
    call = column[first]
    return call.start, first, call.event_id


def _columns(
    members: Mapping[int, list[Call]], stepped: bool, offsets: Mapping[int, int]
) -> list[dict[int, Call]]:
    """Matched calls of one group."""
    everything = [call for own in members.values() for call in own]
    recorded = all(call.seq is not None and not call.seq_is_counted for call in everything)
    if recorded and _unique(members):
        by_seq: dict[int, dict[int, Call]] = defaultdict(dict)
        for call in everything:
            by_seq[call.seq or 0][call.rank] = call
        return [by_seq[number] for number in sorted(by_seq)]
    parts: dict[int | None, dict[int, list[Call]]] = defaultdict(dict)
    for rank, own in members.items():
        for call in sorted(
            own, key=lambda c: (c.start if c.enqueue is None else c.enqueue, c.start)
        ):
            parts[call.step if stepped else None].setdefault(rank, []).append(call)
    columns: list[dict[int, Call]] = []
    for step in sorted(parts, key=lambda s: (s is not None, s or 0)):
        columns.extend(_aligned(parts[step], offsets))
    columns.sort(key=_order)
    for index, column in enumerate(columns):
        for call in column.values():
            if call.seq is None or call.seq_is_counted:
                call.seq, call.seq_is_counted = index, True
    return columns


def _unique(members: Mapping[int, list[Call]]) -> bool:
    return all(len({call.seq for call in own}) == len(own) for own in members.values())


def _aligned(part: Mapping[int, list[Call]], offsets: Mapping[int, int]) -> list[dict[int, Call]]:
    ranks = sorted(part)
    numbering: dict[object, int] = {}
    sequences = [
        np.array(
            [numbering.setdefault(c.signature, len(numbering)) for c in part[r]], dtype=np.int64
        )
        for r in ranks
    ]

    def penalty(base: int, other: int) -> Callable[[int, int, int], NDArray[np.int64]]:
        def ends(index: int) -> NDArray[np.int64]:
            rank = ranks[index]
            return np.array([c.end + offsets.get(rank, 0) for c in part[rank]], dtype=np.int64)

        one, two = ends(base), ends(other)

        def cost(i: int, low: int, high: int) -> NDArray[np.int64]:
            apart = np.minimum(np.abs(two[low:high] - one[i]), _TIME_SCALE_NS - 1)
            scaled: NDArray[np.int64] = apart * MAX_PENALTY // _TIME_SCALE_NS
            return scaled

        return cost

    usable = penalty if offsets else None
    return [
        {ranks[number]: part[ranks[number]][index] for number, index in column.items()}
        for column in align_many(sequences, usable)
    ]


def _count(
    result: Matched,
    columns: Iterable[dict[int, Call]],
    group: str | None,
    expected: set[int],
    missing_rank: bool,
) -> None:
    """Count calls that lack a partner, or whose partners disagree about what they do."""
    for column in columns:
        if len({call.signature for call in column.values()}) > 1:
            for call in column.values():
                call.mismatched = True
                result.unmatched[call.rank, group, "mismatched signature"] += 1
        if set(column) != expected:
            for rank in column:
                result.unmatched[rank, group, "missing event"] += 1
        elif missing_rank:
            for rank in column:
                result.unmatched[rank, group, "missing rank"] += 1


def _pairs(
    calls: Mapping[int, Sequence[Call]], result: Matched, offsets: Mapping[int, int]
) -> list[dict[int, Call]]:
    """Sends with their receives: the k-th of each size between two ranks, both ways apart."""
    sides: dict[tuple[int, int], tuple[list[Call], list[Call]]] = defaultdict(lambda: ([], []))
    columns: list[dict[int, Call]] = []
    for rank in sorted(calls):
        for call in calls[rank]:
            if call.op not in POINT_TO_POINT:
                continue
            if call.peer is None:
                columns.append({rank: call})
                result.unmatched[rank, call.group, "missing event"] += 1
            elif call.op == "send":
                sides[rank, call.peer][0].append(call)
            else:
                sides[call.peer, rank][1].append(call)
    for (source, destination), (sends, receives) in sorted(sides.items()):
        for pair in (
            _aligned({source: sends, destination: receives}, offsets)
            if source != destination
            else []
        ):
            columns.append(pair)
            if len(pair) < 2:
                (rank,) = pair
                reason = (
                    "missing event" if source in calls and destination in calls else "missing rank"
                )
                result.unmatched[rank, pair[rank].group, reason] += 1
    return columns
