"""The result of ``advisor probe`` → ``bench``: collectives by size, and single links.

The host of each of the probe's ranks goes to ``topology`` as ``probe-rank``: it need not be the
host of the job's rank of that number.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, FailFast, Field, ValidationError

from advisor.errors import AdvisorError
from advisor.ingest.readers._json import read_document
from advisor.ingest.readers._rows import Row, insert
from advisor.ingest.source import ReadContext, Source
from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.numbers import MOST_BYTES, MOST_RANKS, json_integer

FORMAT = "probe"
SUMMARY = "results of `advisor probe`: collectives by size, and every link in pairs"
PRIORITY = 30

_MARK = re.compile(rb'"format"\s*:\s*"advisor-probe"')


_Microseconds = Annotated[float, Field(ge=1e-3, le=1e12)]  # a nanosecond to eleven days


class _Lazy(BaseModel, extra="ignore", defer_build=True):
    """Built when it is first used: every start imports this reader."""


class _Collective(_Lazy):
    op: str = Field(max_length=40)
    ranks: int = Field(ge=1, le=MOST_RANKS)
    bytes: int = Field(ge=0, le=MOST_BYTES)
    times_us: Annotated[list[_Microseconds], FailFast()] = Field(min_length=1)


class _Pair(_Lazy):
    src: int = Field(ge=0, lt=MOST_RANKS)
    dst: int = Field(ge=0, lt=MOST_RANKS)
    bytes: int = Field(ge=0, le=MOST_BYTES)
    round_trip_us: _Microseconds


_Row = TypeVar("_Row", _Collective, _Pair)


class _Probe(_Lazy):
    world_size: int = Field(ge=1, le=MOST_RANKS)
    hosts: Annotated[list[str], FailFast()] = []
    collectives: list[Any] = []
    pairs: list[Any] = []


def detect(source: Source) -> bool:
    """The probe writes its format first."""
    return bool(_MARK.search(source.head[:4096]))


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Write ``bench`` and ``topology`` rows; a file that does not fit is counted and noted."""
    for source in sources:
        try:
            text, _ = read_document(source)
            probe = _Probe.model_validate(json.loads(text, parse_int=json_integer))
        except (ValueError, RecursionError, AdvisorError) as error:
            note = error.message if isinstance(error, AdvisorError) else "not a probe's result"
            context.refuse(source, FORMAT, note, "unreadable")
            continue
        dropped: Counter[str] = Counter()
        count = insert(context, "bench", _rows(probe, dropped))
        places = enumerate(probe.hosts)
        hosts = [{"kind": "probe-rank", "rank": rank, "host": host} for rank, host in places]
        insert(context, "topology", hosts)
        context.report(source, FORMAT, events_read=count, drop_reasons=dropped)


def _sound(kind: type[_Row], items: list[Any], dropped: Counter[str]) -> Iterator[_Row]:
    """The items whose fields are what they must be; the others are counted by their first one."""
    for item in items:
        try:
            yield kind.model_validate(item)
        except ValidationError as error:
            where = error.errors()[0]["loc"]
            dropped[f"unusable {where[0]}" if where else "no object"] += 1


def _rows(probe: _Probe, dropped: Counter[str]) -> Iterator[Row]:
    shared = {"tool": "probe", "dtype": "float32"}
    for row in _sound(_Collective, probe.collectives, dropped):
        time_us = median(row.times_us)
        rate = row.bytes / time_us / 1e3
        factor = bus_factor(row.op, row.ranks)
        busbw = None if factor is None else rate * factor
        own = {"op": row.op, "ranks": row.ranks, "bytes": row.bytes, "time_us": time_us}
        yield {**shared, **own, "algbw_gbps": rate, "busbw_gbps": busbw}
    for pair in _sound(_Pair, probe.pairs, dropped):
        rate = pair.bytes / pair.round_trip_us / 1e3
        own = {"op": "send", "ranks": 2, "bytes": pair.bytes, "time_us": pair.round_trip_us}
        ends = {"src": pair.src, "dst": pair.dst}
        yield {**shared, **own, **ends, "algbw_gbps": rate, "busbw_gbps": rate}
