"""How numbers are written everywhere: two digits, whole from 10 on, the unit beside them.

Times are ms below 10 s (µs below 0.1 ms), bandwidths decimal GB/s, traffic decimal MB, and MiB
only for settings that mean MiB.
"""

from __future__ import annotations

import math
import re

from advisor.report.clean import one_line

_NS_PER_MS = 1e6
_NUMBER_AND_UNIT = re.compile(r"(\d) ((?:%|[kMGT]?B/s|[kMGT]i?B|[mnµ]?s)(?!\w))")


def significant(value: float, digits: int = 3) -> str:
    """``value`` rounded to ``digits`` significant digits, without trailing zeros.

    Without an exponent too, down to a millionth.
    """
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) < 1e-6:
        # A probability, say: nobody counts its zeros.
        return f"{value:.{digits - 1}e}".replace("e-0", "e-")
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    text = f"{rounded:,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short(value: float) -> str:
    """``value`` in two digits, whole from 10 on: 0.17, 8.2, 95, 1,085."""
    return f"{value:,.0f}" if 9.95 <= abs(value) < math.inf else significant(value, 2)


def decimals(value: float, step: float) -> str:
    """``value`` with as many decimals as multiples of ``step`` need, for the ticks of an axis."""
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value + 0.0:,.{places}f}"


def duration(ns: float | None) -> str:
    """A time in ns as '38 ms', '84 µs' or '12 s'; '–' when unknown."""
    if ns is None:
        return "–"
    divisor, unit = _time_unit(ns)
    return f"{short(ns / divisor)} {unit}"


def milliseconds(ns: float | None) -> str:
    """The bare number of milliseconds, for columns whose title says ms."""
    return "–" if ns is None else short(ns / _NS_PER_MS)


def share(fraction: float | None) -> str:
    """A fraction as a percentage: '18 %', '0.4 %'."""
    if fraction is None:
        return "–"
    return f"{significant(100 * fraction, 2)} %"


def traffic(size_bytes: float | None) -> str:
    """A message size or traffic in decimal units: '25 MB', '640 B'."""
    if size_bytes is None:
        return "–"
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(size_bytes) >= factor:
            return f"{short(size_bytes / factor)} {unit}"
    return f"{short(size_bytes)} B"


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


def _time_unit(ns: float) -> tuple[float, str]:
    if abs(ns) >= 10e9:
        return 1e9, "s"
    if abs(ns) >= 1e5 or ns == 0:
        return _NS_PER_MS, "ms"
    return (1e3, "µs") if abs(ns) >= 1e3 else (1.0, "ns")
