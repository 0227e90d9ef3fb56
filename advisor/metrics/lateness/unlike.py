"""Which operand of an operator is larger on the rank that has more to do."""

import json
import math
from collections.abc import Mapping


def unlike_operands(
    larger: Mapping[str, float], smaller: Mapping[str, float]
) -> tuple[str | None, str | None]:
    """The shape of an operand of the rank that has more to do, and on who has less, as text.

    Both map an operator's recorded shapes (JSON) to their FLOPs. Of the shapes that hold most of
    what the first has more, the operand that differs from the likest shapes that the second has
    more: as many dimensions, fewest other sizes. None twice, where none is larger.
    """
    more = {dims: larger.get(dims, 0.0) - smaller.get(dims, 0.0) for dims in {*larger, *smaller}}
    most = _shapes(max(sorted(more), key=lambda dims: more[dims]))
    found = []
    for dims in sorted(more):
        other = _shapes(dims)
        if more[dims] < 0 and [len(a) for a in most] == [len(b) for b in other]:
            apart = [(a, b) for a, b in zip(most, other, strict=True) if a != b]
            sizes = sum(i != j for a, b in apart for i, j in zip(a, b, strict=True))
            if apart and math.prod(apart[0][0]) > math.prod(apart[0][1]):
                found.append((sizes, more[dims], *apart[0]))
    if not found:
        return None, None
    _, _, own, usual = min(found)
    return f"[{','.join(map(str, own))}]", f"[{','.join(map(str, usual))}]"


def _shapes(dims: str) -> list[tuple[int, ...]]:
    """Of each operand; () of what is no tensor."""
    return [
        tuple(one) if isinstance(one, list) and all(type(size) is int for size in one) else ()
        for one in json.loads(dims)
    ]
