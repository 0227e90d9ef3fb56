"""Which module, layer or bucket a collective belongs to: the innermost range that names one."""

import re
from collections.abc import Sequence

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.spans import Spans
from advisor.metrics.timeline.intervals import Int64s

_BUCKET = re.compile(r"^## bucket (\d+) ##$")
_LAYER = re.compile(r"^## layer (\d+) ##$")
_FSDP_MODULE = re.compile(r"^FSDP::\w+ \((.+)\)$")
_FSDP_AHEAD = re.compile(r"^FSDP::(forward|backward)_prefetch for ")
_FSDP_GATHER = re.compile(r"^FSDP::all_gather \(.+\)$")


def set_modules(calls: Sequence[Call], spans: Spans, asked: Int64s, thread: Int64s) -> None:
    """Fill ``module`` of one rank's calls, and ``ahead`` of its gathers."""
    for pattern, label in ((_LAYER, "layer {}"), (_FSDP_MODULE, "{}")):
        named = spans.select(pattern)
        for index, row in enumerate(_innermost(named, asked, thread)):
            match = pattern.match(named.name(int(row))) if row >= 0 else None
            if match:
                calls[index].module = label.format(match.group(1))
    ahead, gathers = spans.select(_FSDP_AHEAD), spans.select(_FSDP_GATHER)
    early, gather = _innermost(ahead, asked, thread), _innermost(gathers, asked, thread)
    for call, before, around in zip(calls, early, gather, strict=True):
        if call.op == "all_gather" and around >= 0:
            # What its own operator waits for hides under nothing, whenever it is asked for.
            call.ahead = before >= 0 and bool(gathers.end[around] < call.end)
    marks = spans.select(_BUCKET)
    for tid in np.unique(marks.tid):
        own = np.flatnonzero(marks.tid == tid)
        requests = np.array(
            sorted(np.flatnonzero(thread == tid), key=lambda i: asked[i]), dtype=int
        )
        for mark in map(int, own):
            following = int(np.searchsorted(asked[requests], marks.start[mark]))
            match = _BUCKET.match(marks.name(mark))
            if match and following < len(requests):
                calls[int(requests[following])].module = f"bucket {match.group(1)}"


def _innermost(spans: Spans, asked: Int64s, thread: Int64s) -> Int64s:
    """The place of the innermost span around each time on its thread; -1 without any."""
    found = np.full(len(asked), -1, dtype=np.int64)
    for tid in np.unique(spans.tid):
        own = np.flatnonzero(spans.tid == tid)
        starts, ends = spans.start[own], spans.end[own]
        for index in map(int, np.flatnonzero(thread == tid)):
            place = int(np.searchsorted(starts, asked[index], side="right")) - 1
            # Spans nest a few deep: the latest begun that is still open is the innermost.
            for candidate in range(place, max(place - 8, -1), -1):
                if asked[index] <= ends[candidate]:
                    found[index] = own[candidate]
                    break
    return found
