"""How much of the devices' busy time is understood, and the longest kernel that is not.

A collective that no name pattern knows counts as compute: a run is not healthy while much of its
devices' time is of kernels that nothing is known of.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.engine.sandbox import Sandbox

_TABLE = "coverage"


@dataclass(frozen=True)
class Coverage:
    """``share`` of the busy time of all ranks; of the longest unknown kernel name and ns a step."""

    share: float
    longest: str
    longest_ns: int


def read_coverage(sandbox: Sandbox) -> Coverage | None:
    """The figure of table ``coverage`` (busy_ns, known_ns, longest, longest_ns per rank).

    None for a store that does not have it, or not for this run.
    """
    if _TABLE not in sandbox.tables():
        return None
    (row,) = sandbox.records(
        "SELECT sum(known_ns)::DOUBLE / nullif(sum(busy_ns), 0) AS share, "
        "arg_max(longest, longest_ns) AS longest, max(longest_ns) AS longest_ns FROM coverage"
    )
    if row["share"] is None:
        return None
    return Coverage(float(row["share"]), row["longest"] or "", int(row["longest_ns"] or 0))
