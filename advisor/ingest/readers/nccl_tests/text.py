"""The tables that nccl-tests prints, row by row, however mangled by launchers and other output.

The header line above a table names the columns of one half (out-of-place, then in-place): how many
there are and which is which is taken from it, so old layouts (``error``), new ones (``#wrong``),
``cputime`` and the per-iteration columns of ``-I`` read alike. A row that NCCL's own output breaks
in two is put together again.
"""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass, field
from pathlib import PurePath

from advisor.ingest.readers._text import without_launcher
from advisor.ingest.readers.nccl_tests.file_name import op_in_name
from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement, version_text
from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.operations import canonical_op

_TYPE_NAMES = "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 char int"
_TYPE_NAMES_FP8 = "f8e4m3 f8e5m2 fp8_e4m3 fp8_e5m2"
TYPES = frozenset(f"{_TYPE_NAMES} {_TYPE_NAMES_FP8}".split())
"""Type names that nccl-tests has printed (test_typenames in src/common.cu, all releases)."""

_PREFIX = r":\d{1,10}:\d{1,10} \[-?\d{0,4}\] ?NCCL .*"
_FOREIGN = re.compile(
    r"(?:\[\d{1,9}\]\s|\[\d{4}-\d\d-\d\d [\d:]{1,20}\]\s){0,4}[A-Za-z][\w.\-]{0,255}"
    + _PREFIX
    + r"|\[\d{1,9}\]\s{1,9}\S{1,255}"
    + _PREFIX
    + r"|NCCL version .*"
)
_TIMESTAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s{0,9}$")
_NUMBER = re.compile(
    r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|nan|inf)|N/A", re.IGNORECASE
)
_RANK_LINE = re.compile(
    r"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+\d{1,10}\s+on\b\s{0,9}(\S{0,255})"
)
_DEVICE = re.compile(
    r"\bdevice\s{1,9}\d{1,9}\s{1,9}\[[0-9a-fA-Fx:.]{1,32}\]\s{1,9}(\S(?:.{0,98}\S)?)\s{0,9}$"
)
_PROGRAM = re.compile(
    r"\b((?:all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|"
    r"gather|scatter|sendrecv|hypercube)_perf)\b"
)
_LIBRARY = re.compile(r"nccl-library=(\d+)")
_LAYOUT = re.compile(r"#\s+size\s+count\s")
MAX_ROWS = 500_000
_MOST_DIGITS, _FIGURES = 18, 3
"""Of a size; and how many figures make a line a row although its size is damaged."""
_NULL_HALF_SPACES = 25  # writeBenchMarkLineNullBody prints 32 spaces for a half without figures


@dataclass
class _Row:
    size_bytes: int
    dtype: str
    values: list[str]
    starts_in_place: bool = False
    finished: bool = False


@dataclass
class _Table:
    columns: list[str]
    op: str | None
    ranks: int | None
    rows: list[_Row] = field(default_factory=list)


