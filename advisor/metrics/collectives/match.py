"""Which calls of different ranks are the same collective (METRICS section 5).

By sequence number where the trace carries it; else each group's sequences of signatures are
aligned by longest common subsequence, step by step where the steps are annotated, so that a missing
event or rank shifts nothing else. Sends are paired with their receives.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor.metrics.collectives.aligned_calls import APART_NS, aligned_calls
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.groups import Group
from advisor.vocabulary.operations import SYNCHRONISING

_MOST_APART = 0.25  # of the calls: where more are, the clocks are not known


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
    *,
    strict: bool = False,
) -> Matched:
    """Give every call its ``call_id``, ``seq`` and ``matched``.

    ``stepped`` tells that all ranks have annotated steps. ``offsets`` (rank -> ns to add) align
    clocks that are already known roughly; ``strict``: so well that calls which cannot be one by
    their times are not.
    """
    result = Matched()
    by_group: dict[str | None, dict[int, list[Call]]] = defaultdict(dict)
    for rank in sorted(calls):
        for call in calls[rank]:
            if not call.is_message:
                by_group[call.group].setdefault(rank, []).append(call)
    for name in sorted(by_group, key=lambda n: (n is None, n or "")):
        members = by_group[name]
        group = groups.get(name) if name is not None else None
        columns = _columns(members, stepped, offsets or {}, strict)
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
    result.columns.extend(_pairs(calls, result, stepped, offsets or {}))
    result.columns.sort(key=_order)
    for call_id, column in enumerate(result.columns):
        for call in column.values():
            call.call_id = call_id
            call.matched = len(column)
    return result


def torn(columns: Iterable[Mapping[int, Call]], offsets: Mapping[int, int]) -> bool:
    """Whether a few calls ended on one rank before they began on another, by clocks that are right
    for most: each rank lost another one of several calls that are alike."""
    calls = apart = 0
    for column in columns:
        if len(column) > 1 and next(iter(column.values())).op in SYNCHRONISING:
            calls += 1
            begun = max(call.start + offsets.get(rank, 0) for rank, call in column.items())
            over = min(call.end + offsets.get(rank, 0) for rank, call in column.items())
            apart += begun > over + APART_NS
    return 0 < apart <= _MOST_APART * calls


def from_matched(matched: Matched, ranks: Iterable[int]) -> None:
    """Give calls of ``ranks`` that are in no step the one that most other ranks have them in,
    and their phase there."""
    lost = set(ranks)
    for column in matched.columns:
        others = [call for rank, call in column.items() if rank not in lost]
        if not others:
            continue
        step, phase = Counter((c.step, c.phase) for c in others).most_common(1)[0][0]
        for rank in column.keys() & lost:
            if column[rank].step is None:
                column[rank].step, column[rank].phase = step, phase


def _order(column: dict[int, Call]) -> tuple[int, int, int]:
    first = min(column)
    call = column[first]
    return call.start, first, call.event_id


def _columns(
    members: Mapping[int, list[Call]], stepped: bool, offsets: Mapping[int, int], strict: bool
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
        for call in sorted(own, key=lambda c: (c.asked, c.start)):
            parts[call.step if stepped else None].setdefault(rank, []).append(call)
    columns: list[dict[int, Call]] = []
    for step in sorted(parts, key=lambda s: (s is not None, s or 0)):
        columns.extend(aligned_calls(parts[step], offsets, strict=strict))
    if not strict and 2 * sum(len(column) == len(members) for column in columns) < len(columns):
        columns = _in_order(list(parts.values())) or columns
    columns.sort(key=_order)
    for index, column in enumerate(columns):
        for call in column.values():
            if call.seq is None or call.seq_is_counted:
                call.seq, call.seq_is_counted = index, True
    return columns


def _in_order(parts: Sequence[Mapping[int, Sequence[Call]]]) -> list[dict[int, Call]]:
    """Calls one by one, where sizes part most of them though all ranks make the same kinds in turn:
    uneven parts, as lost events would leave other calls in one order, or most of them whole."""
    orders = [{tuple(call.kind for call in own) for own in part.values()} for part in parts]
    if any(len(order) > 1 for order in orders):
        return []
    return [
        dict(zip(part, same, strict=True))
        for part in parts
        for same in zip(*part.values(), strict=True)
    ]


def _unique(members: Mapping[int, list[Call]]) -> bool:
    return all(len({call.seq for call in own}) == len(own) for own in members.values())


def _count(
    result: Matched,
    columns: Iterable[dict[int, Call]],
    group: str | None,
    expected: set[int],
    missing_rank: bool,
) -> None:
    """Count calls that lack a partner, or whose partners disagree about what they do."""
    for column in columns:
        known = [{*part} - {None} for part in zip(*(c.kind for c in column.values()), strict=True)]
        if any(len(part) > 1 for part in known):  # what a rank does not say is no other size
            for rank in column:
                result.unmatched[rank, group, "mismatched signature"] += 1
        if set(column) != expected:
            for rank in column:
                result.unmatched[rank, group, "missing event"] += 1
        elif missing_rank:
            for rank in column:
                result.unmatched[rank, group, "missing rank"] += 1


def _pairs(
    calls: Mapping[int, Sequence[Call]],
    result: Matched,
    stepped: bool,
    offsets: Mapping[int, int],
) -> list[dict[int, Call]]:
    """Sends with their receives: the k-th of each size between two ranks, both ways apart, step by
    step where steps are annotated.

    Kernels that hold several messages are of one call where they exchange them: a kernel that has
    partners in several is the call of the first.
    """
    sides: dict[tuple[int, int, int], tuple[list[Call], list[Call]]]
    sides = defaultdict(lambda: ([], []))
    columns: list[dict[int, Call]] = []
    kernel: dict[int, Call] = {}
    for rank in sorted(calls):
        for call in calls[rank]:
            if not call.is_message:
                continue
            if call.peer is None and not call.messages:
                columns.append({rank: call})
                result.unmatched[rank, call.group, "missing event"] += 1
            for one in _messages(call):
                kernel[id(one)] = call
                step = -1 if call.step is None or not stepped else call.step
                if one.op == "send":
                    sides[rank, one.peer or 0, step][0].append(one)
                else:
                    sides[one.peer or 0, rank, step][1].append(one)
    pairs: list[dict[int, Call]] = []
    alone: dict[int, tuple[Call, str]] = {}
    for (source, destination, _), (sends, receives) in sorted(sides.items()):
        for pair in (
            aligned_calls({source: sends, destination: receives}, offsets)
            if source != destination
            else []
        ):
            whole = {rank: kernel[id(one)] for rank, one in pair.items()}
            if len(whole) > 1:
                pairs.append(whole)
                continue
            both = source in calls and destination in calls
            (call,) = whole.values()
            alone[id(call)] = call, "missing event" if both else "missing rank"
    taken: set[int] = set()
    for pair in sorted(pairs, key=_order):
        own = {id(call) for call in pair.values()}
        if own.isdisjoint(taken):
            columns.append(pair)
            taken |= own
    for call in {id(one): one for pair in pairs for one in pair.values()}.values():
        if id(call) not in taken:
            columns.append({call.rank: call})
            taken.add(id(call))
    for call, reason in (one for key, one in alone.items() if key not in taken):
        columns.append({call.rank: call})
        result.unmatched[call.rank, call.group, reason] += 1
    return columns


def _messages(call: Call) -> list[Call]:
    """The sends and receives that a call is or holds, with their times; [] without a known peer."""
    if not call.messages:
        return [call] if call.peer is not None else []
    return [
        replace(call, op=kind, peer=peer, bytes=size, messages=())
        for kind, peer, size in call.messages
    ]


def widest(columns: Sequence[Mapping[int, Call]]) -> tuple[int, ...]:
    """The ranks that share most calls: where a file was cut, either its rank or its steps go.

    Most means ranks times calls; of equals the larger set of ranks. Calls of no step do not count
    where others are of one: whoever is late has none, while the others' hosts run ahead.
    """
    counted = [one for one in columns if any(call.step is not None for call in one.values())]
    sets = Counter(frozenset(column) for column in counted or columns)
    shared = {one: sum(n for other, n in sets.items() if other >= one) for one in sets}
    best = max(shared, key=lambda one: (len(one) * shared[one], len(one), sorted(one)))
    return tuple(sorted(best))
