"""Collective calls from communication kernels.

A kernel's own metadata (``Collective name``, ``In msg nelems`` ...) is taken first. Kernels
without any (old NCCL traces, RCCL's ``ncclDevKernel_Generic``) take it from the
``record_param_comms`` operator or the ``nccl:*`` annotation that their launch lies in, on the same
thread; a kernel without a launch takes the name of the ``nccl:*`` annotation on its own stream.
What none of them tells comes from the shapes of the operator that asked (``c10d::_allgather_base_``
of [1024] from [128] is one over 8 ranks; ``symm_mem::one_shot_all_reduce``; DeepEP's dispatch).
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.metrics.collectives.batched import Batches, peer_of
from advisor.metrics.collectives.call import Call
from advisor.metrics.timeline.intervals import Int64s
from advisor.metrics.timeline.timeline import COMM, Timeline
from advisor.model.communication import asks_pattern, known_kernel
from advisor.store.columns import MISSING, rows
from advisor.store.events import Events
from advisor.vocabulary.numbers import MOST_RANKS, within
from advisor.vocabulary.operations import POINT_TO_POINT, elements_in, operation, parse_json

# c10d's operators that write into one tensor from one tensor.
_INTO = re.compile(r"(all_?gather|reduce_scatter|alltoall)_(base|into|tensor)")
# ProcessGroupNCCL::send and recv: "nccl:send 0->1", "nccl:recv 1<-0", ranks within the group
# (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp); Src and Dst Rank came with torch 2.5.
_ENDS = re.compile(r"^nccl:(?:send (\d+)->(\d+)|recv (\d+)<-(\d+))$")
_METADATA = (
    "collective, dtype, in_elements, out_elements, group_size, process_group, seq, "
    "src_rank, dst_rank, in_split"
)


class _Spans(NamedTuple):
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


Members = Sequence[tuple[str, Sequence[int]]]


def members(con: Any, run: str) -> Members:
    """Groups of which the ranks are known, each with them; one name can stand for several."""
    return rows(
        con,
        "SELECT process_group, ranks FROM process_group WHERE run = ? AND ranks IS NOT NULL",
        [run],
    )


def device_calls(events: Events, line: Timeline, groups: Members) -> list[Call]:
    """Every communication kernel of one rank as a call, by start."""
    rank = line.rank
    kernels = events.read(
        rank,
        f"""
        SELECT rank, name, start_ns, start_ns + dur_ns AS end_ns, stream, event_id, external_id,
               coalesce(contains(name, 'PtoP'), false) AS copied, {_METADATA}
        FROM event LEFT JOIN comm_event USING (run, rank, event_id)
        WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'comm' AND device IS NOT NULL
          AND category IS DISTINCT FROM 'gpu_user_annotation'
          AND start_ns IS NOT NULL AND dur_ns >= 0
        ORDER BY rank, start_ns, event_id
        """,
    )
    if not len(kernels["start_ns"]):
        return []
    # The timeline holds the same events in the same order, with their launches.
    kernels["launch_ns"] = line.launch[line.kind == COMM]
    kernels["launch_tid"] = line.thread[line.kind == COMM]
    hosts = events.read(
        rank,
        f"""
        SELECT rank, name, category, start_ns, start_ns + dur_ns AS end_ns, tid, stream,
               external_id, input_dims, input_types, concrete_inputs, {_METADATA}
        FROM event LEFT JOIN comm_event USING (run, rank, event_id)
        WHERE run = $1 AND rank BETWEEN $2 AND $3 AND start_ns IS NOT NULL
          AND (name = 'record_param_comms' OR starts_with(name, 'nccl:')
               OR (input_dims IS NOT NULL AND (starts_with(name, 'c10d::')
                   OR starts_with(name, '_c10d_functional') OR regexp_matches(name, $4))))
        ORDER BY rank, start_ns, event_id
        """,
        [asks_pattern()],
    )
    parameters = _by(hosts, "tid", hosts["name"] == "record_param_comms")
    named = np.array([str(name).startswith("nccl:") for name in hosts["name"]], dtype=bool)
    projected = hosts["category"] == "gpu_user_annotation"
    annotations = _by(hosts, "tid", named & ~projected)
    asking = _by(hosts, "tid", ~named & (hosts["name"] != "record_param_comms") & ~projected)
    on_stream = _by(hosts, "stream", named & projected)
    by_external = {
        int(e): row
        for row, e in enumerate(hosts["external_id"])
        if e > 0 and hosts["name"][row] == "record_param_comms"
    }
    batches = Batches(hosts)
    calls = []
    by_copies: dict[int, Call] = {}
    for index in range(len(kernels["start_ns"])):
        launch, tid = int(kernels["launch_ns"][index]), int(kernels["launch_tid"][index])
        stream = int(kernels["stream"][index])
        parameter = annotation = operator = None
        if launch != MISSING:
            parameter = parameters[tid].at(launch) if tid in parameters else None
            annotation = annotations[tid].at(launch) if tid in annotations else None
            operator = asking[tid].at(launch) if tid in asking else None
        if parameter is None:
            parameter = by_external.get(int(kernels["external_id"][index]))
        own = annotation if kernels["copied"][index] else None
        if own is not None and (begun := by_copies.get(own)) is not None:
            # The copies of one collective: one to each peer, on one stream or on several.
            begun.end = max(begun.end, int(kernels["end_ns"][index]))
            continue
        if annotation is None and parameter is None and stream in on_stream:
            annotation = on_stream[stream].at(int(kernels["start_ns"][index]))
        shapes = _Shapes.of(hosts, operator) if operator is not None else None
        call = _call(rank, kernels, index, hosts, parameter, annotation, shapes, groups)
        if call.op == "other" and call.group is None and launch != MISSING:
            batches.fill(call, tid, launch)
        if call.peer is None and call.op in POINT_TO_POINT and annotation is not None:
            call.peer = named_peer(str(hosts["name"][annotation]), call, groups)
            if (
                call.group is None
                and not call.ends
                and (places := _places(hosts["name"][annotation]))
            ):
                call.ends = ((call.op, places[1]),)
        if own is not None:
            by_copies[own] = call
        calls.append(call)
    return calls


class _Shapes(NamedTuple):
    """What the arguments of an operator say: elements out and in, and their type."""

    name: str
    out_elements: int | None
    in_elements: int | None
    dtype: str | None

    @classmethod
    def of(cls, hosts: dict[str, Any], row: int) -> "_Shapes":
        """c10d's operators take their output first; the others what they send."""
        name = str(hosts["name"][row])
        dims, types = parse_json(hosts["input_dims"][row]), parse_json(hosts["input_types"][row])
        found = [
            (elements, kind)
            for place, one in enumerate(dims if isinstance(dims, list) else [])
            for kind in (types[place] if isinstance(types, list) and place < len(types) else None,)
            if (elements := elements_in(one, kind)) is not None
        ]
        dtype = next((str(kind) for _, kind in found if kind and kind != "TensorList"), None)
        sizes = [elements for elements, _ in found]
        if not name.startswith("c10d::"):
            return cls(name, None, sizes[0] if sizes else None, dtype)
        if len(sizes) >= 2 and _INTO.search(name):
            return cls(name, sizes[0], sizes[1], dtype)
        return cls(name, None, sizes[0] if sizes else None, dtype)

    def ranks(self, op: str) -> int | None:
        """The group's size, where the output is a whole multiple of the input or the reverse."""
        if not self.out_elements or not self.in_elements:
            return None
        large, small = self.out_elements, self.in_elements
        if op == "reduce_scatter":
            large, small = small, large
        elif op != "all_gather":
            return None
        return large // small if large % small == 0 and large > small else None


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
    shapes: _Shapes | None,
    groups: Members,
) -> Call:
    sources = [(kernels, index)]
    if parameter is not None:
        sources.append((hosts, parameter))

    def text(column: str) -> str | None:
        for table, row in sources:
            if found := table[column][row]:
                return str(found)
        return None

    def number(column: str) -> int | None:
        for table, row in sources:
            if (found := table[column].item(row)) != MISSING:
                return int(found)
        return None

    name = text("collective")
    dtype, elements, out = text("dtype"), number("in_elements"), number("out_elements")
    if annotation is not None:
        name = name or str(hosts["name"][annotation])
        types = parse_json(hosts["input_types"][annotation])
        if elements is None:
            elements = elements_in(parse_json(hosts["input_dims"][annotation]), types)
        if dtype is None:
            dtype = str(types[0]) if isinstance(types, list) and types else None
    known = known_kernel(str(kernels["name"][index]))
    wire = known.op if known is not None else operation(str(kernels["name"][index]))
    op = operation(name) if name else wire
    if op == "other":
        op = wire
    if op == "other" and shapes is not None:
        op = operation(shapes.name)
    ranks = number("group_size")
    if shapes is not None:
        # A kernel that one operator launches with others (a fused layer's) need not be its own.
        fits = known is None or known.bytes_from != "none"
        if out is None and fits:
            out = shapes.out_elements
        if elements is None and fits:
            elements = shapes.in_elements
        dtype = dtype or (shapes.dtype if fits else None)
        ranks = ranks or shapes.ranks(op)
    if op == "all_reduce" and None not in (elements, out) and elements != out:
        elements = out = None  # one of both is damaged, and nothing says which
    launch = int(kernels["launch_ns"][index])
    call = Call(
        rank=rank,
        op=op,
        library=known.library if known is not None else None,
        wire_op=wire if wire != "other" else None,
        start=int(kernels["start_ns"][index]),
        end=int(kernels["end_ns"][index]),
        event_id=int(kernels["event_id"][index]),
        group=text("process_group"),
        group_size=within(ranks, 1, MOST_RANKS),
        seq=number("seq"),
        dtype=dtype,
        in_elements=elements,
        out_elements=out,
        enqueue=launch if launch != MISSING else None,
        thread=int(kernels["launch_tid"][index]) if launch != MISSING else None,
        stream=int(kernels["stream"][index]),
        in_split=text("in_split"),
    )
    call.set_size()
    call.peer = _recorded_peer(call, number("src_rank"), number("dst_rank"), groups)
    return call


