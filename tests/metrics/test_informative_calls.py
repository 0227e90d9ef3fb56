"""Which calls show a link: large messages whatever they take, small ones where rounds are long."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.links.evidence import observe
from advisor.metrics.links.staggers import explain
from advisor.metrics.rings.informative_calls import informative_kinds, kind_of
from advisor.metrics.rings.locations import Location
from advisor.metrics.rings.schedule import edges, ends

MS = 1_000_000
RANKS = tuple(range(8))
HOME = {rank: f"h{rank // 2}" for rank in RANKS}
DISTANT = Location("both", ("h1",))


def calls(size: int, takes_ms: float, op: str = "all_reduce") -> list[dict[int, Call]]:
    """Forty calls of four hosts, two ranks each, of which one is distant: ends are the model's."""
    ring = edges("all_reduce", RANKS)
    slow = frozenset(n for n, edge in enumerate(ring) if DISTANT.slow(edge, HOME))
    inside = frozenset(n for n, (a, b) in enumerate(ring) if HOME[a] == HOME[b])
    pattern = ends("all_reduce", len(RANKS), slow, inside)[-1]
    noise = np.random.default_rng(5).normal(0, 0.01, (40, len(RANKS)))
    columns = []
    for number, own in enumerate(pattern + noise):
        start = number * 200 * MS
        column = {}
        for rank, late in zip(RANKS, own, strict=True):
            end = start + round(max(late, 0.1) * takes_ms * MS)
            call = Call(rank, op, start, end, rank * 100 + number, bytes=size)
            call.group, call.group_size, call.last_rank, call.transfer = "0", 8, 0, end - start
            column[rank] = call
        columns.append(column)
    return columns


def test_small_messages_whose_rounds_take_long_name_the_distant_host() -> None:
    # 48 KiB in 58 ms: two passes of fourteen rounds, 2 ms each, as a link 2 ms away gives.
    ring = observe("0", RANKS, calls(49_152, 58.0), {}, HOME)
    assert ring is not None
    found = explain([ring], HOME)
    assert found is not None
    assert {one for place in found.places for one in place.homes} == {"h1"}


def test_a_cut_rank_stays_while_its_calls_are_as_good_as_the_model() -> None:
    """Forty calls of seven ranks say less of a place than twelve that the eighth is in too."""
    columns = calls(4_000_000, 58.0)
    for kept, known in ((12, RANKS), (4, RANKS[1:])):
        cut = [*columns[:kept], *({r: c[r] for r in RANKS[1:]} for c in columns[kept:])]
        ring = observe("0", RANKS, cut, {}, HOME)
        assert ring is not None
        assert ring.known == known


def test_small_messages_of_a_busy_machine_show_no_link() -> None:
    # 48 KiB in 4 ms, 0.14 ms a round: the order of ends is that in which ranks woke up.
    assert observe("0", RANKS, calls(49_152, 4.0), {}, HOME) is None


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
