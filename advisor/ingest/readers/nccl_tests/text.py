"""The tables that nccl-tests prints, row by row, however mangled by launchers and other output.

The header line above a table names the columns of one half (out-of-place, then in-place): how many
there are and which is which is taken from it, so old layouts (``error``), new ones (``#wrong``),
``cputime`` and the per-iteration columns of ``-I`` read alike. A row that NCCL's own output breaks
in two is put together again.
"""

import math
import re
from pathlib import PurePath

from advisor.ingest.readers._text import without_launcher
from advisor.ingest.readers.nccl_tests.file_name import op_in_name
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.readers.nccl_tests.table import Devices, Row, Table, half_columns
from advisor.model.nccl.version import format_version, version_of_code
from advisor.vocabulary.numbers import INT64_MAX, decimal, real
from advisor.vocabulary.operations import canonical_op

_HALF = ("time", "algbw", "busbw")
_ROUNDING_GBPS = 0.006  # two decimals
_ROUNDING = 0.01  # of a time with three digits
_COUNT = re.compile(r"\d+|N/A")

_TYPE_NAMES = "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 char int"
_TYPE_NAMES_FP8 = "f8e4m3 f8e5m2 fp8_e4m3 fp8_e5m2"
TYPES = frozenset(f"{_TYPE_NAMES} {_TYPE_NAMES_FP8}".split())
"""Type names that nccl-tests has printed (test_typenames in src/common.cu, all releases)."""

_PREFIX = r":\d{1,10}:\d{1,10} \[-?\d{0,4}\] ?NCCL .*"
_FOREIGN = re.compile(
    r"(?:\[\d{1,9}\]\s|\[\d{4}-\d\d-\d\d [\d:]{1,20}\]\s){0,4}"
    r"(?:(?<!\S)\d|[A-Za-z])[\w.\-]{0,255}"
    + _PREFIX
    + r"|\[\d{1,9}\]\s{1,9}\S{1,255}"
    + _PREFIX
    + r"|NCCL version .*"
)
# Of the rank, before each piece that a launcher passed on; Open MPI's is of --tag-output.
_TAG = re.compile(r"\[\d{1,6}\](?:\s|$)|\[\d{1,6},\d{1,6}\]<std(?:out|err)>:")
_TIMESTAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s{0,9}$")
_NUMBER = re.compile(
    r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|nan|inf)|N/A", re.IGNORECASE
)
# Where a header was pasted into a report, the # that begin its lines are often lost.
_RANK_LINE = re.compile(
    r"(?:#\s+)?Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?"
    r"(?:Pid\s+\d{1,10}\s+on\b\s{0,10}(\S{0,255})|on\s{1,10}(\S{1,255})\s{1,9}device\b)"
)
_SOME_RANK_LINE = re.compile(r"#\s+Rank\s.{1,200}\bdevice\s{1,9}\d")
_DEVICE = re.compile(
    r"\bdevice\s{1,9}\d{1,9}\s{1,9}\[[0-9a-fA-Fx:.]{1,32}\]\s{1,9}(\S(?:.{0,98}\S)?)\s{0,9}$"
)
_PROGRAM = re.compile(
    r"\b((?:all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|"
    r"gather|scatter|sendrecv|hypercube)_perf)\b"
)
# Before the program's name the processes, behind it what each of them starts.
_PROCESSES = re.compile(
    r"\b(?:mpi(?:run|exec)|srun|prun)\b.* (?:-np?|-c|--ntasks)[ =]{1,3}(\d{1,6})\s"
)
_OF_PROCESS = re.compile(r"\s(?:-[gt]|--ngpus|--nthreads)[ =]{1,3}(\d{1,4})\b")
_LIBRARY = re.compile(r"nccl-library=(\d+)")
_LAYOUT = re.compile(r"(?:#\s+)?size\s+count\s+(?:type|time)\b")
_HALVES = re.compile(r"(?:#\s+)?in-place\s+out-of-place$")
_SETTINGS = re.compile(r"(?:#\s+)?n[Tt]hreads? \d{1,6} n[Gg]pus ")
_ENDS = ("# Out of bounds values", "# Avg bus bandwidth", "# Errors with asterisks")
MAX_ROWS = 500_000
_FIGURES = 3
"""So many make a line a row although its size is damaged."""
_NULL_HALF_SPACES = 25  # writeBenchMarkLineNullBody prints 32 spaces for a half without figures


