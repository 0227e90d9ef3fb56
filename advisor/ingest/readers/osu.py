"""OSU Micro-Benchmarks (osu_allreduce, osu_xccl_allreduce, osu_bw …) → ``bench``.

A title names library and operation, then each line has a size and a time (collectives, latency)
or a bandwidth. Ranks are the lines «#Using NCCL», one each, or a launcher's ``-n`` in the output.
Sizes of all_gather and all_to_all are per pair of ranks (c/util of osu-micro-benchmarks 7.5): the
message is that times the ranks.
"""

import re
from collections.abc import Iterable

from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.ingest.readers.nccl_tests.write import text_reader
from advisor.vocabulary.numbers import MOST_RANKS, decimal

FORMAT = "osu"
SUMMARY = "OSU Micro-Benchmarks: collectives and point-to-point, MPI, NCCL or RCCL"
PRIORITY = 41

_TITLE = re.compile(r"#\s{0,4}OSU (.{1,80}?) (Latency|Bandwidth) Test")
_SIGN = re.compile(rb"#\s{0,4}OSU .{1,80} (?:Latency|Bandwidth) Test")
LAUNCH = re.compile(
    r"(?:\b(?:mpirun|mpiexec|srun|mpirun_rsh)\b.{0,300}?|^(?=.{0,600}\b(?:osu|ucc)_\w).{0,300}?)"
    r" -(?:np?|-ntasks[ =]) ?(\d{1,7})\b"
)
_USING = re.compile(r"#\s{0,4}Using [NR]CCL\b")
_ROW = re.compile(r"(\d{1,15})\s{1,40}(\d{1,15}\.\d{1,6})(?:\s|$)")
# By the words of the title; the first that occurs.
_OPS = (
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("all-to-all", "all_to_all"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("bcast", "broadcast"),
    ("reduce_scatter", "reduce_scatter"),
    ("reduce-scatter", "reduce_scatter"),
    ("reduce", "reduce"),
)
OF_A_PAIR = {"all_gather", "all_to_all"}
NO_RANKS = "how many ranks is not said, which sizes per rank need"


def parse(lines: Iterable[str], harvest: Harvest) -> None:
    """All tests of one output."""
    op: str | None = None
    ranks, using, number, of_time = None, 0, -1, True
    for line in lines:
        if found := LAUNCH.search(line):
            ranks, using = decimal(found[1], 1, MOST_RANKS), 0
        elif _USING.match(line.strip()):
            using += 1
        elif found := _TITLE.search(line):
            op, of_time = _op(found[1]), found[2] == "Latency"
            number += 1
            if op is None:
                harvest.notes.append(f"no operation that is compared: OSU {found[1]}")
            size_of = 2 if op in {"send", "send_recv"} else using or ranks
            using = 0
        elif number >= 0 and (found := _ROW.match(line.strip())):
            if op is None:
                harvest.dropped["test that is not compared"] += 1
                continue
            _measure(harvest, op, size_of, number, int(found[1]), float(found[2]), of_time=of_time)


def _op(title: str) -> str | None:
    words = title.lower()
    for word, op in _OPS:
        if word in words:
            return op
    library = words.split()
    if len(library) > 1 or "bi-directional" in words:
        return None
    return "send"  # «OSU MPI-CUDA Latency Test»: nothing between library and test


def _measure(
    harvest: Harvest,
    op: str,
    ranks: int | None,
    number: int,
    size: int,
    value: float,
    *,
    of_time: bool,
) -> None:
    if value <= 0 or (size == 0 and not of_time):
        harvest.dropped["row without a figure"] += 1
        return
    message = message_of(harvest, op, ranks, size)
    if message is None:
        return
    if not of_time:
        op = "send_recv"
    time_us = value if of_time else message / value
    harvest.add(Measurement.timed(op, ranks, message, time_us)._replace(table=number))


def message_of(harvest: Harvest, op: str, ranks: int | None, size: int) -> int | None:
    """The message of sizes per rank (all_gather) or pair; None, and counted, without ranks."""
    if op not in OF_A_PAIR:
        return size
    if ranks is None:
        harvest.dropped["size per rank without the number of ranks"] += 1
        harvest.notes = [*filter(NO_RANKS.__ne__, harvest.notes), NO_RANKS]
        return None
    return size * ranks


detect, read = text_reader(_SIGN, parse, FORMAT)
