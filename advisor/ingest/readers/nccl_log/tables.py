"""The TUNING subsystem: predicted-time tables (three layouts), the enabled matrix, choices.

Tables are read by the headings above their columns; the third block of 2.23 and later has nine
headings and three cells (PAT offers only one protocol slot per heading group), so cells are
assigned by position within the algorithms that the block names.
"""

import re
from functools import lru_cache
from typing import Any

from advisor.ingest.readers.nccl_log.damaged import DAMAGED
from advisor.ingest.readers.nccl_log.facts import Choice, Fact, Parsed, TuningCell
from advisor.vocabulary.numbers import real
from advisor.vocabulary.operations import canonical_op

# Numbering of NCCL_ALGO_* and NCCL_PROTO_* in src/include/nccl_common.h (2.21 to 2.23 print it).
ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")

_CHOICE = re.compile(
    r"^(?:(\w{2,40}): *)?(\d{1,19}) Bytes -> Algo (\w{1,20}) +proto (\w{1,20})"
    r"(?: +time ([\d.]{1,24}))?(?: +channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\})?"
)
_CELL = re.compile(r"^\s*(-?[\d.]{1,20})\s*/\s*(-?[\d.]{1,20})\s*$")
_OLD_HEADING = re.compile(r"^\s*(\w+)\s*/\s*(\w+)\s*$")
_CELLS = re.compile(r"\d[\d.]{0,19}/ *\d[\d.]{0,19} *(?=\|)")
# Launchers may have put anything in front of what has no prefix of NCCL's.
_MATRIX_ROW = re.compile(r"(?:^|\W)(\w{4,20}) \|([\d\s|]*)$")
_MOST_DIGITS = 9
_MATRIX_CELL = re.compile(r"\||\d+")
_DAMAGED_ROW = re.compile(  # of words between bars, or of numbers only
    rf"(?=.*[{DAMAGED}])(?:(?=.*\|)[\w\s|{DAMAGED}]+|(?=.*\d)[\d\s{DAMAGED}]+)"
)


def algorithm_name(text: str) -> str:
    """NCCL's spellings (``CollNetDirect``, ``NVLSTree``, ``1``) → the store's."""
    if text.isdecimal():
        return dict(enumerate(ALGORITHMS)).get(int(text[:9]), text)
    key = text.upper().replace("_", "")
    if key == "COLLNET":  # up to 2.13 there was one
        return "COLLNET_DIRECT"
    return next((name for name in ALGORITHMS if name.replace("_", "") == key), text.upper())


def protocol_name(text: str) -> str:
    """``Simple``, ``SIMPLE`` or ``2`` → ``SIMPLE``."""
    if text.isdecimal():
        return dict(enumerate(PROTOCOLS)).get(int(text[:9]), text)
    return text.upper()


@lru_cache(maxsize=4096)  # the calls of a step come again
def parse_choice(text: str) -> Choice | None:
    """A printed choice in any of its three forms, else None."""
    match = _CHOICE.match(text)
    if match is None:
        return None
    op, size, algorithm, protocol, time_us, low, high = match.groups()
    return Choice(
        canonical_op(op) or op.lower() if op else None,
        int(size),
        algorithm_name(algorithm),
        protocol_name(protocol),
        real(time_us),
        int(high) - int(low) + 1 if low is not None else None,
    )


def cells_of(text: str) -> int:
    """How many whole cells of a table stand in ``text``."""
    return sum(1 for _ in _CELLS.finditer(text)) if "|" in text and "/" in text else 0


