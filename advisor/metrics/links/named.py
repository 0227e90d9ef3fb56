"""What the posterior names: the smallest thing that all likely locations are of."""

import re
from collections.abc import Callable, Mapping, Sequence

from advisor.metrics.collectives.groups import RankInfo
from advisor.metrics.links.cost import Culprit, Inputs, excess_of
from advisor.metrics.links.locations import Location, Members, slots_of
from advisor.metrics.links.ring_ends import REST
from advisor.metrics.links.slow_location import Found
from advisor.metrics.rings.locations import Home, is_nameless
from advisor.vocabulary.words import LONGEST_LIST, some_ranks

SURE = 0.05
"""A link is accused where the posterior leaves no more than this for a healthy network."""
LIKELY = 0.8
"""And shown as possible up to this: to measure the network takes minutes, and where it is slow
after all, that is what the steps cost."""
MOST_NAMED = 6
"""A longer list fits no line, and sends nobody to look at anything."""


def network_culprit(data: Inputs, home: Mapping[int, Home]) -> Culprit:
    """All that calls between hosts go over."""
    ranks = tuple(sorted(home))

    def uses(call: Members) -> bool:
        return len({home[rank] for rank in call.ranks}) > 1

    words = f"the network of {Name(home, data.infos).hosts(ranks)}"
    return Culprit("network", ranks[0], None, frozenset(ranks), None, (), None, uses, words,
                   "between")  # fmt: skip


def culprit_of(found: Found, data: Inputs, home: Mapping[int, Home]) -> Culprit:
    """The smallest thing that all likely locations are of: one NIC, an edge, a rail, a host; else
    the candidates."""
    places = _without_wider(found.locations)
    first = places[0]
    ranks = tuple(sorted({rank for place in places for rank in place.ranks}))
    shared = set.intersection(*({*place.ranks} for place in places))
    slot = slots_of(home, data.infos)
    hosts = {home[rank] for rank in ranks}
    one = len({(place.ranks, place.inside, place.kind, place.latency) for place in places}) == 1
    direction = first.direction if len(places) == 1 else None
    name = Name(home, data.infos)

    def culprit(kind: str, words: str, src: int, dst: int | None = None) -> Culprit:
        near = frozenset(first.ranks if one else (src,) if kind == "rank" else ranks)
        far: frozenset[int] | None = None
        if first.kind == "pair" and one:
            near, far = frozenset(first.ranks[:1]), frozenset(first.ranks[1:])
        is_open = kind == "candidates" or (kind in ("host", "rail") and not one)
        return Culprit(
            kind,
            src,
            dst if kind == "edge" else None,
            near,
            far,
            ranks if is_open else (),
            direction,
            _uses(places, home, inside_rings=found.in_rings_between),
            words,
            None if found.in_rings_between else "inside" if first.inside else "between",
            None if found.rings is None or found.in_rings_between else (
                lambda own: places[0].staggers(Members(tuple(own)), home),
                excess_of(found.rings),
            ),
        )  # fmt: skip

    if one:
        return culprit(*_single(first, direction, name), *first.ranks[1:2])
    if len(hosts) == 1:
        if first.inside and len(shared) == 1:  # its own, or that to one of several others
            (rank,) = shared
            return culprit("rank", f"NVLink of {name.rank(rank)}", rank)
        own = f"NVLink of one of {name.ranks(ranks)} on {name.hosts(ranks)}"
        nic = f"a NIC of {name.hosts(ranks)} ({name.ranks(ranks)})"
        return culprit("host", own if first.inside else nic, ranks[0])
    common = _common_ways(places, home)
    wide = sum(
        part for at, part in zip(found.locations, found.parts, strict=True) if at.kind == "all"
    )
    # No edge is named where more than what Found.locations leave out is for all links alike.
    if len(common) == 1 and wide <= REST * sum(found.parts):
        ((source, target),) = common
        sends, receives = _at(places, source, home), _at(places, target, home)
        if len(sends) == len(receives) == 1:
            words = f"the link from {name.rank(sends[0])} to {name.rank(receives[0])}"
        else:
            words = f"the link from {name.hosts(sends)} to {name.hosts(receives)}"
        return culprit("edge", words, sends[0], receives[0])
    everywhere = {*data.infos} <= {*ranks}
    if len({slot[rank] for rank in ranks}) == 1 and not first.inside and not everywhere:
        if len(shared) == 1 and all(place.kind in ("rank", "switch") for place in places):
            (rank,) = shared  # whose NIC is slow whether or not another behind its switch is too
            return culprit("rank", f"the NIC of {name.rank(rank)}", rank)
        if len(ranks) == 2:
            words = f"the link between {name.rank(ranks[0])} and {name.rank(ranks[1])}"
            likeliest, other, *_ = dict.fromkeys(one for place in places for one in place.ranks)
            return culprit("edge", words, likeliest, other)
        return culprit("rail", f"a NIC of rail {slot[ranks[0]]}, beside {name.ranks(ranks)}",
                       ranks[0])  # fmt: skip
    if everywhere or len(places) > MOST_NAMED:
        what = "NVLink" if first.inside else "the network"
        way = " (latency)" if all(place.latency for place in places) else ""
        return culprit("candidates", f"{what} of {name.hosts(ranks)}{way}", ranks[0])
    listed = " or ".join(_single(place, place.direction, name)[1] for place in places)
    return culprit("candidates", listed, ranks[0])


