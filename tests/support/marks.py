"""What runs in `make test-all` alone: further values of a test's parameters."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """Values for ``parametrize`` that are slow: `make test` leaves them to `make test-all`."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
