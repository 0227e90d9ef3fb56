"""Some of a group's calls: when its ranks came to a ring, and when they left."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.metrics.clocks.offsets import aligned
from advisor.metrics.collectives.call import Call
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import FEWEST_CALLS
from advisor.metrics.links.locations import Members
from advisor.metrics.rings.locations import Home
from advisor.metrics.timeline.intervals import Int64s
from advisor.statistics import Floats, spread

_MOST_CALLS = 5  # of a kind: those whose ranks came nearest together, and as many others
MOST_ENDS = 128
"""That are looked at together: of longer rings fewer calls, each of which tells more."""
LONG = MOST_ENDS // 2
"""More ranks make a ring long: what each late start does costs as the cube of their number."""
_MOST_HOST_CALLS = MOST_ENDS // 4
"""The same of calls that hosts' threads make, whose ends scatter more: four ranks' ends."""
UNREAD = (-1.0, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3, 1.0)
"""When ranks came that were not read, after the last of the others, in times of the call."""
RESOLUTION_NS = 1e3  # of Kineto's older files


@dataclass(frozen=True, eq=False)  # what is worked out once is kept by the block itself
class Block:
    """Some of a group's calls of one operation and size: what such a call takes, and by call and
    rank the starts against the last, the ends against their mean; the ends' noise, ns. ``near``:
    the first of the calls, whose ends' median is looked at. ``hosts``: by rank, in order.
    ``read``: the places of the ranks that were read; the others, which count as one more host, came
    one of ``unread`` times of the call after the last of these.
    """

    members: Members
    op: str
    bytes: int
    time_ns: float
    starts_ns: Floats
    ends_ns: Floats
    noise_ns: Floats
    near: int
    hosts: Int64s
    read: Int64s
    rings: tuple[tuple[int, ...], ...] | None  # from NCCL's log
    unread: tuple[float, ...]
    long: bool
    """Its ranks' ends are simulated as they came, clocks as they are, and of each host one is read:
    what each late start does costs too much, and clocks that are off shift ends by much less."""
    gloo: bool = False
    count: int | None = None
    """How many of the calls are independent; without it all."""
    hop: float = 0.0
    """The part of its time that messages are on their way between gloo's hosts, whatever is slow:
    how far these are apart decides when ranks leave by who came late."""


@dataclass(frozen=True)
class Lags:
    """Blocks whose hosts' clocks are wrong together; and what whitens their ranks' ends, one after
    another, for each of the model's errors, with the logarithm of its determinant."""

    blocks: tuple[Block, ...]
    whitening: tuple[tuple[Floats, float], ...]
    model_errors: tuple[float, ...] = ()
    """Of each of ``whitening`` the model's error, where a pattern is known but for a part of it."""
    first_look: "Lags | None" = None
    """Of long rings, and where ranks were not read, a few calls: by these are chosen the locations,
    and the times that such ranks came, that are weighed by all calls."""

    @property
    def gloo(self) -> bool:
        """Whether hosts' threads send by gloo's schedule."""
        return self.blocks[0].gloo

    @property
    def long(self) -> bool:
        """Whether some ring is."""
        return any(one.long for one in self.blocks)

    @property
    def unread(self) -> tuple[float, ...]:
        """When ranks that were not read may have come."""
        return max((one.unread for one in self.blocks), key=len)

    def came(self, unread: Sequence[float]) -> "Lags":
        """The same for these times only."""
        own = [replace(one, unread=tuple(unread) if one.unread else ()) for one in self.blocks]
        return replace(self, blocks=tuple(own))

    @property
    def slices(self) -> list[slice]:
        """Where each block's ranks are."""
        stops = np.cumsum([len(one.noise_ns) for one in self.blocks]).tolist()
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]


