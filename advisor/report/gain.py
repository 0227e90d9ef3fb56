"""What a replayed change gives, said alike in every view: its interval decides the words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.findings import Finding
from advisor.messages import CHANGES, GAINS, say

_SAME = 0.01  # of a gain: a finding that rests on this very replay


def gain_kind(low_ns: float, middle_ns: float, high_ns: float, least_ns: float = 0.0) -> str:
    """``saves`` or ``costs`` where the interval leaves out zero, else ``may-save`` or ``nothing``.

    A gain whose high end is at most ``least_ns`` is nothing to speak of.
    """
    if low_ns > 0 and middle_ns > least_ns:
        return "saves"
    if high_ns < 0:
        return "costs"
    return "may-save" if middle_ns > least_ns else "nothing"


def gain_words(
    low_ns: float,
    middle_ns: float,
    high_ns: float,
    least_ns: float = 0.0,
    only_between: bool = False,
    step_ns: float = math.inf,
) -> str:
    """'saves 12 ms (8–15 ms)', 'may save up to 12 ms, or nothing'; per step.

    ``only_between``: 'saves 0.6–15 ms', for nothing inside the interval is known. No end is
    rounded above ``step_ns``, as in findings.
    """
    kind = gain_kind(low_ns, middle_ns, high_ns, least_ns)
    return say(GAINS, kind, {"low_ns": low_ns, "middle_ns": middle_ns, "high_ns": high_ns,
                             "only_between": only_between, "step_ns": step_ns})  # fmt: skip


def change_name(setting: str, value: str) -> str:
    """The change as users write it, 'bucket_cap_mb=25', or in words where no setting does it."""
    return say(CHANGES, setting, {"value": value}) if setting in CHANGES else f"{setting}={value}"


def ends_ns(finding: Finding) -> tuple[float, float, float]:
    """Low, middle and high of what a finding gives; the middle stands for an unknown end."""
    gain = float(finding.savings_ns or 0)
    low, high = finding.savings_low_ns, finding.savings_high_ns
    return gain if low is None else low, gain, gain if high is None else high


def rests_on(finding: Finding, gain_ns: float) -> bool:
    """Whether what a finding saves is this very gain of a replay."""
    return gain_ns > 0 and abs((finding.savings_ns or 0) - gain_ns) <= _SAME * gain_ns


def sets(finding: Finding, change: str) -> bool:
    """Whether a finding's fix sets this: 'bucket_cap_mb=25', or 'bucket_cap_mb=' to any value."""
    return bool(finding.savings_ns) and any(
        change in (f"{name}=", f"{name}={value}") for name, value in finding.sets.items()
    )


def delays(finding: Finding, ranks: Sequence[int]) -> bool:
    """Whether others wait for these ranks because of what the finding says of some of them."""
    named = finding.savings_ns and finding.claims.get("wait") and finding.ranks
    return bool(named) and {*finding.ranks} <= {*ranks}
