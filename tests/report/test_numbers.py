"""Numbers are written with three significant digits and their unit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.report import numbers
from advisor.vocabulary.words import plural, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (38.24, "38.2"),
        (0.4049, "0.405"),
        (6.10, "6.1"),
        (212.4, "212"),
        (5798, "5,800"),
        (9.996, "10"),
        (-1.234, "-1.23"),
        (math.nan, "–"),
    ],
)
def test_significant_keeps_three_digits(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_significant_is_within_half_a_unit_of_the_third_digit(value: float) -> None:
    shown = float(significant(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=0.00501)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (850, "0.85 µs"),
        (84_000, "84 µs"),
        (400_000, "0.4 ms"),
        (38_200_000, "38 ms"),
        (9_990_000_000, "9,990 ms"),
        (12_600_000_000, "13 s"),
        (1_084_600_000, "1,085 ms"),
    ],
)
def test_duration_is_ms_below_ten_seconds(ns: int | None, text: str) -> None:
    assert numbers.duration(ns) == text


def test_traffic_is_decimal() -> None:
    assert numbers.traffic(25 * 2**20) == "26 MB"
    assert numbers.traffic(640) == "640 B"
    assert numbers.bandwidth(0.4904) == "0.49 GB/s"


def test_plural_counts() -> None:
    assert plural(1, "rank") == "1 rank"
    assert plural(2, "entry", "entries") == "2 entries"
