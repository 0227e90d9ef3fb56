"""A rule's savings within what can be: a step loses no more than all of it and no less than zero.

What had to be changed for that is a bug of the rule: its tests refuse it, and the outcome lists it
for the rule's author. Readers of a finding are not told.
"""

import math
from collections.abc import Mapping
from typing import Any

from advisor.vocabulary.words import about

COLUMNS = ("savings_ns", "savings_low_ns", "savings_high_ns")
_ROUNDING_NS = 2
_LEAST_RUNNING = 0.01  # of a step: no division by nothing


def bounded(
    row: Mapping[str, Any],
    step_ns: int | None,
    stays_ns: int = 0,
    running_share: float = 1.0,
    own_share: float = 1.0,
) -> tuple[dict[str, int | None], list[str]]:
    """The row's savings as whole ns per step, and what was changed for that.

    ``stays_ns`` of the step are left whatever is saved. Where threads run only ``running_share`` of
    their time, no more of it is sure to be; the low end is that of free cores, the high end that of
    what is done away with leaving its cores to the rest. Only ``own_share`` of a recorded step is
    the job's: the rest may be in what is saved. A rule need not know any: no mistake.
    None is below zero or beyond ``step_ns``, and the interval holds the value; an interval without
    a value that is the wrong way round is left out.
    """
    given = {name: float(row[name]) for name in COLUMNS if row.get(name) is not None}
    changes = [f"{name} is no number and is left out" for name in given if math.isnan(given[name])]
    given = {name: number for name, number in given.items() if not math.isnan(number)}
    if step_ns is None:
        endless = [name for name, number in given.items() if number == math.inf]
        changes += [f"{name} is endless and is left out" for name in endless]
        given = {name: number for name, number in given.items() if name not in endless}
    for name, number in given.items():
        if number < -_ROUNDING_NS:
            much = about(number) if math.isfinite(number) else "endless"
            changes.append(f"{name} is below zero ({much}) and counts as 0")
        elif step_ns is not None and number > step_ns + _ROUNDING_NS:
            much = about(number) if math.isfinite(number) else "endless"
            changes.append(
                f"{name} ({much}) is more than the step and counts as all of it, {about(step_ns)}"
            )
    most = math.inf if step_ns is None else max(0.0, step_ns - running_share * stays_ns)
    within = {name: round(min(max(0.0, number), most)) for name, number in given.items()}
    value, low, high = (within.get(name) for name in COLUMNS)
    low = None if low is None else round(running_share * own_share * low)
    high = None if high is None else round(min(most, high / max(running_share, _LEAST_RUNNING)))
    if value is not None:
        changes += _outside(within)
        low = None if low is None else min(low, value)
        high = None if high is None else max(high, value)
    elif low is not None and high is not None and low > high:
        ends = f"{about(low)} and {about(high)}"
        changes.append(f"savings_low_ns is above savings_high_ns ({ends}): both are left out")
        low = high = None
    return dict(zip(COLUMNS, (value, low, high), strict=True)), changes


def _outside(given: Mapping[str, int]) -> list[str]:
    """An end of the interval on the wrong side of the value."""
    value = given["savings_ns"]
    found = []
    for name, sign, where in (("savings_low_ns", 1, "above"), ("savings_high_ns", -1, "below")):
        if name in given and sign * (given[name] - value) > _ROUNDING_NS:
            found.append(
                f"{name} ({about(given[name])}) is {where} savings_ns "
                f"({about(value)}) and counts as that"
            )
    return found