class TableParser:
    """Feed it the lines of a file, then take :meth:`finish`."""

    def __init__(self, path: PurePath | None = None) -> None:
        self._path = path
        self._tables: list[_Table] = []
        self._groups: dict[str, set[int]] = {}
        self._program: str | None = None
        self._harvest = Harvest()
        self._pending: _Row | None = None
        self._devices_open = False
        self._rows = 0

    def feed(self, line: str) -> bool:
        """Take one line (without colours); True when it belonged to nccl-tests."""
        if "NCCL " in line and self._pending is None and _only_prefix(line):
            return False
        text = _TIMESTAMP.sub("", _FOREIGN.sub("", without_launcher(line)))
        stripped = text.strip()
        if not stripped:
            return False
        if stripped.startswith("#"):
            return self._comment(stripped)
        if (row := self._row_start(text)) is not None:
            self._close_pending()
            self._rows += 1
            if self._rows > MAX_ROWS:
                self._harvest.drop("over the bound of kept rows")
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
        return False

    def finish(self) -> Harvest:
        """Everything read; what no line names is inferred from the file name and the figures."""
        self._close_pending()
        for table in self._tables:
            self._take(table)
        return self._harvest

    def _comment(self, text: str) -> bool:
        if _LAYOUT.match(text):
            self._close_pending()
            self._devices_open = False
            names = text.lstrip("# ").split()
            self._tables.append(
                _Table(_half_columns(names), canonical_op(self._program or ""), self._ranks())
            )
            return True
        if found := _RANK_LINE.match(text):
            if not self._devices_open:
                self._groups, self._devices_open = {}, True
            self._groups.setdefault(found[2] or "0", set()).add(int(found[1]))
            self._harvest.hosts.add(found[3])
            if device := _DEVICE.search(text):
                self._harvest.devices.add(device[1])
            return True
        if found := _LIBRARY.search(text):
            self._harvest.nccl_version = version_text(int(found[1][:9]))
        if found := _PROGRAM.search(text):
            self._program = None if "concluded" in text else found[1]
        if text.startswith(("# Out of bounds values", "# nThread", "# nthread")):
            self._close_pending()
        return text.startswith(("# nThread", "# nccl-tests", "# Collective test"))

    def _ranks(self) -> int | None:
        first = next(iter(self._groups.values()), None)
        return len(first) if first else None

    def _row_start(self, text: str) -> _Row | None:
        tokens = text.split()
        if len(tokens) < 3 or tokens[2] not in TYPES:
            return None
        if not tokens[1].isdecimal():
            return None
        has_size = tokens[0].isdecimal() and len(tokens[0]) <= _MOST_DIGITS
        if not has_size and sum(map(_is_number, tokens[3:])) < _FIGURES:
            return None
        if not self._tables:
            self._harvest.drop("row without a header line")
            return None
        if not has_size:
            self._close_pending()
            self._harvest.drop("row without a size")
            return None
        rest = tokens[3:]
        after = text[text.index(tokens[2], text.index(tokens[1])) + len(tokens[2]) :]
        if rest and not _is_number(rest[0]):
            after = after[after.index(rest[0]) + len(rest[0]) :]
            rest = rest[1:]
        if rest and self._has_root(rest):
            after = after[after.index(rest[0]) + len(rest[0]) :]
            rest = rest[1:]
        gap = len(after) - len(after.lstrip())
        return _Row(int(tokens[0]), tokens[2], rest, bool(rest) and gap >= _NULL_HALF_SPACES)

    def _has_root(self, rest: list[str]) -> bool:
        """Layouts to 2021 print a root only where the operation has one: the header tells."""
        return "root" in self._tables[-1].columns and bool(re.fullmatch(r"-?\d{1,6}", rest[0]))

    def _settle(self, row: _Row) -> None:
        if len(row.values) >= self._needed(row):
            row.finished = True
            self._pending = None

    def _needed(self, row: _Row) -> int:
        width = len(_figures(self._tables[-1].columns))
        return width if row.starts_in_place else 2 * width

    def _close_pending(self) -> None:
        self._pending = None

    def _take(self, table: _Table) -> None:
        op = self._op_of(table)
        figures = _figures(table.columns)
        width = len(figures)
        for row in table.rows:
            halves = [row.values[:width], row.values[width : 2 * width]]
            places = (True,) if row.starts_in_place else (False, True)
            whole = [half for half in halves if len(half) == width][: len(places)]
            if len(whole) < len(places):
                self._harvest.drop("row cut", len(places) - len(whole))
            for in_place, half in zip(places, whole, strict=False):
                values = dict(zip(figures, half, strict=True))
                time_us = _number(values.get("time") or values.get("cputime"))
                algbw = _number(values.get("algbw"))
                if time_us is None and algbw is None:
                    continue  # N/A: this op has no such half, nothing was lost
                self._harvest.measurements.append(
                    Measurement(
                        op,
                        table.ranks,
                        row.size_bytes,
                        row.dtype,
                        in_place,
                        time_us,
                        algbw,
                        _number(values.get("busbw")),
                        _count(values.get("#wrong")),
                    )
                )

    def _op_of(self, table: _Table) -> str:
        if table.op is not None:
            return table.op
        named = op_in_name(self._path)
        factor = _factor(table)
        if named is not None and (
            factor is None
            or table.ranks is None
            or math.isclose(bus_factor(named, table.ranks) or 0.0, factor, rel_tol=0.03)
        ):
            return named
        ranks = table.ranks or 0
        if factor is not None and ranks > 2:  # with 2 ranks all_reduce's factor is 1 like others'
            expected = bus_factor("all_reduce", ranks) or 0.0
            return "all_reduce" if math.isclose(expected, factor, rel_tol=0.03) else self._unknown()
        return self._unknown()

    def _unknown(self) -> str:
        self._harvest.notes.append("the operation of a table is not named: stored as 'unknown'")
        return "unknown"


def _is_number(token: str) -> bool:
    return _NUMBER.fullmatch(token) is not None


def _only_prefix(line: str) -> bool:
    """Whether too little stands before NCCL's prefix for the beginning of a row."""
    before, _, _ = line.partition("NCCL ")
    return len(before.split(None, 5)) < 5


def _half_columns(names: list[str]) -> list[str]:
    """The columns up to the second ``time``: the row's own, then those of one half."""
    first = next((i for i, name in enumerate(names) if name in {"time", "cputime"}), len(names))
    second = next(
        (i for i in range(first + 1, len(names)) if names[i] in {"time", "cputime"}), len(names)
    )
    return names[:second]


def _figures(columns: list[str]) -> list[str]:
    first = next((i for i, name in enumerate(columns) if name in {"time", "cputime"}), 0)
    return [name for name in columns[first:] if name != "timestamp"] or ["time"]


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _count(text: str | None) -> int | None:
    value = _number(text)
    return None if value is None else int(value)


def _factor(table: _Table) -> float | None:
    figures = _figures(table.columns)
    if "algbw" not in figures or "busbw" not in figures:
        return None
    ratios = []
    for row in table.rows:
        values = dict(zip(figures, row.values, strict=False))
        algbw, busbw = _number(values.get("algbw")), _number(values.get("busbw"))
        if algbw is not None and busbw is not None and algbw >= 1:
            ratios.append(busbw / algbw)
    return statistics.median(ratios) if ratios else None
