"""Whether blanks overwrote the beginning of an item of the list of events."""

from __future__ import annotations

from advisor.ingest.compression import Limits
from advisor.ingest.readers.kineto.event_text import parse_event
from advisor.ingest.readers.kineto.lost_bytes import BLANKED
from advisor.ingest.readers.kineto.nesting import EVENT_START, Nesting, State
from advisor.ingest.readers.kineto.window import Window


def is_overwritten(window: Window, limits: Limits, before: int, at: int) -> bool:
    """Whether blanks from ``before`` up to ``at`` overwrote an item: what follows is none."""
    if not BLANKED.search(window.data, before - window.base, at - window.base):
        return False
    if window.byte(at) not in (b"{", b"["):
        end = window.scalar_end(at)
    else:
        nesting = Nesting(window, at, limits.nesting)
        state = nesting.run(at + limits.event_bytes)
        if state is State.LARGE:
            return False
        end = nesting.at if state is State.CLOSED else None
    if end is None:
        return True
    if "ph" in (parse_event(window.text(at, end)) or {}):
        return False
    comma = window.skip_blank(end)
    return window.byte(comma) != b"," or not window.matches(
        EVENT_START, window.skip_blank(comma + 1)
    )