def _common_ways(places: Sequence[Location], home: Mapping[int, Home]) -> set[tuple[Home, Home]]:
    """The ways from one host to another that are slow whichever of the places is."""
    if any(place.inside for place in places):
        return set()
    hosts = set(home.values())
    found = {(a, b) for a in hosts for b in hosts if a != b}
    for place in places:
        own = [home[rank] for rank in place.ranks]
        if place.kind == "edge":
            found &= {(own[0], own[1])}
        else:
            found = {
                (a, b)
                for a, b in found
                if (a in own and place.direction != "receive")
                or (b in own and place.direction != "send")
            }
    return found


def _at(places: Sequence[Location], host: Home, home: Mapping[int, Home]) -> list[int]:
    """The ranks of a host that the places are beside; all of it where it is only the far end."""
    beside = {rank for place in places for rank in place.ranks if home[rank] == host}
    return sorted(beside or (rank for rank in home if home[rank] == host))


def _without_wider(places: Sequence[Location]) -> tuple[Location, ...]:
    """Of what is open only because more GPUs may share the NIC, or hosts the switch, the smallest:
    it is slow whether or not others are too."""
    least = min(places, key=lambda one: len(one.ranks))
    alike = all(
        (one.inside, one.direction) == (least.inside, least.direction)
        and (one.kind == least.kind or (one.kind == "switch" and not least.latency))
        and {*least.ranks} <= {*one.ranks}
        for one in places
    )
    return (least,) if alike else tuple(places)


def _by_number(name: str) -> list[tuple[int, str]]:
    """'node 2' stands before 'node 10'."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


class Name:
    """Ranks and hosts in words."""

    def __init__(self, home: Mapping[int, Home], infos: Mapping[int, RankInfo]) -> None:
        self.home, self.infos = home, infos

    def rank(self, rank: int) -> str:
        host = self.infos[rank].host if rank in self.infos else None
        return f"rank {rank}" + (f" on {host}" if host else "")

    def pair(self, ranks: Sequence[int]) -> str:
        """Two ranks of one host."""
        return self.rank(ranks[1]).replace("rank", f"ranks {ranks[0]} and", 1)

    def ranks(self, ranks: Sequence[int]) -> str:
        if len(ranks) == 1:
            return self.rank(ranks[0])
        shown = ", ".join(map(str, ranks[:MOST_NAMED]))
        return f"ranks {shown}" + (" …" if len(ranks) > MOST_NAMED else "")

    def hosts(self, ranks: Sequence[int]) -> str:
        own = sorted({str(self.home[rank]) for rank in ranks}, key=_by_number)
        # A host without a name is called by its ranks.
        unnamed = [rank for rank in ranks if is_nameless(self.home[rank])]
        if len(unnamed) == len(ranks):
            return some_ranks(ranks)
        shown = ", ".join(own[:MOST_NAMED]) + (" …" if len(own) > MOST_NAMED else "")
        is_long = len(own) > MOST_NAMED or len(shown) > LONGEST_LIST
        if is_long and 1 < len(own) == len(set(self.home.values())):
            return f"all {len(own)} hosts"
        if unnamed:
            others = self.hosts([rank for rank in ranks if rank not in unnamed])
            return f"{others} and of {some_ranks(unnamed)}"
        if own[0].startswith("node "):  # a name that devices tell says what it is
            return shown
        return f"host{'s' if len(own) > 1 else ''} {shown}"


def _single(place: Location, direction: str | None, name: Name) -> tuple[str, str, int]:
    """Kind, words and first rank of one location."""
    ranks = place.ranks
    way = {"send": " (sending)", "receive": " (receiving)"}.get(direction or "", "")
    way = " (latency)" if place.latency else way
    if place.kind == "rank":
        kind = "rank" if len(ranks) == 1 else "host"
        return kind, f"the NIC of {name.ranks(ranks)}{way}", ranks[0]
    if place.kind == "edge":
        words = f"the link from {name.rank(ranks[0])} to {name.rank(ranks[1])}"
        return "edge", words, ranks[0]
    if place.kind == "rail":
        return "rail", f"the rail of {name.ranks(ranks)}", ranks[0]
    if place.kind == "pair":
        return "edge", f"NVLink between {name.pair(ranks)}", ranks[0]
    if place.kind == "nvlink":
        return "rank", f"NVLink of {name.rank(ranks[0])}", ranks[0]
    if place.kind == "host":
        what = "NVLink" if place.inside else "the network"
        return "host", f"{what} of {name.hosts(ranks)}{way}", ranks[0]
    if place.kind == "switch":
        return "rail", f"the network of {name.hosts(ranks)}", ranks[0]
    what = "NVLink" if place.inside else "the network"
    return "candidates", f"{what} of {name.hosts(ranks)}{way}", ranks[0]


def _uses(
    places: Sequence[Location], home: Mapping[int, Home], *, inside_rings: bool
) -> Callable[[Members], bool]:
    """Whether calls go over any of the places.

    ``inside_rings``: it is NVLink that rings between hosts show to be slower than their NICs.
    """

    def uses(call: Members) -> bool:
        return any(
            place.staggers(call, home) if inside_rings else place.slows(call, home)
            for place in places
        )

    return uses
