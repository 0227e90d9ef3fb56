"""One thing to know about one setting."""

from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning", "info"]
# dead: NCCL does not read it; fixes: it takes a choice from NCCL, for better or worse.
Effect = Literal["", "dead", "fixes"]

_CLASSES = {
    "S": "system configuration: may stay in scripts",
    "D": "debugging: the guide says not to keep it in production or scripts",
    "U": "undocumented: may change or vanish with any release",
    "": "",
}


class EnvIssue(NamedTuple):
    """What a setting does that its writer may not know.

    ``error``: the job does not start, a collective fails, or data come back wrong; ``warning``: it
    costs time, fixes a choice or does nothing (``effect``). ``since`` and ``until`` are the
    releases for which it holds ('' where it always did, or still does); ``category`` is the
    guide's class S, D, U or ''.
    """

    variable: str
    value: str
    severity: Severity
    title: str
    why: str
    action: str
    category: str = ""
    since: str = ""
    until: str = ""
    line: int | None = None
    source: str = ""
    effect: Effect = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the class in words."""
        return {**self._asdict(), "category_means": _CLASSES[self.category]}
