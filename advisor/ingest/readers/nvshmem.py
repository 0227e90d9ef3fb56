"""Output of NVSHMEM's perftest → ``bench``: collectives on a stream, puts and gets of two GPUs.

A name stands above each table (print_table_* in perftest/common/utils.cu of NVIDIA/nvshmem):
collectives have size, count, type, time and two bandwidths, the second of which is nccl-tests'
busbw; puts and gets a scope and a bandwidth or a time. Ranks are a launcher's ``-np``, or what
the bandwidths tell of an all-reduce. What one thread block moves inside a kernel is not compared.
"""

import re
from collections.abc import Iterable

from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.ingest.readers.nccl_tests.write import text_reader
from advisor.ingest.readers.osu import LAUNCH
from advisor.vocabulary.numbers import MOST_RANKS, decimal

FORMAT = "nvshmem"
SUMMARY = "perftest of NVSHMEM: collectives on a stream, shmem_put_bw, shmem_get_bw"
PRIORITY = 45

_SIGN = re.compile(rb"(?:^|\n)# {0,10}\w+ *\r?\nsize\(B\) +(?:count +type|scope) ")
_NAME = re.compile(r"# {0,10}(\w{3,40})$")
_HEAD = re.compile(
    r"size\(B\) +(?:count +type .*latency\(us\)|scope +(\w{2,20}) \(([\w/]{2,10})\))"
)
_TIMED = re.compile(
    r"(\d{1,15}) +\d{1,15} +([\w-]{2,12}) .{0,40}?(\d{1,12}\.\d{6}) .{0,60}?(\d{1,9}\.\d{3}) +"
    r"(\d{1,9}\.\d{3})$"
)
_SCOPED = re.compile(r"(\d{1,15}) +(\w{4,12}) +(\d{1,12}\.\d{6})$")
_OPS = {
    "reduction_on_stream": "all_reduce", "fcollect_on_stream": "all_gather",
    "reducescatter_on_stream": "reduce_scatter", "alltoall_on_stream": "all_to_all",
    "broadcast_on_stream": "broadcast", "shmem_put_latency": "send", "shmem_get_latency": "send",
    "shmem_put_bw_uni": "send_recv", "shmem_get_bw_uni": "send_recv",
    "shmem_put_bw": "send_recv", "shmem_get_bw": "send_recv",  # until 3.0
}  # fmt: skip
_FEWER = {"thread", "warp"}  # scopes that leave most of a block idle
_LEAST_RATIO_GBPS = 1.0  # from here on three decimals tell busbw over algbw to a thousandth


def parse(lines: Iterable[str], harvest: Harvest) -> None:
    """All tables of one output."""
    name, unit, number, ranks = "", "us", -1, None
    for line in map(str.strip, lines):
        if found := LAUNCH.search(line):
            ranks = decimal(found[1], 1, MOST_RANKS)
        elif found := _NAME.match(line):
            name = found[1]
        elif found := _HEAD.match(line):
            number, unit = number + 1, found[2] or "us"
            if name not in _OPS:
                harvest.notes.append(f"no test that is compared: {name or 'without a name'}")
        elif number >= 0 and (one := _row(line, _OPS.get(name), unit, ranks)):
            if one.op:
                harvest.add(one._replace(table=number))
            else:
                harvest.dropped["test that is not compared"] += 1


def _row(line: str, op: str | None, unit: str, ranks: int | None) -> Measurement | None:
    """A row of a table; ``op`` is "" where such tests are not compared."""
    if found := _TIMED.match(line):
        size, time_us, algbw, busbw = int(found[1]), *map(float, found.group(3, 4, 5))
        if ranks is None and op == "all_reduce" and algbw >= _LEAST_RATIO_GBPS:
            ranks = round(2 / (2 - busbw / algbw)) if busbw < 2 * algbw else None
        one = Measurement.timed(op or "", ranks, size, time_us)
        return one._replace(dtype=found[2], busbw_gbps=one.busbw_gbps or busbw)
    if (found := _SCOPED.match(line)) and unit in {"us", "GB/sec"} and float(found[3]) > 0:
        size, value = int(found[1]), float(found[3])
        time_us = value if unit == "us" else size / value / 1e3
        compared = "" if found[2].lower() in _FEWER else op or ""
        return Measurement.timed(compared, 2, size, time_us)
    return None


detect, read = text_reader(_SIGN, parse, FORMAT)