def _recorded_peer(
    call: Call, source: int | None, destination: int | None, groups: Members
) -> int | None:
    """The other end of a message by the ends that its kernel has.

    torch gives the other alone, as a rank. Of writers that give both some count within the group:
    then the own end is not its rank, or the other none of the group.
    """
    own, other = (source, destination) if call.op == "send" else (destination, source)
    if call.op in POINT_TO_POINT and own is not None and other is not None:
        placed = _placed_peer(own, other, call, groups)
        if placed is not None and (
            own != call.rank
            or not any(name == call.group and {own, other} <= {*ranks} for name, ranks in groups)
        ):
            return placed
    return peer_of(call.op, call.rank, source, destination)


def named_peer(name: str, call: Call, groups: Members) -> int | None:
    """The other end by the annotation, whose ranks count within the call's group."""
    places = _places(name)
    return _placed_peer(*places, call, groups) if places is not None else None


def _placed_peer(own: int, other: int, call: Call, groups: Members) -> int | None:
    """The rank at a place of the group in which the call's own rank has the place ``own``."""
    for group, ranks in groups:
        if group == call.group and max(own, other) < len(ranks) and ranks[own] == call.rank:
            return ranks[other] if other != own else None
    return None


def _places(name: str) -> tuple[int, int] | None:
    """A rank's own place in the group and the other end's, by an annotation that tells them."""
    found = _ENDS.match(name)
    if found is None:
        return None
    own, other = (int(end[:9]) for end in found.groups() if end is not None)
    return own, other
