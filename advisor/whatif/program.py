"""What a rank does in one step, as a program: work, issue a call, wait for a call.

A step is turned into one list of items per rank and a table of calls shared by the ranks.
``Work`` is time that passes whatever the network does; ``Issue`` hands a call to the backend;
``Wait`` stops the rank until a call is over. Changing the program and replaying it answers
"what if". Times are nanoseconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

Share = Literal["call", "bytes", "unit"]


class Owner(NamedTuple):
    """The call that some work is done for, and how it depends on that call.

    ``call`` work vanishes with the call and is done once for calls that become one; ``bytes`` work
    (copies) vanishes with the call too but grows with its bytes; ``unit`` work (the hooks of a
    sharded unit) stays when the call vanishes and is done once for units that become one.
    """

    call: int
    share: Share


class Work(NamedTuple):
    """Time that passes on the rank: compute, host overhead, anything that is not waiting.

    ``ns`` is what it takes while none of the rank's calls moves data.
    """

    ns: float
    owner: Owner | None = None


class Issue(NamedTuple):
    """The rank hands a call to the backend and goes on.

    ``after``: the call on another stream whose end this one waits for (HSDP sums over the replicas
    what the shards have reduced).
    """

    call: int
    after: int | None = None


class Wait(NamedTuple):
    """The rank goes on only when the call is over."""

    call: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of interest that takes no time, e.g. a gradient that is ready (``bytes`` of it)."""

    kind: str
    index: int
    bytes: int = 0


Item = Work | Issue | Wait | Mark


class Call(NamedTuple):
    """One collective or transfer of several ranks.

    ``service_ns`` is the time it needs when it has the network for itself; ``channel`` is the
    queue it goes through (its process group). ``apart_ns`` is what its like took that ran beside
    no other operation; None for calls that did so themselves, and where there are none.
    """

    ranks: tuple[int, ...]
    channel: str
    service_ns: float
    op: str = "other"
    bytes: int | None = None
    is_gradient: bool = False
    phase: str | None = None
    burst: int = -1
    apart_ns: float | None = None


@dataclass(frozen=True)
class Program:
    """One step: ``items`` per rank, the ``calls`` they refer to, when each rank starts.

    ``timeline`` is whose time the items are in: the ``host``'s (gloo) or the ``device``'s.
    ``run_step_ns`` is the step time of the run, which this step is one of. ``apart_ns`` is how much
    longer it takes from the first rank's start to the last one's end than ``measured_ns``, which
    is a rank's own step. ``contention`` is how much longer work takes while a call of its rank
    moves data, as a share.
    """

    items: dict[int, list[Item]]
    calls: dict[int, Call]
    start_ns: dict[int, float]
    slots: int = 1
    shared: bool = False
    measured_ns: float = 0.0
    apart_ns: float = 0.0
    run_step_ns: float | None = None
    step: int = 0
    timeline: str = "host"
    contention: float = 0.0

    @cached_property
    def replayed_ns(self) -> float:
        """Length of the step when it is replayed. Raises AdvisorError when that cannot end."""
        from advisor.whatif.simulate import simulate

        return simulate(self).step_ns

    @cached_property
    def gradient_bytes(self) -> list[int]:
        """Of each gradient in ready order (of the lowest rank); [] when the trace lacks them."""
        items = self.items[min(self.items)]
        return [item.bytes for item in items if isinstance(item, Mark) and item.kind == "gradient"]

    def with_items(
        self, items: dict[int, list[Item]], calls: dict[int, Call] | None = None
    ) -> "Program":
        """The same step with other items (and calls)."""
        return replace(self, items=items, calls=self.calls if calls is None else calls)


def compact(items: Iterable[Item]) -> list[Item]:
    """Join neighbouring work of one owner and drop work of no length."""
    result: list[Item] = []
    for item in items:
        if isinstance(item, Work):
            if item.ns <= 0:
                continue
            last = result[-1] if result else None
            if isinstance(last, Work) and last.owner == item.owner:
                result[-1] = Work(last.ns + item.ns, item.owner)
                continue
        result.append(item)
    return result
