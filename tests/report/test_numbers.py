"""Numbers are written with three significant digits and their unit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.report import numbers
from advisor.vocabulary.words import plural


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
    assert numbers.significant(value) == text


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_significant_is_within_half_a_unit_of_the_third_digit(value: float) -> None:
    shown = float(numbers.significant(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=0.00501)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (850, "850 ns"),
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


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (38_200_000, 36_800_000, 39_600_000, "38.2 ms ±1.4"),
        (9_000_000, 6_000_000, 12_000_000, "9 ms ±3"),
        (9_000_000, 1_000_000, 12_000_000, "9 ms (1–12)"),
        (9_000_000, None, None, "9 ms"),
        (None, 1, 2, "–"),
    ],
)
def test_spread_is_symmetric_only_when_the_interval_is(
    value: int | None, low: int | None, high: int | None, text: str
) -> None:
    assert numbers.duration_with_spread(value, low, high) == text


@given(st.tuples(*[st.integers(-(10**12), 10**12)] * 3))
def test_an_interval_is_in_order_and_holds_its_value(parts: tuple[int, int, int]) -> None:
    value, low, high = parts
    text = numbers.duration_with_spread(value, low, high)
    inside = min(low, high) <= value <= max(low, high)
    assert ("(" in text or "±" in text) is (inside and low != high)
    if "(" in text:
        first, last = text.split("(")[1].rstrip(")").split("–")
        assert float(first.replace(",", "")) <= float(last.replace(",", ""))


def test_an_interval_that_contradicts_its_value_is_left_out() -> None:
    assert numbers.duration_with_spread(0, 0, 0) == "0 ms"
    assert numbers.duration_with_spread(331e6, 170e6, 110e6) == "331 ms"
    assert numbers.duration_with_spread(160.79e6, 80.4e6, 160.79e6) == "161 ms (80–161)"
    assert numbers.duration_with_spread(150e6, 170e6, 110e6) == "150 ms (110–170)"
    assert numbers.interval(3e6, 1e6) == "1 ms to 3 ms"
    assert numbers.interval(None, 1e6) == "–"


def test_traffic_is_decimal() -> None:
    assert numbers.traffic(25 * 2**20) == "26 MB"
    assert numbers.traffic(640) == "640 B"
    assert numbers.bandwidth(0.4904) == "0.49 GB/s"


def test_plural_counts() -> None:
    assert plural(1, "rank") == "1 rank"
    assert plural(2, "entry", "entries") == "2 entries"
