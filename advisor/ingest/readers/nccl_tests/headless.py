"""The columns of a row above which no header stands, as where the end of an output was copied.

A half begins with a time and two bandwidths, the first of which is the size over that time
(doc/PERFORMANCE.md of nccl-tests): figures for which that does not hold are of another program.
"""

from __future__ import annotations

import re

from advisor.vocabulary.numbers import real

_HALF = ("time", "algbw", "busbw")
_ROUNDING_GBPS = 0.006  # two decimals
_ROUNDING = 0.01  # of a time with three digits
_COUNT = re.compile(r"\d+|N/A")


def columns_of(size_bytes: int, after_type: list[str]) -> list[str] | None:
    """The names of a row's columns up to the end of its first half, as a header has them.

    ``after_type`` are its words behind the type; None where they are no row of nccl-tests.
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