def block_of(
    members: Members,
    kind: tuple[str, int],
    columns: Sequence[Mapping[int, Call]],
    data: Inputs,
    home: Mapping[int, Home],
    free: frozenset[Home] | None,
    fixed_ns: float,
) -> Block:
    """Of the calls whose ranks came nearest together, of hosts' threads the fastest, and of others
    that span how they came."""
    common = set.intersection(*({*one} for one in columns))
    read = np.array([place for place, rank in enumerate(members.ranks) if rank in common])
    ranks = [members.ranks[place] for place in read]
    when = np.array(
        [
            [[aligned(t, r, data.clocks) for t in (c[r].start, c[r].end)] for r in ranks]
            for c in columns
        ],
        dtype=np.int64,
    )
    starts = (when[:, :, 0] - when[:, :, 0].max(axis=1, keepdims=True)).astype(np.float64)
    came = np.zeros((len(columns), len(members.ranks)))
    came[:, read] = starts
    whole = len(read) == len(members.ranks)
    ends = (when[:, :, 1] - when[:, :, 1].max(axis=1, keepdims=True)).astype(np.float64)
    takes = np.array([min(x.end - x.start for x in c.values()) for c in columns], dtype=np.float64)
    # Whoever was not read came early where a call is short. A slow link holds up every call,
    # threads that wait for a core only some; and durations are the same with any clocks.
    apart = takes if data.gloo else -starts.min(axis=1) + (0.0 if whole else takes)
    order = apart.argsort(kind="stable")
    most = _MOST_HOST_CALLS if data.gloo else _MOST_CALLS
    most = min(most, max(FEWEST_CALLS, MOST_ENDS // len(ranks)))
    near, others = order[:most], order[most:]
    spanning = np.linspace(0, len(others), min(most, len(others)), endpoint=False)
    chosen = np.concatenate([near, others[spanning.astype(np.intp)]])
    known = list(dict.fromkeys(home[rank] for rank in ranks))
    hosts = np.full(len(members.ranks), len(known))
    hosts[read] = [known.index(home[rank]) for rank in ranks]
    if long := len(members.ranks) > LONG:
        chosen, read = near, np.unique(hosts, return_index=True)[1]
        ends, hosts = ends[:, read], np.zeros_like(hosts)
    if free is not None:
        moving = [one for one in known if one in free]
        numbers = [1 + moving.index(home[r]) if home[r] in moving else 0 for r in ranks]
        own = np.array(numbers) - min(numbers)
        hosts = np.full(len(members.ranks), own.max() + 1)
        hosts[read] = own
    late = ends[chosen] - ends[chosen].mean(axis=1, keepdims=True)
    time_ns = max(float(np.median(takes[near])), 1.0)
    usual, count = len(near), len(chosen)
    if data.gloo:
        noise, count = _host_noise_ns(late, [columns[one][ranks[0]].step for one in chosen])
    else:
        noise = _noise_ns(late[:usual])
    return Block(
        members,
        *kind,
        time_ns,
        came[chosen],
        late,
        noise,
        usual,
        hosts,
        read,
        data.ring_orders.get(frozenset(members.ranks)),
        () if whole else UNREAD,
        long,
        data.gloo,
        count,
        round(min(fixed_ns / time_ns, 1.0), 1) if data.gloo else 0.0,
    )


def _noise_ns(late: Floats) -> Floats:
    """The error of the ends' median by rank, of as many independent rows."""
    found: Floats = 1.2533 * np.array([spread(own) for own in late.T]) / math.sqrt(len(late))
    return found


def _host_noise_ns(late: Floats, steps: Sequence[int | None]) -> tuple[Floats, int]:
    """The same of hosts' threads, and how many rows are independent.

    Calls of one step are late together: how far steps differ tells the error, all ranks' together.
    Of few steps it is an estimate, so that the median is off as Student's t is.
    """
    by_step: dict[int, list[int]] = defaultdict(list)
    for call, step in enumerate(steps):
        by_step[-1 - call if step is None else step].append(call)
    if len(by_step) >= FEWEST_CALLS:  # else there is but one to tell it from
        late = np.array([np.median(late[own], axis=0) for own in by_step.values()])
    count = len(late)
    error = math.sqrt(float((_noise_ns(late) ** 2).mean()) * (count + 1) / max(count - 1, 1))
    return np.full(late.shape[1], error), count
