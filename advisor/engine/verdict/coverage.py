"""How much of the devices' busy time is understood, and the longest kernel that is not.

A collective that no name pattern knows counts as compute: a run is not healthy while much of its
devices' time is of kernels that nothing is known of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from advisor.engine.sandbox import Sandbox


@dataclass(frozen=True)
class Coverage:
    """``share`` of the time in kernels of all ranks; of the longest unknown one name and time."""

    share: float
    longest: str
    longest_ns: int


def read_coverage(sandbox: Sandbox) -> Coverage | None:
    """The figure of view ``coverage``; None where no kernel was recorded."""
    (row,) = sandbox.records("SELECT share, unknown_kernels FROM coverage")
    if row["share"] is None:
        return None
    longest = next(iter(json.loads(row["unknown_kernels"] or "[]")), {"name": "", "ns": 0})
    return Coverage(float(row["share"]), str(longest["name"])[:_NAME], int(longest["ns"]))


_NAME = 60
