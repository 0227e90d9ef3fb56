"""Which calls show a slow or a distant link: large messages, and small ones that take long rounds.

A ring passes its message on in rounds, each of which waits for the edge's latency. So a message too
small for any bandwidth to show takes its time from latency alone, and where a round takes longer
than ranks take to wake up, the order in which they leave points at the distant host just as it
points at a slow one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.rings.schedule import GLOO_RINGS, SEGMENTS

# Messages of this size keep a link busy for longer than ranks take to wake up.
LARGE_BYTES = 65_536
# A round of healthy rings takes 0.1 to 0.2 ms, on a busy machine too.
_LONG_ROUND_NS = 400_000
# The smallest message of which every round of a ring has a part: gloo sends no empty ones.
_LEAST_PART_BYTES = 8

Kind = tuple[str | None, str, int]
"""Group, operation on the wire and size of a call."""


def kind_of(call: Call) -> Kind:
    """What calls must share to take equally long over healthy links."""
    return call.group, call.wire_op or call.op, call.bytes or 0


def informative_kinds(columns: Iterable[Mapping[int, Call]]) -> frozenset[Kind]:
    """The kinds of call in ``columns`` that show a link. A kind is told as a whole: to pick the
    calls that happened to take long would pick those with late ranks."""
    large: set[Kind] = set()
    small: dict[Kind, list[tuple[int, int]]] = defaultdict(list)
    for column in columns:
        call = next(iter(column.values()))
        kind = kind_of(call)
        if kind[2] >= LARGE_BYTES:
            large.add(kind)
            continue
        count = call.group_size or len(column)
        if kind[1] in GLOO_RINGS and count > 1 and kind[2] >= SEGMENTS * count * _LEAST_PART_BYTES:
            # What a call takes the rank that comes last needs no common clock.
            small[kind].append((min(c.end - c.start for c in column.values()), count))
    slow = {
        kind
        for kind, own in small.items()
        if np.median([time / _rounds(kind[1], count) for time, count in own]) >= _LONG_ROUND_NS
    }
    return frozenset(large | slow)


def _rounds(op: str, count: int) -> int:
    _, passes = GLOO_RINGS[op]
    return passes * SEGMENTS * (count - 1)
