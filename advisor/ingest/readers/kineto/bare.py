"""Whether a file that is a bare JSON array is one of trace events, told by its head alone.

The keys of the list's own objects count, wherever in them they stand: arguments that come first
(keys in order of the alphabet, Chrome's metadata) may be long, and so may a name. Items that tell
nothing (``null``, an empty object) are passed over. Only the head given is looked at, once.
"""

from __future__ import annotations

import re

_OPENING = {b"]": b"[", b"}": b"{"}
_BEGIN = re.compile(rb"\s*\[")
_EMPTY = re.compile(rb"\s*\[\s*\]\s*\Z")
_TOKEN = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*+:)?|[\[\]{}"]', re.DOTALL)
_PHASE = re.compile(rb'\s*"[A-Za-z()]"')
_DAMAGED = re.compile(rb'\s*\[\s*\{[^{}]{0,4096}"(?:ph|ts)"\s*:')


def is_list_of_events(head: bytes) -> bool:
    """Whether a JSON array begins with events (or is empty); ``head`` has no byte order mark.

    An event has a phase of one letter. The first object is taken for one by its time alone, and
    also where its brackets or quotes are damaged.
    """
    if not _BEGIN.match(head):
        return False
    return bool(_EMPTY.match(head) or _DAMAGED.match(head)) or _has_event(head)


def _has_event(head: bytes) -> bool:
    open_ones = bytearray()
    for token in _TOKEN.finditer(head):
        text, colon = token.group(1), token.group(2)
        if text is not None:
            own = colon and open_ones == b"[{"
            if own and text == b'"ph"' and _PHASE.match(head, token.end()):
                return True
            continue
        bracket = token.group()
        if bracket in b"[{":
            open_ones += bracket
        elif bracket == b'"' or open_ones[-1:] != _OPENING[bracket]:
            return False  # a string that the head does not hold whole, or damage
        elif len(open_ones) == 1:
            return False  # the list's end
        else:
            del open_ones[-1]
    return False
