"""Values of parameters that `make test` leaves to `make test-all`, or to `make test-long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """Values for ``parametrize`` that are slow: `make test` leaves them to `make test-all`."""
    return [pytest.param(*_row(value), marks=pytest.mark.slow) for value in values]


def long(*values: Any) -> list[Any]:
    """Values that show more of what others show: only `make test-long` takes them."""
    return [pytest.param(*_row(value), marks=pytest.mark.long) for value in values]


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """The values, of which each ``every``-th is taken always and the others are :func:`long`."""
    return [
        pytest.param(*_row(value), marks=[pytest.mark.long][: number % every])
        for number, value in enumerate(values)
    ]


def _row(value: Any) -> tuple[Any, ...]:
    """The values of several parameters are a tuple."""
    return value if isinstance(value, tuple) else (value,)
