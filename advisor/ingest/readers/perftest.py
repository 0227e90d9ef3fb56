"""perftest (ib_write_bw, ib_write_lat and their like) → ``bench``: one NIC and another.

A head names the test and the device, then each line has size, iterations and bandwidth, in MiB/s or
Gbit/s, or times in microseconds (perftest_parameters.h of linux-rdma/perftest). Messages of a
bandwidth test follow each other without waiting, so the transfer is all that a line counts: its
size times the iterations. Of a latency test it is the typical time, or the mean where only that is.
"""

import re
from collections.abc import Iterable

from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.ingest.readers.nccl_tests.write import text_reader

FORMAT = "perftest"
SUMMARY = "perftest of one NIC and another: ib_write_bw, ib_write_lat and their like"
PRIORITY = 44

_SIGN = re.compile(rb"#bytes +#iterations +(?:BW peak\[|t_(?:min|avg)\[usec\])")
_DEVICE = re.compile(r"Device {1,20}: (\S{1,80})")
_ADDRESS = re.compile(r"(local|remote) address: (LID \S{1,20})")
_GID = re.compile(r"GID: ((?:\d{1,3}:){15}\d{1,3})")
_HEAD = re.compile(r"#bytes +#iterations +BW peak\[\w{1,3}/sec\] +BW average\[(\w{1,3})/sec\]")
_ROW = re.compile(r"(\d{1,12})\s{1,40}(\d{1,15})\s{1,40}[\d.]{1,16}\s{1,40}(\d{1,12}\.\d{1,6})\b")
_LATENCY_HEAD = re.compile(r"#bytes +#iterations +t_(min|avg)\[usec\]")
_TIME = re.compile(r"(\d{1,12})\s{1,40}\d{1,15}((?:\s{1,40}\d{1,12}\.\d{1,6}){1,7})(?:\s|$)")
_TYPICAL = 2  # of minimum, maximum, typical, mean …
_IPV4_IN_IPV6 = "0:" * 10 + "255:255:"
_BYTES_PER_SECOND = {"MB": 1 << 20, "Gb": 1e9 / 8}
_LEAST_BYTES = 4096
"""Of smaller messages a NIC sends as many as it can count, whatever its links carry."""


def parse(lines: Iterable[str], harvest: Harvest) -> None:
    """All tables of one output."""
    number, unit, device, side = -1, 0.0, "", ""
    column: int | None = None  # of a latency test's times
    ends: dict[str, str] = {}

    def add(one: Measurement) -> None:
        hosts = (f"{device} at {ends['local']}", ends["remote"]) if len(ends) == 2 else None
        harvest.add(one._replace(table=number, hosts=hosts))

    for line in map(str.strip, lines):
        if found := _DEVICE.search(line):
            device, ends = found[1], {}
        elif found := _ADDRESS.match(line):
            side = found[1]
            ends[side] = found[2]
        elif side and (found := _GID.match(line)):
            ends[side] = _address(found[1])
        elif found := _HEAD.match(line):
            number, unit, column = number + 1, _BYTES_PER_SECOND.get(found[1], 0.0), None
        elif found := _LATENCY_HEAD.match(line):
            number, column = number + 1, _TYPICAL if found[1] == "min" else 0
        elif number < 0:
            continue
        elif column is not None and (found := _TIME.match(line)):
            times = [float(word) for word in found[2].split()]
            if column < len(times) and times[column] > 0:
                add(Measurement.timed("send", 2, int(found[1]), times[column]))
        elif column is None and (found := _ROW.match(line)):
            size, rate = int(found[1]), float(found[3]) * unit
            if size < _LEAST_BYTES or not rate:
                harvest.dropped["rate of small messages"] += 1
                continue
            sent = size * int(found[2])
            add(Measurement.timed("send_recv", 2, sent, sent / rate * 1e6))


def _address(gid: str) -> str:
    """A GID as perftest prints it, by its IPv4 address where it has one."""
    numbers = [str(int(number)) for number in gid.split(":")]
    short = ":".join(numbers)
    return ".".join(numbers[-4:]) if short.startswith(_IPV4_IN_IPV6) else short


detect, read = text_reader(_SIGN, parse, FORMAT)
