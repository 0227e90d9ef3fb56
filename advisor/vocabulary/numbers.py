"""What a number of an input can be: checked once, where it enters, so that nothing overflows later.

A count that no machine can have is damage of its field: the field is then unknown, not the number
that is left of it.
"""

import math
from typing import Any

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MOST_RANKS = 1 << 20
"""Ranks of one job: several times the largest cluster that was published (200,000 GPUs)."""
MOST_EVENT_NS = 10**15
"""Of one event: eleven days, longer than any profiler records at a time."""
MOST_BYTES = 1 << 50
"""Of one message: a petabyte, four thousand times the memory of a device."""

MOST_CALLS = 1 << 42
"""Of one group: one a microsecond for fifty days."""


def within(value: Any, least: int, most: int) -> int | None:
    """A whole number as it is, where it lies between both bounds (inclusive); else None."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= most else None


def whole(value: Any, most: int = INT64_MAX) -> int | None:
    """A whole number or its text, not beyond ``most`` either way; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return within(number, -most - 1, most)


def real(value: Any, most: float = math.inf) -> float | None:
    """A finite number or its text, not beyond ``most`` either way; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) <= most else None


def whole_sql(value: str, kind: str) -> str:
    """SQL of :func:`whole` for the SQL expression ``value``: an integer of ``kind``, or null.

    A cast alone would round 1.6 to 2: the number of another rank. A text may write hexadecimal
    digits (``0x1f``), as AMD's profiler does for streams.
    """
    real = f"TRY_CAST({value} AS DOUBLE)"
    hexadecimal = f"starts_with(TRY_CAST({value} AS VARCHAR), '0x')"
    return (
        f"CASE WHEN trunc({real}) = {real} OR ({real} IS NULL AND {hexadecimal}) "
        f"THEN TRY_CAST({value} AS {kind}) END"
    )


def json_integer(digits: str) -> int | float:
    """A decoder's ``parse_int``: a float (perhaps inf) beyond 64 bits, out of range to all others.

    Python converts no more than 4,300 digits and raises, which would cost all that is around them.
    """
    return float(digits) if is_beyond_64_bits(digits) else int(digits)


def is_beyond_64_bits(digits: str) -> bool:
    """Whether a whole number as JSON writes it (no leading zeros) is certainly beyond 64 bits."""
    return len(digits) > len(str(-INT64_MAX))


def decimal(text: str, least: int = 0, most: int = INT32_MAX) -> int | None:
    """The number that ASCII digits write, within the bounds; None for anything else."""
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return None
    return within(int(text), least, most)
