"""Output of all_reduce_bench.py (stas00/ml-engineering) and its kin → ``bench``.

Newer releases print a table of payloads (KiB, MiB, GiB; as KB, MB, GB at first, and powers of two
all the same) with busbw and algbw; older ones, and
DeepSpeed's and the vendors' copies, one payload in GB with both bandwidths on lines below. The
first of all printed each rank's trials (:class:`TrialsOfRanks`).
"""

import re
from collections.abc import Iterable
from statistics import median

from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.ingest.readers.nccl_tests.write import text_reader
from advisor.vocabulary.operations import canonical_op

FORMAT = "torch-bench"
SUMMARY = "all_reduce_bench.py of ml-engineering, and benchmarks that print as it does"
PRIORITY = 42

_SIGN = re.compile(
    rb"average bandwidth of \w{3,20} (?:over|with a)|payload bandwidth of \w{3,20} over"
)
_TABLE = re.compile(r"average bandwidth of (\w{3,20}) over (\d{1,6}) ranks")
_PROFILE = re.compile(r"The ([\d.]{1,12})GiB payload bandwidth of (\w{3,20}) over (\d{1,6}) ranks")
_ONE = re.compile(
    r"average bandwidth of (\w{3,20}) with a ([\d.]{1,12})GB payload "
    r"\(\d{1,6} trials, (\d{1,6}) ranks"
)
_ROW = re.compile(
    r"\|\s{0,9}([\d.]{1,9})(B|[KMGT]i?B)\s{0,9}"
    r"\|\s{0,9}([\d.]{1,12})GBps\s{0,9}\|\s{0,9}([\d.]{1,12})GBps"
)
_TRIAL = re.compile(r"\|\s{0,9}([\d.]{1,12})GBps\s{0,9}\|\s{0,9}([\d.]{1,12})GBps")
_BANDWIDTH = re.compile(r"\s{0,9}(algbw|busbw): ([\d.]{1,12}) GBps")
_DEVICE = re.compile(r"_CudaDeviceProperties\(name='([^']{1,80})'")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


# Its figures are of fp32; "algo throughput" counts sending and receiving, so that busbw is n - 1 of
# its n parts (bigscience/experiments/bandwidth/all_reduce_bench.py).
_OF_A_RANK = re.compile(
    r"\s{0,9}(duration|algo throughput|busbw): ([\d.]{1,24}) {1,3}"
    r"(?:sec|bps, [\d.]{1,20} Gbps|Gbps)\s{0,9}$"
)


def parse(lines: Iterable[str], harvest: Harvest) -> None:
    """All results of one output."""
    device: str | None = None
    number = -1
    op, ranks, size = "", 0, 0.0
    algbw: float | None = None
    for line in lines:
        if found := _DEVICE.search(line):
            device = found[1]
        elif found := _TABLE.search(line):
            op, ranks, size, number = found[1], int(found[2]), 0.0, number + 1
        elif found := _PROFILE.search(line):
            op, ranks, number = found[2], int(found[3]), number + 1
            size = _number(found[1]) * _UNITS["G"]
        elif found := _ONE.search(line):
            op, ranks, number = found[1], int(found[3]), number + 1
            size, algbw = _number(found[2]) * 1e9, None
        elif number < 0:
            continue
        elif found := _ROW.search(line):
            measured = _number(found[1]) * _UNITS[found[2].rstrip("iB")]
            _take(harvest, (op, ranks, device), number, measured, found[4], found[3])
        elif size and (found := _TRIAL.search(line)):
            _take(harvest, (op, ranks, device), number, size, found[2], found[1])
        elif size and (found := _BANDWIDTH.search(line)):
            if found[1] == "algbw":
                algbw = _number(found[2])
            elif algbw:
                _take(harvest, (op, ranks, device), number, size, str(algbw), found[2])


class TrialsOfRanks:
    """What each rank prints of each trial, lines of ranks mixed; in the job's output of NCCL."""

    def __init__(self) -> None:
        self._figures: dict[str, list[float]] = {"duration": [], "algo throughput": [], "busbw": []}
        self._sizes: list[float] = []
        self._before = ""

    def feed(self, line: str) -> bool:
        """Whether it is a line of a trial."""
        found = _OF_A_RANK.match(line)
        if found is not None:
            name, value = found[1], _number(found[2])
            if name == "algo throughput" and self._before == "duration":  # of one rank
                self._sizes.append(value * self._figures["duration"][-1] / 16)
            self._figures[name].append(value)
        self._before = "" if found is None else found[1]
        return found is not None

    def finish(self, harvest: Harvest) -> None:
        """Add each trial's median rank; the first one connects the ranks, and is left out."""
        doubled, busbw = self._figures["algo throughput"], self._figures["busbw"]
        if not self._sizes or not busbw:
            return
        # Of whole lines: where one is cut off, its bandwidth has no counterpart.
        pairs = min(len(doubled), len(busbw))
        idle = 1 - sum(busbw[:pairs]) * 1e9 / (sum(doubled[:pairs]) or 1.0)
        ranks = round(1 / idle) if 0 < idle < 0.6 else 0
        if ranks < 2 or len(busbw) < 2 * ranks:
            harvest.dropped["trial whose ranks are not told"] += len(busbw)
            return
        size = float(f"{median(self._sizes):.3g}")
        for first in range(ranks, len(busbw) - ranks + 1, ranks):
            reached = median(busbw[first : first + ranks]) / 8
            algbw = reached * ranks / (2 * (ranks - 1))
            _take(harvest, ("all_reduce", ranks, None), 0, size, str(algbw), str(reached))


def _take(
    harvest: Harvest,
    kind: tuple[str, int, str | None],
    number: int,
    size: float,
    algbw_text: str,
    busbw_text: str,
) -> None:
    op, ranks, device = kind
    algbw, busbw = _number(algbw_text), _number(busbw_text)
    if not algbw or not busbw or size < 1:
        harvest.dropped["row without a figure"] += 1
        return
    one = Measurement.timed(canonical_op(op) or "unknown", ranks, round(size), size / algbw / 1e3)
    one = one._replace(dtype="float32", table=number, device=device)
    harvest.add(one._replace(algbw_gbps=algbw, busbw_gbps=busbw))


def _number(text: str) -> float:
    """0 for what is no number (``1.2.3``)."""
    try:
        return float(text)
    except ValueError:
        return 0.0


detect, read = text_reader(_SIGN, parse, FORMAT, "torch")
