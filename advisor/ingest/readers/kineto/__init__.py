"""Kineto (torch.profiler) and other Chrome traces in JSON: host and device events of ranks.

The bytes are cut into chunks of whole events (:mod:`.cutter`), which the scanner (:mod:`.native`)
and what it refuses :mod:`.parser` turn into rows; what that cannot parse is read again event by
event (:mod:`.repair`), and every event lost is counted by reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.ingest.readers.kineto.beginning import damaged_beginning, is_list_of_events
from advisor.ingest.readers.kineto.json_value import KEYS
from advisor.ingest.source import HEAD_BYTES, RankHint, ReadContext, Source
from advisor.ingest.unknown import foreign

if TYPE_CHECKING:
    from advisor.ingest.readers.kineto.trace import Trace

FORMAT = "kineto"
SUMMARY = "Kineto (torch.profiler) and other Chrome traces in JSON, plain, gzip or zstd"
PRIORITY = 60
# What traces of torch.profiler begin with (pytorch/kineto, libkineto/src/output_json.cpp); torch
# 2.13 writes a blank first.
BEGINS = re.compile(rb'\s{0,8}\{\s{0,8}"schemaVersion"\s{0,8}:')

_EVENTS = re.compile(rb'"traceEvents"\s*:')
_EVENTS_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[\s*(?:\]|' + KEYS + rb")")
_PROCESS = re.compile(rb'"process_name"[^{}]{0,200}"pid"\s*:\s*(\d{1,10})\b')
_PHASE = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')
_MOST_BEFORE = 64 * 1024 * 1024
_PIECE, _OVERLAP = 1024 * 1024, 1024
_MARKS = (b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"', b'"displayTimeUnit"')


def detect(source: Source) -> bool:
    """A JSON object with Kineto's or Chrome's keys, or a bare array of trace events."""
    head = source.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"{"):
        if _EVENTS.search(head) or sum(mark in head for mark in _MARKS) >= 2:
            return True
        if len(source.head) >= HEAD_BYTES and _events_further_on(source):
            return True
        return damaged_beginning(source.head) is not None
    if foreign(head):
        return False
    with source.open() as stream:
        stream.read(len(source.head))
        if is_list_of_events(head, iter(lambda: stream.read(_PIECE), b"")):
            return True
    return damaged_beginning(source.head) is not None


def _events_further_on(source: Source) -> bool:
    """Whether a list of events comes after fields that are longer than the head."""
    kept, seen = b"", 0
    with source.open() as stream:
        while seen < _MOST_BEFORE and (data := stream.read(_PIECE)):
            if _EVENTS_BEGIN.search(kept + data):
                return True
            kept, seen = data[-_OVERLAP:], seen + len(data)
    return False


def _peeked(source: Source) -> Trace:
    from advisor.ingest.readers.kineto.trace import Trace  # logs do without

    trace = Trace(source)
    trace.peek()
    return trace


def rank_hint(source: Source) -> RankHint:
    """The rank that a trace names. Raises :class:`AdvisorError` when it holds no events."""
    trace = _peeked(source)
    info = trace.info
    # A file without any event takes no rank's number from the files after it.
    empty = len(source.head) < HEAD_BYTES and not _PHASE.search(source.head)
    several = trace.merged or (info.rank is None and empty)
    return RankHint(info.rank, info.rank_from == "distributedInfo", several)


def recorded_rank(source: Source) -> tuple[int, int | None, str | None] | None:
    """Rank, world size and process where the file's head records them, without reading further."""
    if b'"distributedInfo"' not in source.head:
        return None
    trace = _peeked(source)
    info = trace.info
    if info.rank is None or info.rank_from != "distributedInfo" or trace.merged:
        return None
    process = _PROCESS.search(source.head)
    number = f"{info.host}/{process.group(1).decode()}" if process else None
    return info.rank, info.world_size, number


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Read all traces of a run into the base tables."""
    from advisor.ingest.readers.kineto.load import load

    load(sources, context)