class TableParser:
    """Feed it the lines of a file, then take :meth:`finish`."""

    def __init__(self, path: PurePath | None = None) -> None:
        self._path = path
        self._tables: list[Table] = []
        self._devices = Devices()
        self._program: str | None = None
        self._harvest = Harvest()
        self._pending: Row | None = None
        self._in_place_first = False
        self._devices_open = False
        self.rows = 0

    def feed(self, line: str) -> bool:
        """Take one line (without colours); True when it belonged to nccl-tests."""
        if "NCCL " in line and self._pending is None and _only_prefix(line):
            return False
        text = self._devices.before_host(line) if "NCCL " in line else line
        text = _TIMESTAMP.sub("", _FOREIGN.sub("", without_launcher(text)))
        stripped = text.strip()
        if not stripped:
            return False
        if stripped.startswith("#") or _is_header(stripped):
            return self._comment(stripped)
        if (row := self._row_start(text)) is not None:
            self._pending = None
            self.rows += 1
            if self.rows > MAX_ROWS:
                self._harvest.dropped["over the bound of kept rows"] += 1
                return True
            self._tables[-1].rows.append(row)
            self._pending = row
            self._settle(row)
            return True
        tokens = stripped.split()
        if self._pending is not None and all(map(_is_number, tokens)):
            self._pending.values += tokens
            self._settle(self._pending)
            return True
        if found := _PROGRAM.search(text):
            self._program = found[1]
            if processes := _PROCESSES.search(text[: found.start()]):
                each = map(int, _OF_PROCESS.findall(text[found.end() :]))
                self._devices = Devices(started=math.prod(each, start=int(processes[1])))
        return False

    def finish(self) -> Harvest:
        """Everything read; what no line names is inferred from the file name and the figures."""
        named = op_in_name(self._path)
        for table in self._tables:
            table.keep_sound(self._harvest.dropped)
        told = [table.op_told(named) for table in self._tables]
        pairs = list(zip(self._tables, told, strict=True))
        for number, (table, op) in enumerate(pairs):
            # The figures of small messages are rounded: the tables around them may be of one.
            others = {other for like, other in pairs if other and like.reduces == table.reduces}
            told[number] = op or (others.pop() if len(others) == 1 else None)
            table.measured(number, told[number], self._harvest)
        unnamed = sum(
            op is None and bool(table.rows) for op, (table, _) in zip(told, pairs, strict=True)
        )
        if unnamed:
            tables = "a table" if unnamed == 1 else f"{unnamed} tables"
            self._harvest.notes.append(
                f"the operation of {tables} is not named: stored as 'unknown'"
            )
        return self._harvest

    def _comment(self, text: str) -> bool:
        if _LAYOUT.match(text):
            self._pending = None
            self._devices_open = False
            return self._begin(text.lstrip("# ").split())
        if found := _RANK_LINE.match(text):
            if not self._devices_open:
                self._devices, self._devices_open = Devices(started=self._devices.started), True
            group = found[2] or "0"
            self._devices.see(group, int(found[1]), found[3] or found[4] or "")
            if device := _DEVICE.search(text):
                self._devices.names.add(device[1])
            return True
        if _SOME_RANK_LINE.match(text):
            self._harvest.dropped["rank out of range"] += 1
            self._devices.unknown += self._devices_open
            return True
        if found := _LIBRARY.search(text):
            self._harvest.nccl_version = format_version(version_of_code(int(found[1][:9])))
        if found := _PROGRAM.search(text):
            ended = "concluded" in text
            if ended and self._tables and self._tables[-1].op is None:
                self._tables[-1].op = canonical_op(found[1])
            self._program = None if ended else found[1]
        if text.startswith(_ENDS):
            self._pending = None
            if self._tables:
                self._tables[-1].end(text)
            return True
        if _HALVES.match(text) or "out-of-place" in text:
            self._in_place_first = _HALVES.match(text) is not None
        if settings := _SETTINGS.match(text) is not None:
            self._pending = None
        return settings or text.startswith(("# nccl-tests", "# Collective test")) or "algbw" in text

    def _begin(self, names: list[str] | None) -> bool:
        if names is not None:
            op = canonical_op(self._program or "")
            columns = half_columns(names)
            self._tables.append(Table(columns, op, self._devices, self._in_place_first))
        return names is not None

    def _row_start(self, text: str) -> Row | None:
        text = _TAG.sub(" ", text)
        tokens = text.split()
        if self._tables and not self._tables[-1].has_type and all(map(_is_number, tokens)):
            tokens[2:2] = [""]  # MSCCL++'s test prints none
        if len(tokens) < 3 or (tokens[2] and tokens[2] not in TYPES):
            return None
        if not tokens[1].isdecimal():
            return None
        size = decimal(tokens[0], most=INT64_MAX)
        if size is None and sum(map(_is_number, tokens[3:])) < _FIGURES:
            return None
        rest = tokens[3:]
        if not self._tables and not self._begin(_columns_of(size or 0, rest)):
            self._harvest.dropped["row without a header line"] += 1
            return None
        if size is None:
            self._pending = None
            self._harvest.dropped["row without a size"] += 1
            return None
        if not tokens[2]:
            return Row(size, "", rest)
        after = text[text.index(tokens[2], text.index(tokens[1])) + len(tokens[2]) :]
        reduces = root = None
        if rest and not _is_number(rest[0]):
            reduces = rest[0] != "none"
            after = after[after.index(rest[0]) + len(rest[0]) :]
            rest = rest[1:]
        if rest and self._has_root(rest):
            root = int(rest[0])
            after = after[after.index(rest[0]) + len(rest[0]) :]
            rest = rest[1:]
        gap = len(after) - len(after.lstrip())
        return Row(size, tokens[2], rest, bool(rest) and gap >= _NULL_HALF_SPACES, reduces, root)

    def _has_root(self, rest: list[str]) -> bool:
        """Layouts to 2021 print a root only where the operation has one: the header tells."""
        return self._tables[-1].has_root and bool(re.fullmatch(r"-?\d{1,6}", rest[0]))

    def _settle(self, row: Row) -> None:
        if len(row.values) >= self._needed(row):
            self._pending = None

    def _needed(self, row: Row) -> int:
        width = len(self._tables[-1].figures)
        return width if row.starts_in_place else 2 * width


