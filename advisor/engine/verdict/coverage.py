"""How much of the devices' busy time is understood, and the longest kernel that is not.

A collective that no name pattern knows counts as compute: a run is not healthy while much of its
devices' time is of kernels that nothing is known of.
"""

import json
from typing import Any, NamedTuple

from advisor.engine.sandbox import Sandbox

_NAME = 60  # characters of a kernel's name
_HIDES = 0.01  # of the time in kernels: as much communication is nobody's afternoon


class Coverage(NamedTuple):
    """``share`` of the time in kernels of all ranks; of the longest unknown one name and time."""

    share: float
    longest: str
    longest_ns: int

    def may_hide(self) -> bool:
        """Whether a job's communication may be in kernels of which nothing is known."""
        return bool(self.longest) and 1 - self.share >= _HIDES


def read_coverage(sandbox: Sandbox) -> Coverage | None:
    """The figure of view ``coverage``; None where no kernel was recorded."""
    (row,) = sandbox.records("SELECT share, unknown_kernels FROM coverage")
    if row["share"] is None:
        return None
    unknown: list[dict[str, Any]] = json.loads(row["unknown_kernels"] or "[]")
    if not unknown:
        return Coverage(float(row["share"]), "", 0)
    return Coverage(float(row["share"]), str(unknown[0]["name"])[:_NAME], int(unknown[0]["ns"]))
