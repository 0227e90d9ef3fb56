"""Which calls show a link: large messages whatever they take, small ones where rounds are long."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.rings.informative_calls import informative_kinds, kind_of

MS = 1_000_000
RANKS = tuple(range(8))


def calls(size: int, takes_ms: float, op: str = "all_reduce") -> list[dict[int, Call]]:
    """Forty calls of eight ranks."""
    columns = []
    for number in range(40):
        start = number * 200 * MS
        column = {}
        for rank in RANKS:
            end = start + round(takes_ms * MS)
            column[rank] = Call(rank, op, start, end, rank * 100 + number, bytes=size)
            column[rank].group, column[rank].group_size = "0", len(RANKS)
        columns.append(column)
    return columns


@pytest.mark.parametrize(
    ("size", "takes_ms", "op", "tells"),
    [
        (65_536, 4.0, "all_reduce", True),
        (49_152, 58.0, "all_reduce", True),
        (49_152, 58.0, "broadcast", False),  # no ring: nothing says what its rounds would be
        (4, 58.0, "all_reduce", False),  # fewer bytes than parts: most rounds are empty
        (4, 4.0, "all_reduce", False),
    ],
)
def test_kinds_that_tell(size: int, takes_ms: float, op: str, *, tells: bool) -> None:
    columns = calls(size, takes_ms, op)
    assert informative_kinds(columns) == ({kind_of(columns[0][0])} if tells else set())


def test_a_kind_is_told_as_a_whole() -> None:
    # Late ranks make single calls of a healthy kind long; picked alone they would show a link.
    columns = calls(49_152, 4.0)[:30] + calls(49_152, 58.0)[:10]
    assert informative_kinds(columns) == set()
