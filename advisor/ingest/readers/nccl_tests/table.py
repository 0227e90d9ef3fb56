"""One printed table: its columns, the ranks above it and its rows, into measurements.

What its lines do not name is read off its figures: bus over algorithm bandwidth is a factor of the
operation and the ranks (doc/PERFORMANCE.md of nccl-tests).
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.numbers import INT64_MAX, decimal, real

# What an error may come to before nccl-tests counts the row as wrong: DeltaMaxValue of its
# releases to 2021 (src/common.cu; half as in ROCm's), whose tables print the difference, no count.
_MOST_ERROR = {"half": 5e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}
_TIMES = {"time", "cputime"}
_ROUNDING = 0.005  # bandwidths have two decimals
# Whether a table's rows reduce and have a root, by operation (*RunTest in nccl-tests' src/*.cu).
_OF_FORM: dict[tuple[bool | None, bool], tuple[str, ...]] = {
    (False, False): ("all_gather", "all_to_all"),
    (True, False): ("reduce_scatter", "send_recv"),
    (False, True): ("broadcast",),
}
_PROCESS = re.compile(r"(?<![\w.\-])([\w.\-]{1,255}):\d{1,10}:\d{1,10} \[")  # of NCCL's line
_MORE_RANKS = 4.0  # times their uncertainty lies between the factors of n and n + 1 ranks


@dataclass
class Row:
    """A line of figures, or the parts of one that other output broke in two."""

    size_bytes: int
    dtype: str
    values: list[str]
    starts_in_place: bool = False
    reduces: bool | None = None
    """Whether it names a reduction; None where the column is not there."""
    root: int | None = None


@dataclass
class Devices:
    """The list of ranks above a table, by group."""

    ranks: dict[str, set[int]] = field(default_factory=dict)
    hosts: dict[str, set[str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    listed: Counter[tuple[str, int]] = field(default_factory=Counter)
    unknown: int = 0  # lines whose rank cannot be used
    started: int | None = None
    """Ranks that the line which started the program asks for."""
    _all_hosts: set[str] = field(default_factory=set)

    def see(self, group: str, rank: int, host: str) -> None:
        """One line of the list."""
        self.ranks.setdefault(group, set()).add(rank)
        self.hosts.setdefault(group, set()).add(host)
        self._all_hosts.add(host)
        self.listed[group, rank] += 1

    def before_host(self, line: str) -> str:
        """What stands before NCCL's message: a figure may end where the host's name begins, without
        a space, and the name with a digit (a container's).
        """
        found = _PROCESS.search(line)
        name = found[1] if found else ""
        known = next((i for i in range(len(name)) if name[i:] in self._all_hosts), None)
        return line if found is None or known is None else line[: found.start() + known]

    @property
    def apart(self) -> int | None:
        """How many processes list the same rank, each for itself; None where one does."""
        most = max(self.listed.values(), default=1)
        return most if most > 1 else None

    @property
    def size(self) -> int | None:
        """Ranks of the first group, with those that the list leaves out or has no number of."""
        first = next(iter(self.ranks.values()), None)
        return max(max(first) + 1, len(first) + self.unknown) if first else None

    @property
    def listed_hosts(self) -> tuple[str, ...] | None:
        """The first group's hosts; None where the list leaves ranks out, or processes have each
        a list of their own.
        """
        group, first = next(iter(self.ranks.items()), ("", set[int]()))
        whole = first and len(first) == self.size and self.apart is None
        return tuple(sorted(self.hosts[group])) if whole else None

    @property
    def name(self) -> str | None:
        """The GPUs' name where they have one."""
        return next(iter(self.names)) if len(self.names) == 1 else None


@dataclass
class Table:
    """``columns`` of one half; ``op`` as the program's name says it, if any line does."""

    columns: list[str]
    op: str | None
    devices: Devices
    in_place_first: bool = False
    rows: list[Row] = field(default_factory=list)
    _ends: int = 0
    _repeats: bool = False
    _all_right: bool = False

    def end(self, text: str) -> None:
        """A line below the rows; where several processes print, others' rows may follow."""
        if text.startswith("# Out of bounds values"):
            self._all_right = text.rstrip().endswith(" 0 OK")
        elif text.startswith("# Avg bus bandwidth"):
            if not self._ends:
                sizes = [(row.size_bytes, row.dtype) for row in self.rows]
                self._repeats = len(set(sizes)) < len(sizes)
            self._ends += 1

    @property
    def apart(self) -> int | None:
        """How many processes measured each by itself: each lists the same rank, or ends the table
        in which their rows stand among each other. None where one did.
        """
        return self.devices.apart or (self._ends if self._repeats and self._ends > 1 else None)

    @cached_property
    def has_root(self) -> bool:
        """Whether rows may have a root, as in layouts to 2021."""
        return "root" in self.columns

    @cached_property
    def has_type(self) -> bool:
        """Whether rows name their type."""
        return "type" in self.columns

    @cached_property
    def figures(self) -> list[str]:
        """The columns of figures of one half; a damaged heading may have thousands."""
        first = next((i for i, name in enumerate(self.columns) if name in _TIMES), 0)
        return [name for name in self.columns[first:] if name != "timestamp"] or ["time"]

    def keep_sound(self, dropped: Counter[str]) -> None:
        """Leave out rows whose figures stand below the headings of others."""
        sound = [row for row in self.rows if not self._is_shifted(row)]
        if len(sound) < len(self.rows):
            dropped["row with more figures than columns"] += len(self.rows) - len(sound)
            self.rows = sound

    def measured(self, number: int, op: str | None, harvest: Harvest) -> None:
        """Add the table's measurements of an operation to ``harvest``."""
        factor = self._factor()
        ranks = self.devices.size or self._started(op, factor) or _ranks(op, factor)
        for row in self.rows:
            places = (True,) if row.starts_in_place else (False, True)[: self._halves_printed]
            if self.in_place_first:  # where it has no other half, nothing stands for it
                places = (True, False)[: max(1, len(row.values) // len(self.figures))]
            whole = self._halves(row)[: len(places)]
            if len(whole) < len(places):
                harvest.dropped["row cut"] += len(places) - len(whole)
            for in_place, values in zip(places, whole, strict=False):
                time_us, algbw, busbw = (
                    _figure(values, name, harvest.dropped)
                    for name in ("time" if "time" in values else "cputime", "algbw", "busbw")
                )
                if time_us is None and algbw is None:
                    continue  # N/A: this op has no such half, nothing was lost
                harvest.add(
                    Measurement(
                        op or "unknown",
                        ranks,
                        row.size_bytes,
                        row.dtype,
                        in_place,
                        time_us,
                        algbw,
                        busbw,
                        self._wrong(values, row.dtype),
                        number,
                        self.devices.listed_hosts,
                        self.devices.name,
                        self.apart,
                    )
                )

    def _started(self, op: str | None, factor: tuple[float, float] | None) -> int | None:
        """The ranks asked for, unless the figures are of another number: each by itself."""
        expected = bus_factor(op or "", self.devices.started)
        differs = factor is None or expected is None or abs(expected - factor[0]) > 2 * factor[1]
        return None if factor is not None and differs else self.devices.started

    @cached_property
    def _halves_printed(self) -> int:
        """One where a whole table has no figures in place: another program's table of this form."""
        width = len(self.figures)
        return 1 if self._ends and all(len(row.values) <= width for row in self.rows) else 2

    @property
    def reduces(self) -> bool | None:
        """What its rows say alike of a reduction."""
        said = {row.reduces for row in self.rows}
        return said.pop() if len(said) == 1 else None

    def _is_shifted(self, row: Row) -> bool:
        """A figure too many: those behind it stand below the headings of others."""
        width = len(self.figures) * (1 if row.starts_in_place else 2)
        return any(text == "N/A" or real(text) is not None for text in row.values[width:])

    def _halves(self, row: Row) -> list[dict[str, str]]:
        width = len(self.figures)
        halves = (row.values[:width], row.values[width : 2 * width])
        return [dict(zip(self.figures, half, strict=True)) for half in halves if len(half) == width]

    def _wrong(self, values: dict[str, str], dtype: str) -> int | None:
        """Of differences the table's last line says whether one counts: an all-to-all in place has
        some, for it has no such half.
        """
        if "#wrong" in values:
            # No whole number is a time, where the row was cut.
            return decimal(values["#wrong"], most=INT64_MAX)
        error = real(values.get("error"))
        if error is None:
            return None
        return int(not self._all_right and error > _MOST_ERROR.get(dtype, 0.0))

    def _factor(self) -> tuple[float, float] | None:
        """busbw / algbw and its uncertainty, of the row whose bandwidth is highest."""
        pairs = [
            (algbw, busbw)
            for row in self.rows
            for values in self._halves(row)
            if (algbw := real(values.get("algbw"))) is not None and algbw >= 1
            if (busbw := real(values.get("busbw"))) is not None and busbw > 0
        ]
        if not pairs:
            return None
        algbw, busbw = max(pairs)
        return busbw / algbw, busbw / algbw * (_ROUNDING / algbw + _ROUNDING / busbw)

    def op_told(self, named: str | None) -> str | None:
        """By the program's name, else by its file's (``named``) or by its figures."""
        if self.op is not None:
            return self.op
        factor, ranks = self._factor(), self.devices.size

        def fits(op: str) -> bool:
            expected = bus_factor(op, ranks) or 0.0
            return factor is not None and math.isclose(expected, factor[0], rel_tol=0.03)

        if named is not None and (factor is None or ranks is None or fits(named)):
            return named
        # With 2 ranks all_reduce's factor is 1 like others'; above, no other has more than 1.
        if ranks is None:
            return "all_reduce" if factor is not None and factor[0] > 1 + factor[1] else None
        if ranks > 2 and fits("all_reduce"):
            return "all_reduce"
        alike = _OF_FORM.get((self.reduces, any((row.root or 0) >= 0 for row in self.rows)), ())
        possible = [op for op in alike if ranks > 2 and fits(op) and op in self._in_place()]
        return possible[0] if len(possible) == 1 else None

    def _in_place(self) -> frozenset[str]:
        """The operations that may look so in place: of some N/A stands for a result, as they have
        none, and where results are checked and right it is one that has.
        """
        both = [half for half in map(self._halves, self.rows) if len(half) > 1]
        checks = {tuple(half.get("#wrong", "") for half in row) for row in both}
        if checks == {("0", "N/A")}:
            return frozenset(("all_to_all", "send_recv"))
        sound = checks == {("0", "0")}
        return frozenset(("all_gather", "reduce_scatter", "broadcast") if sound else ())


def _ranks(op: str | None, factor: tuple[float, float] | None) -> int | None:
    """The ranks that the factor means; None where two numbers of them may."""
    if op is None or factor is None:
        return None
    most = bus_factor(op, 1 << 30)  # what it tends to
    one = bus_factor(op, 1)
    if most is None or one == most or factor[0] >= most:
        return None
    ranks = round(most / (most - factor[0]))
    here, next_one = bus_factor(op, ranks), bus_factor(op, ranks + 1)
    if here is None or next_one is None or ranks < 2:
        return None
    sure = next_one - here > _MORE_RANKS * factor[1] and abs(here - factor[0]) <= 2 * factor[1]
    return ranks if sure else None


def half_columns(names: list[str]) -> list[str]:
    """The columns up to the second ``time``: the row's own, then those of one half."""
    first = next((i for i, name in enumerate(names) if name in _TIMES), len(names))
    second = next((i for i in range(first + 1, len(names)) if names[i] in _TIMES), len(names))
    return names[:second]


def _figure(values: Mapping[str, str], name: str, dropped: Counter[str]) -> float | None:
    """A row's figure; one that is there and no number is counted by its name."""
    found = real(values.get(name))
    if found is None and values.get(name, "N/A").upper() != "N/A":
        dropped[f"{name} out of range"] += 1
    return found
