"""What a replayed change gives, said alike in every view: its interval decides the words."""

from __future__ import annotations

from advisor.messages import CHANGES, GAINS, say


def gain_kind(low_ns: float, middle_ns: float, high_ns: float, least_ns: float = 0.0) -> str:
    """``saves`` or ``costs`` where the interval leaves out zero, else ``may-save`` or ``nothing``.

    A gain whose high end is at most ``least_ns`` is nothing to speak of.
    """
    if low_ns > 0 and middle_ns > least_ns:
        return "saves"
    if high_ns < 0:
        return "costs"
    return "may-save" if middle_ns > least_ns else "nothing"


def gain_words(low_ns: float, middle_ns: float, high_ns: float, least_ns: float = 0.0) -> str:
    """'saves 12 ms (8–15 ms)', 'may save up to 12 ms, or nothing'; per step."""
    kind = gain_kind(low_ns, middle_ns, high_ns, least_ns)
    return say(GAINS, kind, {"low_ns": low_ns, "middle_ns": middle_ns, "high_ns": high_ns})


def change_name(setting: str, value: str) -> str:
    """The change as users write it, 'bucket_cap_mb=25', or in words where no setting does it."""
    return say(CHANGES, setting, {"value": value}) if setting in CHANGES else f"{setting}={value}"
