"""Collective calls from a CPU backend's spans (``gloo:*``).

The backend's span starts when one of its threads takes the job; the ``c10d::*`` operator that asked
for it stands on the calling thread and tells more: the operation as the program meant it (gloo runs
a reduce_scatter as all_reduce), outputs and the peer. Both are in the same order for each kind and
size, so that they can be paired.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.gloo_requests import serve
from advisor.metrics.timeline.timeline import BACKEND_SPAN
from advisor.store.columns import MISSING
from advisor.store.events import Events
from advisor.vocabulary.operations import POINT_TO_POINT, elements_in, operation, parse_json

# Operators whose first argument is the output and second the input.
_OUTPUT_FIRST = re.compile(r"allgather|reduce_scatter|alltoall|gather|scatter")


@dataclass(slots=True)
class _Request:
    """A ``c10d::*`` operator: somebody asks for a collective."""

    op: str
    start: int
    thread: int | None
    in_elements: int | None
    out_elements: int | None
    dtype: str | None
    peer: int | None
    in_split: str | None


def host_calls(events: Events, rank: int, *, complete: bool = True) -> tuple[list[Call], list[int]]:
    """Every collective span of a CPU-only rank as a call, by start; groups are set later.

    The second part is when collectives were asked for of which no span was recorded. A recording
    that is not ``complete`` was cut, the threads that ask at another time than the others.
    """
    found = events.read(
        rank,
        f"""
        SELECT rank, name, coalesce(tid, -1) AS tid, start_ns, start_ns + dur_ns AS end_ns,
               event_id, input_dims, input_types, concrete_inputs, src_rank, dst_rank,
               regexp_matches(name, '{BACKEND_SPAN}') AS is_span
        FROM event LEFT JOIN comm_event USING (run, rank, event_id)
        WHERE run = $1 AND rank BETWEEN $2 AND $3 AND start_ns IS NOT NULL AND dur_ns >= 0
          AND (regexp_matches(name, '{BACKEND_SPAN}') OR starts_with(name, 'c10d::'))
        ORDER BY rank, start_ns, event_id
        """,
    )
    requests = [_request(found, int(row)) for row in np.flatnonzero(~found["is_span"].astype(bool))]
    spans = [int(row) for row in np.flatnonzero(found["is_span"].astype(bool))]
    until = _last_seen(events, rank, {r.thread for r in requests})
    of_span = _assign(found, spans, requests, until, complete=complete)
    served = {id(request) for request in of_span.values()}
    lost = [request.start for request in requests if id(request) not in served]
    alike = _alike(found, of_span)
    calls = []
    for row in spans:
        request = of_span.get(row)
        call = _call(rank, found, row, request or alike.get(_span_key(found, row)))
        if request is None:
            call.enqueue = None
        calls.append(call)
    return calls, lost


def _alike(
    found: Mapping[str, Any], of_span: Mapping[int, _Request]
) -> dict[tuple[str, int | None], _Request]:
    """What a span whose request was lost says of itself: what all others of its kind and size do.

    Where those differ (gloo's all_reduce may be a reduce_scatter), it stays what the wire says.
    """
    kinds: dict[tuple[str, int | None], list[_Request]] = defaultdict(list)
    for row, request in of_span.items():
        kind = replace(request, start=0)
        known = kinds[_span_key(found, row)]
        if kind not in known:
            known.append(kind)
    return {key: known[0] for key, known in kinds.items() if len(known) == 1}


def _last_seen(events: Events, rank: int, threads: Collection[int | None]) -> int:
    """When the last event began on the threads that ask for collectives."""
    found = events.rows(
        rank,
        "SELECT rank, coalesce(tid, -1), max(start_ns) FROM event WHERE run = $1 "
        "AND rank BETWEEN $2 AND $3 AND class = 'cpu_op' GROUP BY ALL ORDER BY rank",
    )
    begun = [last for thread, last in found if thread in threads and last is not None]
    return max(begun, default=MISSING)


def _assign(
    found: Mapping[str, Any],
    spans: Sequence[int],
    requests: Sequence[_Request],
    until: int,
    *,
    complete: bool,
) -> dict[int, _Request]:
    """Span row -> the request it serves, in order for each kind and size.

    Of a whole recording by the delays (gloo_requests.py): an event may be lost. Of one that was cut
    they pair off one to one where their numbers agree; where not, each span takes the latest free
    request before it, from the last span on.
    """
    by_key: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for row in spans:
        by_key[_span_key(found, row)].append(row)
    waiting: dict[tuple[str, int | None], list[_Request]] = defaultdict(list)
    for request in requests:
        key = next((k for k in _keys(request) if k in by_key), None)
        if key is not None:
            waiting[key].append(request)
    result: dict[int, _Request] = {}
    free = _free(found, spans) if complete else {}
    for key, rows in by_key.items():
        queue = waiting[key]
        began = [int(found["start_ns"][row]) for row in rows]
        if complete:
            asked = [request.start for request in queue]
            for span, number in serve(asked, began, [free[row] for row in rows]):
                result[rows[span]] = queue[number]
            continue
        even = len(queue) == len(rows) and began[-1] <= until
        if even and all(r.start <= t for r, t in zip(queue, began, strict=True)):
            result.update(zip(rows, queue, strict=True))
            continue
        place = len(queue) - 1
        for row, start in zip(reversed(rows), reversed(began), strict=True):
            if start > until:
                continue
            while place >= 0 and queue[place].start > start:
                place -= 1
            if place < 0:
                break
            result[row] = queue[place]
            place -= 1
    return result


def _free(found: Mapping[str, Any], spans: Sequence[int]) -> dict[int, int]:
    """Span row -> when its thread ended what it ran before, ns."""
    ended: dict[int, int] = {}
    result = {}
    for row in spans:
        thread = int(found["tid"][row])
        result[row] = ended.get(thread, MISSING)
        ended[thread] = max(result[row], int(found["end_ns"][row]))
    return result


def _span_key(found: Mapping[str, Any], row: int) -> tuple[str, int | None]:
    wire = operation(str(found["name"][row]))
    return wire, None if wire == "barrier" else _elements(found, row)


def _elements(found: Mapping[str, Any], row: int) -> int | None:
    return elements_in(parse_json(found["input_dims"][row]), parse_json(found["input_types"][row]))


def _request(found: Mapping[str, Any], row: int) -> _Request:
    name = str(found["name"][row]).removeprefix("c10d::")
    dims = parse_json(found["input_dims"][row])
    dims = dims if isinstance(dims, list) else []
    types = parse_json(found["input_types"][row])
    kinds = types if isinstance(types, list) and len(types) == len(dims) else [None] * len(dims)
    sizes = [elements_in(one, kind) for one, kind in zip(dims, kinds, strict=True)]
    first, second = (*sizes, None, None)[:2]
    output_first = bool(_OUTPUT_FIRST.search(name)) and second is not None
    dtype = str(types[0]) if isinstance(types, list) and types else None
    op = operation(name)
    return _Request(
        op=op,
        start=int(found["start_ns"][row]),
        thread=int(found["tid"][row]),
        in_elements=second if output_first else first,
        out_elements=first,
        dtype=None if dtype in (None, "TensorList", "") else dtype,
        peer=_peer(op, found, row),
        in_split=_in_split(op, found, row),
    )


def _in_split(op: str, found: Mapping[str, Any], row: int) -> str | None:
    # c10d::alltoall_base_(Tensor output, Tensor input, ProcessGroup group,
    # int[] output_split_sizes, int[] input_split_sizes, ...): lists are recorded as text.
    inputs = parse_json(found["concrete_inputs"][row]) if op == "all_to_all" else None
    return str(inputs[4]) if isinstance(inputs, list) and len(inputs) > 4 else None


def _peer(op: str, found: Mapping[str, Any], row: int) -> int | None:
    if op not in POINT_TO_POINT:
        return None
    recorded = int(found["dst_rank" if op == "send" else "src_rank"][row])
    if recorded != MISSING:
        return recorded
    # c10d::send(Tensor[] tensors, ProcessGroup group, int dst, int tag), recv_ alike with src.
    inputs = parse_json(found["concrete_inputs"][row])
    try:
        return int(inputs[2]) if isinstance(inputs, list) and len(inputs) > 2 else None
    except (TypeError, ValueError):
        return None


def _keys(request: _Request) -> list[tuple[str, int | None]]:
    """What the backend's span of this request may say: kind on the wire and elements."""
    if request.op == "barrier":
        return [("barrier", None)]
    keys = [(request.op, request.in_elements)]
    if request.op == "reduce_scatter":
        # gloo's reduce_scatter is an all_reduce of the whole input, of which a rank keeps a part.
        keys += [("all_reduce", request.in_elements), ("all_reduce", request.out_elements)]
    elif request.out_elements != request.in_elements:
        keys.append((request.op, request.out_elements))
    return keys


def _call(
    rank: int,
    found: Mapping[str, Any],
    row: int,
    request: _Request | None,
) -> Call:
    elements = _elements(found, row)
    types = parse_json(found["input_types"][row])
    wire = operation(str(found["name"][row]))
    call = Call(
        library=str(found["name"][row]).split(":", 1)[0],
        rank=rank,
        op=wire,
        wire_op=wire,
        start=int(found["start_ns"][row]),
        end=int(found["end_ns"][row]),
        event_id=int(found["event_id"][row]),
        dtype=str(types[0]) if isinstance(types, list) and types else None,
        in_elements=elements,
        out_elements=elements if wire not in ("all_gather", "barrier") else None,
        stream=int(found["tid"][row]),
    )
    if request is not None:
        call.op = request.op
        call.enqueue, call.thread = request.start, request.thread
        call.in_elements = request.in_elements
        call.out_elements = request.out_elements
        call.dtype = request.dtype or call.dtype
        call.peer = request.peer
        call.in_split = request.in_split
        if call.op == "barrier":
            call.in_elements = call.out_elements = None
    return call


def threads_of(calls: list[Call]) -> list[int]:
    """The backend's threads in ascending order, without those that only run point-to-point."""
    return [
        int(t)
        for t in np.unique(
            [c.stream for c in calls if c.stream is not None and c.op not in POINT_TO_POINT]
        )
    ]
