"""One measurement of nccl-tests, whatever file it came from."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.numbers import MOST_BYTES, MOST_RANKS, within


class Measurement(NamedTuple):
    """One half of a row. ``size_bytes`` is the larger of send and receive size, in total.

    ``time_us`` is per call; bandwidths are decimal GB/s as printed; ``wrong`` is None when
    unchecked (layouts to 2021 print a relative difference: 1 where it is over their bound).
    ``table`` counts the tables of the input; ``hosts`` is None where not all are named, ``device``
    where the GPUs are of several kinds or of none that is named; ``apart`` counts the processes
    that measured each by itself under one table.
    """

    op: str
    ranks: int | None
    size_bytes: int
    dtype: str
    in_place: bool | None
    time_us: float | None
    algbw_gbps: float | None
    busbw_gbps: float | None
    wrong: int | None
    table: int = 0
    hosts: tuple[str, ...] | None = None
    device: str | None = None
    apart: int | None = None

    @classmethod
    def timed(cls, op: str, ranks: int | None, size_bytes: int, time_us: float) -> "Measurement":
        """One of which only the time is printed: bandwidths are the message's over it."""
        algbw = size_bytes / time_us / 1e3
        factor = bus_factor(op, ranks)
        busbw = None if factor is None else algbw * factor
        return cls(op, ranks, size_bytes, "", None, time_us, algbw, busbw, None)


@dataclass
class Harvest:
    """What was found in one input, and what of it could not be kept (reason → count)."""

    measurements: list[Measurement] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    nccl_version: str | None = None

    def add(self, one: Measurement) -> None:
        """Keep a measurement; one of a size that no message has is counted as dropped."""
        if within(one.size_bytes, 0, MOST_BYTES) is None:
            self.dropped["size out of range"] += 1
        else:
            self.measurements.append(one._replace(ranks=within(one.ranks, 1, MOST_RANKS)))
