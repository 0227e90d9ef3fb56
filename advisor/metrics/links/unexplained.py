"""What a location leaves unexplained of the ends of rings, and how likely that is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.metrics.links.ring_blocks import RESOLUTION_NS, Block
from advisor.metrics.timeline.intervals import Int64s
from advisor.statistics import Floats

_MOST_ROUNDS = 8
"""Until starts and ends agree on the clocks: each moves what is left by what paths leave open. The
first go to and fro where clocks are off by more than ranks come apart, some in turns of four rounds
without an end: of those, whole turns leave least (tests/metrics/test_unread_arrivals.py)."""


@dataclass(frozen=True)
class Left:
    """What is unexplained by row and level: ``usual``, the ends' median by block and rank, ns; and
    the logarithm of how likely that is which varies from call to call."""

    usual: Floats
    varied: Floats

    def weighed(self, weight: float) -> "Left":
        """As likely as that, times as before."""
        return Left(self.usual, self.varied + np.log(weight))

    def split(self, rows: Int64s) -> "list[Left]":
        """Before each of these rows."""
        usual, varied = np.split(self.usual, rows), np.split(self.varied, rows)
        return [Left(*one) for one in zip(usual, varied, strict=True)]


def left_of(late: Floats, block: Block) -> Left:
    """Of what is unexplained by rank, call, row and level. The errors of a call's ranks are one
    error, of a size that is not known, and so are those of calls that are not independent."""
    varied = late - late.mean(axis=1, keepdims=True)
    spread = (varied**2).mean(axis=(0, 1)) + RESOLUTION_NS**2
    usual = np.moveaxis(np.median(late[:, : block.near], axis=1), 0, 2)
    return Left(usual, -((block.count or late.shape[1]) - 1) / 2 * np.log(spread))


def joined(blocks: Sequence[Left]) -> Left:
    """Of several blocks together."""
    return Left(
        np.concatenate([one.usual for one in blocks], axis=2),
        np.sum([one.varied for one in blocks], axis=0),
    )


def widened(left: Left, levels: int) -> Left:
    """The same for all levels where a location is in none of a block's rings."""
    if left.varied.shape[1] == levels:
        return left
    return Left(np.repeat(left.usual, levels, axis=1), np.repeat(left.varied, levels, axis=1))


def settled(block: Block, reached: Floats, last: Floats, unread: float | None) -> Floats:
    """Ends less those of a kernel that ends with its last channel, by rank, call, a loop's bytes
    and level."""
    own = block.hosts[block.read]
    hosts = len(reached) - (unread is not None)
    shape = reached.shape[4:]
    reached = reached.reshape(*reached.shape[:4], -1)
    last = last.reshape(*last.shape[:2], -1)
    off = np.zeros((hosts, 1, 1, 1, reached.shape[4]))
    found = np.empty((len(own), len(block.ends_ns), reached.shape[4]))
    moving = np.arange(reached.shape[4])
    for number in range(_MOST_ROUNDS):
        left, later = np.empty(reached.shape[1:]), np.empty(reached.shape[1:])
        # By channel, calls beside columns: numpy repeats long rows at once, short ones one by one.
        by_call = reached.reshape(*reached.shape[:3], -1)
        moved = np.tile(off.reshape(hosts, -1), reached.shape[3])
        np.add(by_call[0], moved[0], out=left.reshape(by_call[0].shape))
        for by_host, by in zip(by_call[1:hosts], moved[1:], strict=True):
            np.add(by_host, by, out=later.reshape(by_host.shape))
            np.maximum(left, later, out=left)
        if unread is not None:
            np.maximum(left, np.add(reached[hosts], unread * block.time_ns, out=later), out=left)
        late = _unexplained(block, left, last)
        found[..., moving] = late
        if hosts < 2 or number == _MOST_ROUNDS - 1:
            break
        usual = np.median(late, axis=1)
        before = off
        off = np.stack([-usual[own == host].mean(axis=0) for host in range(hosts)])
        off = off[:, None, None, None]
        # By less than what traces resolve no clock need be moved.
        still = (np.abs(off - before) < RESOLUTION_NS).all(axis=0).ravel()
        if still.all():
            break
        if still.any():
            moving, last = moving[~still], last[..., ~still]
            reached, off = np.compress(~still, reached, axis=4), off[..., ~still]
    return found.reshape(*found.shape[:2], *shape)


def _unexplained(block: Block, left: Floats, last: Floats) -> Floats:
    """The ends less when ranks leave each channel, by rank, call and column."""
    left += last - left.max(axis=0)
    late: Floats = block.ends_ns.T[..., None] - left.max(axis=1)[block.read]
    late -= late.mean(axis=0)
    return late
