"""Output of UCC's ucc_perftest → ``bench``.

A head names the collective and the data type, then each line has count, size and the time over the
ranks (mean, least, most); with ``-F`` also bandwidths, which are nccl-tests' busbw
(tools/perf/ucc_pt_coll_*.cc of openucx/ucc). Sizes of all_gather and all_to_all are per rank or
pair. Ranks are the lines «Rank 0 : HOST - DEVICE», a launcher's ``-np``, or what the bandwidth of
sizes per pair tells: (ranks - 1) times size over time.
"""

import re
from collections.abc import Iterable

from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.ingest.readers.nccl_tests.write import text_reader
from advisor.ingest.readers.osu import LAUNCH, OF_A_PAIR, message_of
from advisor.vocabulary.numbers import MOST_RANKS, decimal

FORMAT = "ucc"
SUMMARY = "ucc_perftest of UCC: collectives on host or device memory"
PRIORITY = 43

_SIGN = re.compile(rb"Collective: {1,20}\w[^\n]{1,40}\n[^\n]{0,40}Memory type: ")
_HEAD = re.compile(r"Collective: {1,20}(\w[\w ]{1,30})")
_DTYPE = re.compile(r"Data ?type: {1,20}(\w{1,20})")
_IN_PLACE = re.compile(r"Inplace: {1,20}([01])\b")
_RANK = re.compile(
    r"Rank {1,9}(\d{1,7}) {0,9}: (\S{1,255}) - (\S.{0,80}?)(?: [\da-fA-F:]{7,13}\.\d)?$"
)
_FIGURE = r"\s{1,40}(\d{1,15}\.\d\d)"
_ROW = re.compile(rf"\d{{1,15}}\s{{1,40}}(\d{{1,15}}){_FIGURE * 3}(?:{_FIGURE})?(?:\s|$)")
_OPS = {
    "Allreduce": "all_reduce",
    "Allgather": "all_gather",
    "Alltoall": "all_to_all",
    "Bcast": "broadcast",
    "Reduce": "reduce",
    "Reduce_scatter": "reduce_scatter",
}
_ROUNDED_GBPS = 0.005  # half of the last digit
_MB = 1e3  # MB/s of a GB/s


def parse(lines: Iterable[str], harvest: Harvest) -> None:
    """All tables of one output."""
    op: str | None = None
    ranks: int | None = None
    of: int | None = None
    hosts: tuple[str, ...] | None = None
    device: str | None = None
    in_place: bool | None = None
    dtype, number = "", -1
    places: dict[str, tuple[str, str]] = {}
    for line in map(str.strip, lines):
        if found := LAUNCH.search(line):
            ranks = decimal(found[1], 1, MOST_RANKS)
        elif found := _RANK.match(line):
            places[found[1]] = (found[2], found[3])
        elif found := _HEAD.match(line):  # each start has one table: what is said before is of it
            op, dtype, in_place = _OPS.get(found[1]), "", None
            of = len(places) or ranks
            ranks, said, places = None, places, {}
            hosts = tuple(sorted({host for host, _ in said.values()})) or None
            kinds = {kind for _, kind in said.values()}
            device = kinds.pop() if len(kinds) == 1 else None
            number += 1
            if op is None:
                harvest.notes.append(f"no collective that is compared: {found[1]}")
        elif found := _DTYPE.match(line):
            dtype = found[1]
        elif found := _IN_PLACE.match(line):
            in_place = found[1] == "1"
        elif number >= 0 and (found := _ROW.match(line)):
            size, time_us, busbw = int(found[1]), float(found[2]), float(found[5] or 0)
            if op is None or not time_us:
                harvest.dropped["row that is not compared"] += 1
                continue
            if of is None and op in OF_A_PAIR:
                of = _ranks_of(size, time_us, busbw)
            message = message_of(harvest, op, of, size)
            if message is None:
                continue
            one = Measurement.timed(op, of, message, time_us)
            harvest.add(
                one._replace(
                    dtype=dtype,
                    in_place=in_place,
                    busbw_gbps=busbw or one.busbw_gbps,
                    table=number,
                    hosts=hosts,
                    device=device,
                )
            )


def _ranks_of(size: int, time_us: float, busbw: float) -> int | None:
    """Ranks that exchange ``size`` per pair; None where two numbers round to this bandwidth."""
    each = size / time_us / _MB
    return round(busbw / each) + 1 if busbw and each > 2 * _ROUNDED_GBPS else None


detect, read = text_reader(_SIGN, parse, FORMAT)