class Tuning:
    """The table that one thread is printing. ``lost`` counts the cells of broken rows."""

    def __init__(self) -> None:
        self.lost = 0
        self._columns: list[tuple[str, str]] = []
        self._algorithms: list[str] = []

    def feed(self, text: str) -> list[Parsed]:
        """The cells of a row; headings are remembered."""
        if "|" not in text:
            return []
        first, *cells = text.split("|")
        heading = first.strip()
        if heading == "Latency/AlgBw":
            found = [_OLD_HEADING.match(cell) for cell in cells]
            self._columns = [(algorithm_name(m[1]), protocol_name(m[2])) for m in found if m]
            return []
        if heading == "Algorithm":
            self._algorithms = [algorithm_name(cell.strip()) for cell in cells if cell.strip()]
            self._columns = [
                (name, protocol) for name in self._algorithms for protocol in PROTOCOLS
            ]
            return []
        op = canonical_op(heading)
        if op is None or not self._columns:
            self.lost += cells_of(text)
            return []
        out: list[Parsed] = []
        for (algorithm, protocol), cell in zip(self._columns, cells, strict=False):
            if match := _CELL.match(cell):
                latency, bandwidth = real(match[1]), real(match[2])
                if latency is not None and bandwidth is not None:
                    out.append(TuningCell(op, algorithm, protocol, latency, bandwidth))
        self.lost += max(len(self._columns), cells_of(text)) - len(out)
        return out


class Matrix:
    """``Enabled NCCL Func/Proto/Algo Matrix``: rows without prefix, broken up by other ranks.

    ``lost`` counts the rows whose end did not come.
    """

    def __init__(self) -> None:
        self.lost = 0
        self._protocols: list[str] = []
        self._algorithms: list[str] = []
        self._op: str | None = None
        self._numbers: list[int] = []
        self._open = False

    def begin(self) -> None:
        """The headline was printed."""
        self.end()
        self._protocols, self._algorithms, self._open = [], [], True

    def end(self) -> None:
        """No more rows come."""
        self.lost += self._op is not None
        self._op = None

    def feed(self, text: str) -> list[Parsed]:
        """A line, or a piece of one, without NCCL's prefix."""
        if not self._open:
            return []
        if "Function |" in text:
            heading = text[text.index("Function |") :]
            _, protocols, algorithms = [*heading.split("|"), "", ""][:3]
            self._protocols = [protocol_name(name) for name in protocols.split()]
            self._algorithms = [algorithm_name(name) for name in algorithms.split()]
            return []
        if not self._protocols:
            return []
        if (match := _MATRIX_ROW.search(text)) and canonical_op(match[1]) is not None:
            self.end()
            self._op, self._numbers = canonical_op(match[1]), []
            text = match[2]
        elif self._op is None:
            return []
        elif not re.fullmatch(r"[\d\s|]+", text):  # behind what a launcher puts in front
            text = _cells_at_end(text)
            if not text:
                return []
        self._numbers += [int(number) for number in re.findall(rf"\d{{1,{_MOST_DIGITS}}}", text)]
        return self._row()

    def is_damaged(self, text: str) -> bool:
        """Whether ``text``, a line or a piece of one, is of the matrix and has damaged bytes."""
        if not self._open or _DAMAGED_ROW.fullmatch(text) is None:
            return False
        self._op = None  # the row is told of
        return True

    def _row(self) -> list[Parsed]:
        wanted = len(self._protocols) + len(self._algorithms)
        if self._op is None or len(self._numbers) < wanted:
            return []
        split = len(self._protocols)
        value: dict[str, Any] = {
            "protocols": dict(zip(self._protocols, self._numbers[:split], strict=True)),
            "algorithms": dict(zip(self._algorithms, self._numbers[split:wanted], strict=True)),
        }
        op, self._op = self._op, None
        return [Fact("matrix", op, value, "run")]


def _cells_at_end(text: str) -> str:
    """The numbers and bars that end ``text``, each number two blanks behind what is before it."""
    start = len(text.rstrip("0123456789| \t"))
    first = len(text)
    for cell in reversed(list(_MATRIX_CELL.finditer(text, start))):
        gap = text[max(0, cell.start() - 2) : cell.start()]
        if cell[0] != "|" and not (len(cell[0]) <= _MOST_DIGITS and gap.isspace()):
            break
        first = cell.start()
    return text[first:]
