"""How each slow location would stagger the ends of a group's rings, and how likely that makes them.

NCCL's schedule (rings/nccl.py) says when each rank leaves by when all came; how long a slice takes,
which rings there are, and who writes over NVLink is not known: all of it is averaged over. Who
leaves when by who came late needs no common clock, and tells the sender of a slow edge where the
usual order could be clocks that are off.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from advisor.metrics.links.locations import Location
from advisor.metrics.links.ring_blocks import Block, Lags
from advisor.metrics.links.ring_orders import Orders
from advisor.metrics.links.ring_reach import ADDED_NS, FACTORS, MOST_AT_ONCE, Assumed, Reach
from advisor.metrics.links.unexplained import Left, joined, left_of, settled, widened
from advisor.metrics.rings.locations import Home
from advisor.metrics.rings.nccl import LOW_LATENCY, PASSES, SIMPLE, Protocol
from advisor.metrics.rings.schedule import INSIDE, SEGMENTS, segments
from advisor.statistics import Floats

_IN_LOOP: Floats = np.exp2(np.arange(19.0, 27.0))
"""Bytes of a rank that one loop takes: 2 MiB a channel by Simple, 0.3 by LL128, 2 to 32 channels
(src/include/collectives.h, src/graph/search.cc). The more, the longer a slice."""
_HEALTHY = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
"""How long NVLink takes a slice, in a NIC's time, if nothing is slow: what finer steps explain is
not to be called a slow link. They go down to where a rail that is slow everywhere would be."""
_INSIDE = _HEALTHY[3::3]
"""The same beside a slow link: with one NIC a host (12.5 of an A100's 300 GB/s) and with one a GPU,
which share it (25 of 300 / 8, 50 of 450 / 8)."""
_PROTOCOLS = {SIMPLE: 0.75, LOW_LATENCY: 0.25}
"""What calls large enough to be looked at use: LL128 is for those up to some MB."""
_GLOO = Protocol(SEGMENTS, SEGMENTS)
"""As many segments are under way (rings/schedule.py); of large messages a chunk has more."""
_MOST_OFF = 0.3
"""Ends are off a known pattern by up to this part of how far it sets them apart: gloo's slow links
leave a fifth of it."""
_Key = tuple[Block, bytes, bool, Assumed]
_Links = tuple[bool, bool, float, float]


class Patterns:
    """How likely each location makes the ends of groups' rings."""

    def __init__(self, home: Mapping[int, Home], slot: Mapping[int, int]) -> None:
        self.home, self.slot = home, slot
        self._orders = Orders(home, slot)
        self._reach = Reach()

    def log_likelihoods(
        self, lags: Lags, places: Sequence[Location | None], roughly: bool = False
    ) -> list[Floats | None]:
        """By location and level the logarithm of how likely the ends are: the mean over what is not
        known (the kind of ring order, who writes over NVLink, how fast that is, the protocol, a
        loop's bytes), row by row of when ranks came that were not read. None where it is in none of
        these rings. Without a location, if nothing is slow. ``roughly``: for one usual NVLink only.
        """
        touched = [n for n, place in enumerate(places) if self._touches(lags, place)]
        number_of = {number: self._unknown(lags, places[number], roughly) for number in touched}
        rows: dict[int, list[Floats]] = {number: [] for number in number_of}
        whitened = _Whitened(lags)
        known: dict[tuple[_Key, ...], Floats] = {}  # by when others came, loop's bytes and level
        for order in range(max(len(self._orders.of(block)) for block in lags.blocks)):
            wanted = list(self._wanted(lags, places, number_of, order))
            new = {key for _, whole, _ in wanted if whole not in known for key in whole}
            left = self._left(lags, new)
            for number, whole, weight in wanted:
                if whole not in known:
                    tries = max((left[key] for key in whole), key=len)
                    each = zip(
                        *(left[key] * (len(tries) // len(left[key])) for key in whole), strict=True
                    )
                    known[whole] = np.stack([whitened.logs(one) for one in each])
                rows[number].append(known[whole] + weight)
        # As likely it is no ring, but a tree, or done in the switch: then nobody's start shows.
        ends = [left_of(one.ends_ns.T[..., None, None], one) for one in lags.blocks]
        other = whitened.each(ends)
        found: list[Floats | None] = [None] * len(places)
        for number, own in rows.items():
            weight = np.log(sum(one.shape[1] for one in own))
            own.append(np.repeat(other[None] + weight, len(own[0]), axis=0))
            levels = max(one.shape[2] for one in own)
            # One level is where a location is in no ring of such an order.
            alike = [np.repeat(one, levels // one.shape[2], axis=2) for one in own]
            found[number] = mean_of(np.concatenate(alike, axis=1), 1)
        return found

    def late_ns(self, lags: Sequence[Lags], place: Location | None, level: int) -> dict[int, float]:
        """By how much ranks leave later than a place slows them, where their ring is known."""
        found: dict[int, list[float]] = defaultdict(list)
        for one in lags:
            own = place if self._touches(one, place) else None
            wanted = self._wanted(one, [own], {0: self._unknown(one, own, False)}, 0)
            *_, (_, keys, _) = sorted(wanted, key=lambda each: each[1][0][3].hop)
            for block, left in zip(one.blocks, self._left(one, set(keys)).values(), strict=True):
                usual = left[0].usual[0, min(level, left[0].usual.shape[1] - 1)]
                for at, by in zip(block.read, usual, strict=True):
                    found[block.members.ranks[at]].append(float(by))
        return {rank: float(np.mean(own)) for rank, own in sorted(found.items())}

    def _touches(self, lags: Lags, place: Location | None) -> bool:
        # How fast NVLink is beside the NICs is open anyway: all links alike show in no order. Long
        # rings are looked at for hosts only.
        return place is None or (
            (place.kind != "all" or place.latency)
            and not (lags.long and not self._is_of_hosts(place))
            and any(place.staggers(one.members, self.home) for one in lags.blocks)
        )

    def _is_of_hosts(self, place: Location) -> bool:
        hosts = {self.home[rank] for rank in place.ranks}
        whole = sum(host in hosts for host in self.home.values()) == len(place.ranks)
        return whole and not place.inside and not place.latency

    def _unknown(self, lags: Lags, place: Location | None, roughly: bool) -> set[_Links]:
        """Who may write over NVLink, how fast that is, and whether gloo's hosts are as far apart as
        calls of few bytes say."""
        if lags.gloo:
            # One distant host may be all that calls of few bytes wait for.
            apart = (0.0, 1.0) if place is not None and place.latency else (1.0,)
            return {(True, False, INSIDE, hop) for hop in apart}
        # NICs that are slow hide who writes over NVLink.
        written = (True,) if (place and not place.inside) or roughly else (False, True)
        fast = _INSIDE[1:2] if roughly else _INSIDE if place else _HEALTHY
        early = (True,) if lags.long else (True, False)
        return set(product(early, written, fast, (0.0,)))

    def _wanted(
        self,
        lags: Lags,
        places: Sequence[Location | None],
        unknown: Mapping[int, Collection[_Links]],
        order: int,
    ) -> Iterator[tuple[int, tuple[_Key, ...], float]]:
        """Locations, what the patterns of the blocks' ends depend on, and the weight's logarithm:
        for all that is not known but the kind of order."""
        slow = {
            number: [self._slow(block, places[number], order) for block in lags.blocks]
            for number in unknown
        }
        protocols = {_GLOO: 1.0} if lags.gloo else _PROTOCOLS
        each = sorted({one for own in unknown.values() for one in own})
        for links, protocol in product(each, protocols):
            weight = float(np.log(len(protocols) * protocols[protocol]))
            assumed = Assumed(order, *links, protocol)
            same = [self._same(block, assumed) for block in lags.blocks]
            for number, own in unknown.items():
                if links in own:
                    keys = zip(lags.blocks, slow[number], same, strict=True)
                    yield number, tuple((b, *mask, one) for b, mask, one in keys), weight

    def _slow(self, block: Block, place: Location | None, order: int) -> tuple[bytes, bool]:
        """Which edges of a block's channels a location slows, and whether by latency."""
        edges, inside, _ = self._orders.rings_of(block, order)
        slow = np.zeros_like(inside)
        if place is not None and place.staggers(block.members, self.home):
            nics = [(self.home[r], self.slot[r]) for r in place.ranks]
            slow = np.array([[place.slows_edge(a, b, nics) for a, b in ring] for ring in edges])
        return slow.tobytes(), place is not None and place.latency and bool(slow.any())

    def _same(self, block: Block, assumed: Assumed) -> Assumed:
        """What of it shows in a block: NVLink's speed only beside NICs, and who writes over it only
        where there is any; how far hosts are apart in its own time."""
        _, inside, _ = self._orders.rings_of(block, assumed.order)
        if block.gloo:
            each = segments(block.op, len(block.members.ranks), block.bytes)
            protocol = _GLOO._replace(slices=each)
            assumed = assumed._replace(hop=assumed.hop * block.hop, protocol=protocol)
        mixed = bool((inside.any(axis=1) & ~inside.all(axis=1)).any())
        return assumed._replace(
            order=min(assumed.order, len(self._orders.of(block)) - 1),
            written=assumed.written and bool(inside.any()),
            fast=assumed.fast if mixed else 1.0,
        )

    def _left(self, lags: Lags, keys: Collection[_Key]) -> dict[_Key, tuple[Left, ...]]:
        """What is left unexplained of a block's ends, by when others came, number of loops and
        level. Many keys together: each is a small array."""
        found: dict[_Key, tuple[Left, ...]] = {}
        for block in lags.blocks:
            loops = np.unique(_loops(block))
            alike: dict[tuple[bool, bool, bool], list[_Key]] = defaultdict(list)
            for key in sorted((own for own in keys if own[0] is block), key=lambda own: own[1:]):
                alike[any(key[1]), key[2], key[3].early].append(key)
            for (some_slow, latency, _), own in alike.items():
                lefts = self._of_block(block, own, loops, some_slow and not latency, latency)
                found.update(zip(own, lefts, strict=True))
        return found

    def _of_block(
        self, block: Block, keys: Sequence[_Key], loops: Floats, some_slow: bool, latency: bool
    ) -> Iterator[tuple[Left, ...]]:
        """Of each of the keys, whose levels are alike.

        Clocks that are off shift starts as they shift ends: they are put right, host by host, until
        both fit.
        """
        levels = len(ADDED_NS) if latency else len(FACTORS) if some_slow else 1
        _, inside, _ = self._orders.rings_of(block, keys[0][3].order)
        numbers = (int(block.hosts.max()) + 1) * block.starts_ns.size * len(inside) * levels
        parts = min(len(loops), numbers * len(loops) // MOST_AT_ONCE + 1)
        pieces = [(key, some) for key in keys for some in np.array_split(loops, parts)]
        together = max(1, MOST_AT_ONCE * parts // (numbers * len(loops)))
        early = keys[0][3].early  # else it does not show when others came
        tries = block.unread or (None,)
        left: list[list[Left]] = [[] for _ in tries]
        for first in range(0, len(pieces), together):
            some = pieces[first : first + together]
            reached, last = zip(
                *(self._reached(block, *one, latency, some_slow, levels) for one in some),
                strict=True,
            )
            rows = np.cumsum([len(one) for _, one in some])[:-1]
            whole = np.concatenate(reached, axis=4), np.concatenate(last, 2)
            for own, unread in zip(left, tries, strict=True):
                own += left_of(settled(block, *whole, unread if early else None), block).split(rows)
        for first in range(0, len(pieces), parts):
            yield tuple(self._joined(block, own[first : first + parts], latency) for own in left)

    def _joined(self, block: Block, parts: Sequence[Left], latency: bool) -> Left:
        varied = np.concatenate([one.varied for one in parts])
        if latency:
            varied[:, PASSES[block.op] * ADDED_NS >= block.time_ns] = -np.inf
        return Left(np.concatenate([one.usual for one in parts]), varied)

    def _reached(
        self, block: Block, key: _Key, loops: Floats, latency: bool, some_slow: bool, levels: int
    ) -> tuple[Floats, Floats]:
        """When ranks leave at the earliest, by host that they wait for, rank, channel, call, loops
        and level; and when each channel ends, by channel, call (one), loops and level."""
        _, mask, _, assumed = key
        _, inside, positions = self._orders.rings_of(block, assumed.order)
        slow = np.frombuffer(mask, dtype=bool).reshape(inside.shape)
        last = np.full((len(slow), 1, len(loops), levels), block.time_ns)  # others end early
        if some_slow:
            last[~slow.any(axis=1)] /= FACTORS
        channels = [
            self._reach.of(block, tuple(at), own, within, loops, latency, some_slow, assumed)
            for own, within, at in zip(slow, inside, positions, strict=True)
        ]
        return np.stack(channels, axis=2), last


class _Whitened:
    """How likely what is left of the ends is, over all errors of the model and the clocks."""

    def __init__(self, lags: Lags) -> None:
        self._inverses = np.concatenate([inverse for inverse, _ in lags.whitening]).T
        self._scales = np.array([scale for _, scale in lags.whitening])
        self._lags, self._errors = lags, np.array(lags.model_errors)
        # Loops' bytes that make as many loops of every block are worked out once.
        numbers = [np.unique(_loops(one), return_inverse=True)[1] for one in lags.blocks]
        self._rows, again = np.unique(np.stack(numbers, axis=1), axis=0, return_inverse=True)
        self._again = again.reshape(-1)

    def logs(self, blocks: Sequence[Left]) -> Floats:
        """By a loop's bytes and level, of what is left by number of loops."""
        chosen = [Left(b.usual[r], b.varied[r]) for b, r in zip(blocks, self._rows.T, strict=True)]
        return self.each(chosen)[self._again]

    def each(self, blocks: Sequence[Left]) -> Floats:
        """By row and level."""
        levels = max(one.varied.shape[1] for one in blocks)
        alike = joined([widened(one, levels) for one in blocks])
        ranks = alike.usual.shape[2]
        each = alike.usual.reshape(-1, ranks) @ self._inverses
        squares = (each**2).reshape(*alike.varied.shape, -1, ranks).sum(axis=3)
        scales = self._scales_of(alike) if len(self._errors) else self._scales
        found: Floats = mean_of(scales - 0.5 * squares, 2) + alike.varied
        return found

    def _scales_of(self, left: Left) -> Floats:
        """By row and level, with the model's errors that are as small beside the pattern itself."""
        parts = zip(self._lags.blocks, self._lags.slices, strict=True)
        apart = [
            np.ptp(np.median(one.ends_ns[: one.near], axis=0) - left.usual[..., own], axis=-1)
            / one.time_ns
            for one, own in parts
        ]
        most = np.maximum(_MOST_OFF * np.max(apart, axis=0), self._errors.min())
        allowed = self._errors <= most[..., None]
        share = np.log(allowed.mean(axis=-1, keepdims=True))
        return np.where(allowed, self._scales - share, -np.inf)


def _loops(block: Block) -> Floats:
    if block.gloo:
        return np.ones(1)
    loops: Floats = np.ceil(block.bytes / len(block.members.ranks) / _IN_LOOP)
    return loops


def mean_of(logs: Floats, axis: int) -> Floats:
    """Logarithm of the mean of what ``logs`` are the logarithms of."""
    most = logs.max(axis=axis, keepdims=True)
    result: Floats = np.squeeze(
        most + np.log(np.exp(logs - most).mean(axis=axis, keepdims=True)), axis=axis
    )
    return result
