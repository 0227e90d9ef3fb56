"""Collective calls from communication kernels.

A kernel's own metadata (``Collective name``, ``In msg nelems`` ...) is taken first. Kernels
without any (old NCCL traces, RCCL's ``ncclDevKernel_Generic``) take it from the
``record_param_comms`` operator or the ``nccl:*`` annotation that their launch lies in, on the same
thread; a kernel without a launch takes the name of the ``nccl:*`` annotation on its own stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.metrics.timeline.intervals import Int64s
from advisor.metrics.timeline.timeline import COMM, Timeline
from advisor.store.columns import MISSING, read
from advisor.vocabulary.operations import POINT_TO_POINT, elements_in, operation, parse_json

_METADATA = (
    "collective, dtype, in_elements, out_elements, group_size, process_group, seq, "
    "src_rank, dst_rank, in_split"
)


@dataclass(frozen=True)
class _Spans:
    """Candidate sources of metadata on one thread or stream, sorted by start."""

    start: Int64s
    end: Int64s
    row: Int64s

    def at(self, time: int) -> int | None:
        """Row of the span that holds a time: the one that began last."""
        index = int(np.searchsorted(self.start, time, side="right")) - 1
        # Annotations of one thread are nested at most a few deep.
        for candidate in range(index, max(index - 4, -1), -1):
            if time <= self.end[candidate]:
                return int(self.row[candidate])
        return None


def device_calls(con: Any, run: str, line: Timeline) -> list[Call]:
    """Every communication kernel of one rank as a call, by start."""
    rank = line.rank
    kernels = read(
        con,
        f"""
        SELECT name, start_ns, start_ns + dur_ns AS end_ns, stream, event_id, external_id,
               {_METADATA}
        FROM event LEFT JOIN comm_event USING (run, rank, event_id)
        WHERE run = $1 AND rank = $2 AND class = 'comm' AND device IS NOT NULL
          AND category IS DISTINCT FROM 'gpu_user_annotation'
          AND start_ns IS NOT NULL AND dur_ns >= 0
        ORDER BY start_ns, event_id
        """,
        [run, rank],
    )
    if not len(kernels["start_ns"]):
        return []
    # The timeline holds the same events in the same order, with their launches.
    kernels["launch_ns"] = line.launch[line.kind == COMM]
    kernels["launch_tid"] = line.thread[line.kind == COMM]
    hosts = read(
        con,
        f"""
        SELECT name, category, start_ns, start_ns + dur_ns AS end_ns, tid, stream, external_id,
               input_dims, input_types, {_METADATA}
        FROM event LEFT JOIN comm_event USING (run, rank, event_id)
        WHERE run = ? AND rank = ? AND start_ns IS NOT NULL
          AND (name = 'record_param_comms' OR starts_with(name, 'nccl:'))
        ORDER BY start_ns, event_id
        """,
        [run, rank],
    )
    parameters = _by(hosts, "tid", hosts["name"] == "record_param_comms")
    host_side = (hosts["name"] != "record_param_comms") & (
        hosts["category"] != "gpu_user_annotation"
    )
    annotations = _by(hosts, "tid", host_side)
    on_stream = _by(hosts, "stream", hosts["category"] == "gpu_user_annotation")
    by_external = {
        int(e): row
        for row, e in enumerate(hosts["external_id"])
        if e > 0 and hosts["name"][row] == "record_param_comms"
    }
    calls = []
    for index in range(len(kernels["start_ns"])):
        launch, tid = int(kernels["launch_ns"][index]), int(kernels["launch_tid"][index])
        stream = int(kernels["stream"][index])
        parameter = annotation = None
        if launch != MISSING:
            parameter = parameters[tid].at(launch) if tid in parameters else None
            annotation = annotations[tid].at(launch) if tid in annotations else None
        if parameter is None:
            parameter = by_external.get(int(kernels["external_id"][index]))
        if annotation is None and parameter is None and stream in on_stream:
            annotation = on_stream[stream].at(int(kernels["start_ns"][index]))
        calls.append(_call(rank, kernels, index, hosts, parameter, annotation))
    return calls


def _by(hosts: dict[str, Any], key: str, chosen: Any) -> dict[int, _Spans]:
    result = {}
    for value in np.unique(hosts[key][chosen]):
        row = np.flatnonzero(chosen & (hosts[key] == value))
        result[int(value)] = _Spans(hosts["start_ns"][row], hosts["end_ns"][row], row)
    return result


def _call(
    rank: int,
    kernels: dict[str, Any],
    index: int,
    hosts: dict[str, Any],
    parameter: int | None,
    annotation: int | None,
) -> Call:
    sources = [(kernels, index)]
    if parameter is not None:
        sources.append((hosts, parameter))

    def text(column: str) -> str | None:
        return next((table[column][row] for table, row in sources if table[column][row]), None)

    def number(column: str) -> int | None:
        found = (int(table[column][row]) for table, row in sources)
        return next((value for value in found if value != MISSING), None)

    name = text("collective")
    dtype, elements, out = text("dtype"), number("in_elements"), number("out_elements")
    if annotation is not None:
        name = name or str(hosts["name"][annotation])
        if elements is None:
            elements = elements_in(parse_json(hosts["input_dims"][annotation]))
        if dtype is None:
            types = parse_json(hosts["input_types"][annotation])
            dtype = str(types[0]) if isinstance(types, list) and types else None
    op = operation(name or str(kernels["name"][index]))
    wire = operation(str(kernels["name"][index]))
    if op == "other":
        op = wire
    launch = int(kernels["launch_ns"][index])
    call = Call(
        rank=rank,
        op=op,
        wire_op=wire if wire != "other" else None,
        start=int(kernels["start_ns"][index]),
        end=int(kernels["end_ns"][index]),
        event_id=int(kernels["event_id"][index]),
        group=text("process_group"),
        group_size=number("group_size"),
        seq=number("seq"),
        dtype=dtype,
        in_elements=elements,
        out_elements=out,
        peer=_peer(op, rank, number("src_rank"), number("dst_rank")),
        enqueue=launch if launch != MISSING else None,
        thread=int(kernels["launch_tid"][index]) if launch != MISSING else None,
        stream=int(kernels["stream"][index]),
        in_split=text("in_split"),
    )
    call.set_size()
    return call


def _peer(op: str, rank: int, source: int | None, destination: int | None) -> int | None:
    if op not in POINT_TO_POINT:
        return None
    if op == "send":
        return destination if destination != rank else None
    return source if source != rank else None
