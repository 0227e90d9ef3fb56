"""Names for the scrolling regions of one page, each given once.

A screen reader lists regions by name: two of one name cannot be told apart there.
"""

from __future__ import annotations

from collections.abc import Sequence


class Labels:
    """The names given out so far on one page, which is about ``runs``."""

    def __init__(self, runs: Sequence[str]) -> None:
        self._runs = runs if len(runs) > 1 else ()
        self._given: set[str] = set()

    def of(self, label: str, section: str) -> str:
        """``label``, with the run that the title of its ``section`` ends with where there are
        several, and with a number where it was given out before."""
        run = next((f" ({run})" for run in self._runs if section.endswith(f" ({run})")), "")
        wanted = label if label.endswith(run) else f"{label}{run}"
        name, count = wanted, 1
        while name in self._given:
            count += 1
            name = f"{wanted}, {count}"
        self._given.add(name)
        return name
