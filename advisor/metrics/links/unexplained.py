"""What a location leaves unexplained of the ends of rings, and how likely that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.metrics.links.ring_lags import RESOLUTION_NS
from advisor.metrics.timeline.intervals import Int64s
from advisor.metrics.timeline.statistics import Floats


@dataclass(frozen=True)
class Left:
    """What is unexplained by row and level: ``usual``, the ends' median by block and rank, ns; and
    the logarithm of how likely that is which varies from call to call."""

    usual: Floats
    varied: Floats

    def weighed(self, weight: float) -> Left:
        """As likely as that, times as before."""
        return Left(self.usual, self.varied + np.log(weight))

    def split(self, rows: Int64s) -> list[Left]:
        """Before each of these rows."""
        usual, varied = np.split(self.usual, rows), np.split(self.varied, rows)
        return [Left(*one) for one in zip(usual, varied, strict=True)]


def left_of(late: Floats, near: int) -> Left:
    """Of what is unexplained by rank, call, row and level. The errors of a call's ranks are one
    error, of a size that is not known."""
    varied = late - late.mean(axis=1, keepdims=True)
    spread = (varied**2).mean(axis=(0, 1)) + RESOLUTION_NS**2
    usual = np.moveaxis(np.median(late[:, :near], axis=1), 0, 2)
    return Left(usual, -(late.shape[1] - 1) / 2 * np.log(spread))


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
