"""Numbers of reports, written as everywhere (vocabulary/words.py), with a dash for what is unknown.

Bandwidths are decimal GB/s, and MiB is only for settings that mean MiB.
"""

import math
import re

from advisor.report.clean import one_line
from advisor.vocabulary.words import about, percent, short, size

_NUMBER_AND_UNIT = re.compile(r"(\d) ((?:%|[kMGT]?B/s|[kMGT]i?B|[mnµ]?s)(?!\w))")


def decimals(value: float, step: float) -> str:
    """``value`` with as many decimals as multiples of ``step`` need, for the ticks of an axis."""
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value + 0.0:,.{places}f}"


def duration(ns: float | None) -> str:
    """A time in ns as '38 ms', '84 µs' or '12 s'; '–' when unknown."""
    return "–" if ns is None else about(ns)


def milliseconds(ns: float | None) -> str:
    """The bare number of milliseconds, for columns whose title says ms."""
    return "–" if ns is None else short(ns / 1e6)


def share(fraction: float | None) -> str:
    """A fraction as a percentage: '18 %', '0.4 %'."""
    return "–" if fraction is None else percent(fraction)


def traffic(size_bytes: float | None) -> str:
    """A message size or traffic in decimal units: '25 MB', '640 B'."""
    return "–" if size_bytes is None else size(size_bytes)


def scaled(value: float, unit: str) -> str:
    """A number with a decimal prefix: '12.3 TFLOP/s', '45 kFLOP/B'."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{short(value / factor)} {prefix}{unit}".strip()
    return f"{short(value)} {unit}".strip()


def bandwidth(gbps: float | None) -> str:
    """A bandwidth in decimal GB/s, as nccl-tests prints it."""
    return "–" if gbps is None else f"{short(gbps)} GB/s"


def count(number: float | None) -> str:
    """A count with thousands separators."""
    return "–" if number is None else f"{int(number):,}"


def bound(text: str) -> str:
    """``text`` with no-break spaces between numbers and their units, for running text."""
    return _NUMBER_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)


def cell(value: object) -> str:
    """A cell of a table of evidence: two digits for floats, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value)
    if isinstance(value, float):
        return short(value)
    return one_line(value)
