"""Starts and ends of a healthy ring as recorded, which a clock must not turn into a slow link."""

from __future__ import annotations

import pytest

from advisor.metrics.clocks.posterior import weigh
from advisor.metrics.collectives.call import Call

MS = 1_000_000
# Of calls of 983 kB on four hosts with alike links: per rank (start, end), us after the last start.
RECORDED = [
    ((-3105, 14307), (-59, 14182), (0, 14033), (-3233, 11952)),
    ((-519, 17080), (-320, 17212), (0, 17345), (-1008, 16221)),
    ((-511, 16134), (-151, 16862), (0, 17252), (-506, 16462)),
    ((-4466, 11709), (-3342, 12900), (0, 11481), (-4542, 10445)),
    ((-2242, 15890), (-851, 16058), (0, 15616), (-2100, 14834)),
    ((-1241, 15781), (-970, 16254), (0, 16985), (-550, 16053)),
    ((-4195, 12589), (0, 11088), (-1532, 10743), (-3163, 11383)),
    ((-434, 15864), (0, 16573), (-1884, 17254), (-1703, 15531)),
    ((-305, 15808), (-192, 16907), (0, 15673), (-1075, 15477)),
    ((0, 10796), (-1327, 10126), (-3030, 11112), (-4999, 12234)),
    ((0, 16085), (-1286, 15278), (-1378, 15118), (-671, 15728)),
    ((0, 16814), (-74, 16739), (-950, 17127), (-628, 17388)),
    ((-5747, 9662), (-7246, 10533), (-4830, 11900), (0, 10263)),
    ((-385, 15537), (-11, 16106), (0, 16312), (-87, 16132)),
    ((-1992, 14904), (-2187, 14989), (0, 15732), (-2081, 15253)),
    ((-3200, 15570), (0, 14926), (-1192, 16216), (-3215, 15149)),
    ((-1468, 17098), (-861, 16856), (0, 17014), (-929, 15139)),
    ((-298, 17115), (-765, 16061), (-805, 15861), (0, 16671)),
    ((-2352, 10454), (-3140, 11332), (-4462, 11924), (0, 10640)),
    ((-1730, 23700), (-2458, 24774), (-325, 23250), (0, 22748)),
    ((-754, 14800), (0, 16128), (-1830, 14521), (-1748, 15108)),
]


def shifted(rank: int, by_ms: float) -> list[dict[int, Call]]:
    """The calls, 50 ms apart, with the clock of ``rank`` ahead by ``by_ms``."""
    off_ns = {rank: round(by_ms * MS)}
    return [
        {
            one: Call(
                rank=one,
                op="all_reduce",
                group="0",
                group_size=4,
                bytes=983_040,
                event_id=0,
                start=50 * MS * number + 1000 * start + off_ns.get(one, 0),
                end=50 * MS * number + 1000 * end + off_ns.get(one, 0),
            )
            for one, (start, end) in enumerate(call)
        }
        for number, call in enumerate(RECORDED)
    ]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("by_ms", [3.0, -3.0, 40.0, -1000.0])
def test_a_clock_that_is_off_makes_no_link_slow(rank: int, by_ms: float) -> None:
    """A second clock together with a slow link must not beat the one clock that was moved."""
    host = {number: f"h{number}" for number in range(4)}
    seen = weigh(shifted(rank, by_ms), host, dict.fromkeys(host, 0))
    assert seen is not None
    found = seen.one_off(dict.fromkeys(host.values(), 0))
    assert found is not None
    assert not found.slow
    if abs(by_ms) > 10:
        assert found.off == f"h{rank}"
        assert found.offsets_ns[f"h{rank}"] == pytest.approx(-by_ms * MS, abs=1.5 * MS)