def _is_header(text: str) -> bool:
    lines = (_LAYOUT, _RANK_LINE, _SETTINGS)
    return "algbw" in text or any(line.match(text) for line in lines)


def _is_number(token: str) -> bool:
    return _NUMBER.fullmatch(token) is not None


def _only_prefix(line: str) -> bool:
    """Whether too little stands before NCCL's prefix for the beginning of a row."""
    before, _, _ = line.partition("NCCL ")
    return len(before.split(None, 5)) < 5


def _columns_of(size_bytes: int, after_type: list[str]) -> list[str] | None:
    """The names of a row's columns up to the end of its first half, as a header has them.

    For rows above which none stands, as where the end of an output was copied. ``after_type`` are
    its words behind the type; None where they are no row of nccl-tests: a half begins with a time
    and two bandwidths, the first of which is the size over that time (its doc/PERFORMANCE.md).
    """
    names = ["size", "count", "type"]
    words = list(after_type)
    if words and words[0].isalpha():
        names, words = [*names, "redop"], words[1:]
    for head in ([], ["root"]):
        figures = words[len(head) :]
        width, odd = divmod(len(figures), 2)
        if odd or not 0 <= width - len(_HALF) <= 1:
            continue
        first, second = figures[:width], figures[width:]
        if _fits(size_bytes, first) and (_fits(size_bytes, second) or "N/A" in second[:1]):
            return [*names, *head, *_HALF, *_checks(first[len(_HALF) :])]
    return None


def _fits(size_bytes: int, half: list[str]) -> bool:
    time_us, algbw, busbw = map(real, half[: len(_HALF)])
    if time_us is None or algbw is None or busbw is None or time_us <= 0:
        return False
    expected = size_bytes / time_us / 1e3
    return abs(algbw - expected) <= _ROUNDING_GBPS + _ROUNDING * expected


def _checks(values: list[str]) -> list[str]:
    """The heading of what the check of results found: a count, or until 2021 a difference."""
    return ["#wrong" if _COUNT.fullmatch(value) else "error" for value in values]
