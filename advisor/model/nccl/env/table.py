"""The one table of NCCL's variables (variables.csv), and how NCCL reads a value.

The table is written from NCCL's sources, release by release, and of releases whose sources are not
out from their libraries, by ``python -m benchmarks.nccl_source.variables``.
"""

import csv
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from advisor.model.nccl.version import NcclVersion, parse_version

# The newest release whose variables were read.
NEWEST: NcclVersion = (2, 32, 3)

NUMBER = re.compile(r"\s*([-+]?)(0[xX][0-9a-fA-F]+|[0-9]+)")
_LARGEST = 2**63 - 1


class Variable(NamedTuple):
    """One variable: how it is read, the releases that read it, its class and defaults.

    ``kind`` is integer, flag, path or text; ``category`` the guide's S (system configuration),
    D (debugging) or U (not in the guide); ``source`` the file of NCCL that reads it (libnccl.so.2:
    its sources are not out, so that the guide's class is not known).
    """

    name: str
    kind: str
    since: NcclVersion | None
    until: NcclVersion | None
    category: str
    defaults: tuple[tuple[NcclVersion, int | None], ...]
    source: str
    meaning: str

    def default(self, version: NcclVersion) -> int | None:
        """The plain numeric default in that release; None when there is none."""
        found = None
        for since, value in self.defaults:
            if since <= version:
                found = value
        return found

    def exists_in(self, version: NcclVersion) -> bool:
        """Whether the release reads it."""
        return (self.since is None or version >= self.since) and (
            self.until is None or version <= self.until
        )


@cache
def variables() -> dict[str, Variable]:
    """Every variable NCCL's source reads or read, by name."""
    text = files("advisor.model.nccl.env").joinpath("variables.csv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {row["name"]: _variable(row) for row in csv.DictReader(lines)}


def value_read(name: str, value: str) -> str:
    """What NCCL reads: of an integer the digits at the start, or 0 (C's strtoll); else the text."""
    variable = variables().get(name)
    if variable is None or variable.kind != "integer" or not value:
        return value
    found = NUMBER.match(value)
    if not found:
        return "0"
    digits = found[2][:40]  # more cannot change where strtoll ends
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") else 10
    digits = re.match("[0-7]+", digits)[0] if base == 8 else digits  # type: ignore[index]
    number = min(int(digits, base), _LARGEST)
    return str(-number if found[1] == "-" else number)


def _variable(row: dict[str, str]) -> Variable:
    defaults = []
    for item in row["defaults"].split():
        since, _, value = item.partition("=")
        defaults.append((parse_version(since), int(value) if value else None))
    return Variable(
        name=row["name"],
        kind=row["type"],
        since=parse_version(row["since"]) if row["since"] else None,
        until=parse_version(row["until"]) if row["until"] else None,
        category=row["class"],
        defaults=tuple(defaults),
        source=row["source"],
        meaning=row["meaning"],
    )
