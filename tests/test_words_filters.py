"""Numbers in words: three significant digits, units, ranks in short."""

from __future__ import annotations

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.vocabulary.templates import render
from advisor.vocabulary.words import (
    about,
    between,
    differs,
    fall,
    percent,
    ranks_text,
    significant,
    size,
    span,
)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ms"),
        (950, "0.95 µs"),
        (38_240_000, "38 ms"),
        (212_000_000, "212 ms"),
        (99_000, "99 µs"),
        (12_345_678_901, "12 s"),
        (1_234_000_000, "1,234 ms"),
    ],
)
def test_duration(ns: int, text: str) -> None:
    assert about(ns) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (None, None, "about 5 ms"),
        (4e6, 7e6, "4–7 ms"),
        (1.1e6, 6.4e6, "1.1–6.4 ms"),
        (0, 7e6, "up to 7 ms"),
    ],
)
def test_what_a_step_must_fall_by_is_the_interval(
    low: float | None, high: float | None, text: str
) -> None:
    """One number only where the interval is narrow: elsewhere less is no failure."""
    assert fall(5e6, low, high) == text


@given(step=st.integers(10_000, 10**11), low=st.floats(0.01, 1), high=st.floats(0.01, 1))
def test_no_end_of_a_range_is_above_the_step_as_it_is_written(
    step: int, low: float, high: float
) -> None:
    """GIVEN an interval within a step WHEN it is written THEN rounding leads not out of it."""
    low_ns, high_ns = sorted((low * step, high * step))
    end, unit = span(low_ns, high_ns, step).partition("–")[2].split()
    in_ns = float(end.replace(",", "")) * {"µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    factor = {"µs": 1e3, "ms": 1e6, "s": 1e9}[about(step).split()[1]]
    assert in_ns <= max(step, float(about(step).split()[0].replace(",", "")) * factor) * (1 + 1e-9)


def test_the_end_is_the_step_where_outwards_is_beyond_it() -> None:
    assert span(140.7e6, 231e6) == "140–240 ms"
    assert span(140.7e6, 231e6, 233.1e6) == "140–233 ms"


def test_a_range_of_no_width_is_one_number() -> None:
    assert between(309.8, 310.3) == "310"
    assert between(48.2, 310.3) == "48–310"


def test_size_is_decimal() -> None:
    assert size(1_048_576) == "1 MB"
    assert size(4) == "4 B"


def test_percent() -> None:
    assert percent(0.183) == "18 %"
    assert percent(0.0056) == "0.56 %"
    assert percent(0.00072) == "under 0.1 %"
    assert [percent(share) for share in (0.9872, 0.9949, 1.0, 1.004)] == [
        "99 %", "99 %", "100 %", "100 %"]  # fmt: skip


@given(st.floats(0.9, 1, exclude_max=True))
def test_what_is_not_whole_reads_as_less_and_fits_what_is_beside_it(share: float) -> None:
    """0.28 % idle stands beside 99.7 % compute."""
    whole, rest = percent(share), percent(1 - share)
    assert whole != "100 %"
    if not whole.startswith("over") and not rest.startswith("under"):
        assert float(whole[:-2]) + float(rest[:-2]) == pytest.approx(100, abs=0.51)


@given(st.floats(1e-9, 1e12))
def test_significant_is_within_half_a_percent(value: float) -> None:
    assert float(significant(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@given(st.sets(st.integers(0, 40)))
def test_ranks_read_back(ranks: set[int]) -> None:
    found: set[int] = set()
    for part in filter(None, ranks_text(ranks).split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == ranks


def test_an_unknown_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("{{ nothing }}", {})


def test_templates_cannot_reach_python() -> None:
    with pytest.raises(jinja2.exceptions.SecurityError):
        render("{{ ().__class__.__mro__ }}", {})


def test_names_from_traces_are_not_templates() -> None:
    assert render("{{ name }}", {"name": "{{ 7 * 7 }}<b>"}) == "{{ 7 * 7 }}<b>"


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [(200e6, 201e6, False), (111e6, 116e6, False), (88e6, 76e6, True), (9.9e6, 10.2e6, False),
     (0, 0, False), (0, 1, True), (2.7e6, 15e6, True)],
)  # fmt: skip
def test_only_what_two_digits_tell_apart_is_worth_a_clause(
    one: float, other: float, differ: bool
) -> None:
    assert differs(one, other) is differs(other, one) is differ
