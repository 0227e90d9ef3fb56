"""perftest (ib_write_bw, ib_read_bw, ib_send_bw) → ``bench``: what one NIC carries to another.

A head names the test and the device, then each line has size, iterations and bandwidth, in MiB/s or
Gbit/s (perftest_resources.c of linux-rdma/perftest). Messages follow each other without waiting, so
the transfer is all that a line counts: its size times the iterations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.ingest.readers.nccl_tests.write import read_benchmark
from advisor.ingest.source import ReadContext, Source

FORMAT = "perftest"
SUMMARY = "perftest of one NIC and another: ib_write_bw, ib_read_bw, ib_send_bw"
PRIORITY = 44

_SIGN = re.compile(rb"#bytes +#iterations +BW peak\[")
_DEVICE = re.compile(r"Device {1,20}: (\S{1,80})")
_ADDRESS = re.compile(r"(local|remote) address: (LID \S{1,20})")
_GID = re.compile(r"GID: ((?:\d{1,3}:){15}\d{1,3})")
_HEAD = re.compile(r"#bytes +#iterations +BW peak\[\w{1,3}/sec\] +BW average\[(\w{1,3})/sec\]")
_ROW = re.compile(r"(\d{1,12})\s{1,40}(\d{1,15})\s{1,40}[\d.]{1,16}\s{1,40}(\d{1,12}\.\d{1,6})\b")
_IPV4_IN_IPV6 = "0:" * 10 + "255:255:"
_BYTES_PER_SECOND = {"MB": 1 << 20, "Gb": 1e9 / 8}
_LEAST_BYTES = 4096
"""Of smaller messages a NIC sends as many as it can count, whatever its links carry."""


def detect(source: Source) -> bool:
    """The head of a table of bandwidths."""
    return _SIGN.search(source.head) is not None


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Write ``bench`` rows; rates of small messages are counted as dropped."""
    for source in sources:
        read_benchmark(source, context, parse, FORMAT, FORMAT)


def parse(lines: Iterable[str], harvest: Harvest) -> None:
    """All tables of one output."""
    number, unit, device, side = -1, 0.0, "", ""
    ends: dict[str, str] = {}
    for line in map(str.strip, lines):
        if found := _DEVICE.search(line):
            device, ends = found[1], {}
        elif found := _ADDRESS.match(line):
            side = found[1]
            ends[side] = found[2]
        elif side and (found := _GID.match(line)):
            ends[side] = _address(found[1])
        elif found := _HEAD.match(line):
            number, unit = number + 1, _BYTES_PER_SECOND.get(found[1], 0.0)
        elif number >= 0 and (found := _ROW.match(line)):
            size, rate = int(found[1]), float(found[3]) * unit
            if size < _LEAST_BYTES or not rate:
                harvest.dropped["rate of small messages"] += 1
                continue
            sent = size * int(found[2])
            one = Measurement.timed("send_recv", 2, sent, sent / rate * 1e6)
            hosts = (f"{device} at {ends['local']}", ends["remote"]) if len(ends) == 2 else None
            harvest.add(one._replace(table=number, hosts=hosts))


def _address(gid: str) -> str:
    """A GID as perftest prints it, by its IPv4 address where it has one."""
    numbers = [str(int(number)) for number in gid.split(":")]
    short = ":".join(numbers)
    return ".".join(numbers[-4:]) if short.startswith(_IPV4_IN_IPV6) else short
