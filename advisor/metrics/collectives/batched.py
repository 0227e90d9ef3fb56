"""What a kernel holds that c10d launches for a batch of sends and receives (batch_isend_irecv)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.metrics.collectives.call import Call
from advisor.store.columns import MISSING
from advisor.vocabulary.dtypes import element
from advisor.vocabulary.numbers import MOST_RANKS, decimal
from advisor.vocabulary.operations import POINT_TO_POINT, elements_in, parse_json

_ASKED, _SHAPED = ("c10d::send", "c10d::recv_"), ("nccl:send", "nccl:recv")
_MESSAGES = ("send", "recv")


class Batches:
    """Sends and receives that a kernel launched after them holds (c10d's batch_isend_irecv).

    ``record_param_comms`` has group, peer and size of each (torch 2.5 and later), whether shapes
    were recorded or not. Before, ``c10d::send`` takes tensors, group, destination in the group and
    tag; ``c10d::recv_`` alike (torch/csrc/distributed/c10d/Ops.cpp). The range ``nccl:send`` in it
    has the tensor's shape.
    """

    def __init__(self, hosts: dict[str, Any]) -> None:
        self._hosts = hosts
        names = np.array([*_ASKED, *_SHAPED], dtype=object)
        told = np.isin(hosts["collective"], np.array(_MESSAGES, dtype=object))
        told &= hosts["name"] == "record_param_comms"
        own = np.flatnonzero(np.isin(hosts["name"], names) | told)
        self._rows = own[np.argsort(hosts["start_ns"][own], kind="stable")]
        self._starts = hosts["start_ns"][self._rows]
        self._from: dict[int, int] = {}

    def fill(self, call: Call, tid: int, launch: int) -> None:
        """Give a call its ``ends``; its operation and size where it holds one kind alone."""
        names, threads = self._hosts["name"], self._hosts["tid"]
        first, last = np.searchsorted(self._starts, (self._from.get(tid, -1), launch), "right")
        recent = [row for row in self._rows[first:last] if threads[row] == tid]
        if self._told(call, [row for row in recent if names[row] == "record_param_comms"]):
            self._from[tid] = launch
            return
        ends = []
        for row in (row for row in recent if names[row] in _ASKED):
            inputs = parse_json(self._hosts["concrete_inputs"][row])
            if not isinstance(inputs, list) or len(inputs) <= 2:
                continue
            place = decimal(str(inputs[2]), most=MOST_RANKS)
            if place is not None:
                ends.append(("send" if names[row] == "c10d::send" else "recv", place))
        self._from[tid] = launch
        if not ends:
            return
        call.ends = tuple(ends)
        if len({kind for kind, _ in ends}) == 1:
            call.op = ends[0][0]
            shaped = [row for row in recent if names[row] in _SHAPED]
            if len(shaped) == 1 and call.in_elements is None:
                types = parse_json(self._hosts["input_types"][shaped[0]])
                dims = parse_json(self._hosts["input_dims"][shaped[0]])
                call.in_elements = elements_in(dims, types)
                call.dtype = str(types[0]) if isinstance(types, list) and types else None
            call.group_size = 2
            call.set_size()

    def _told(self, call: Call, own: Sequence[int]) -> bool:
        """Give a call the group of its messages; of one alone its end and size too. Whether they
        tell a group, which is one."""
        hosts = self._hosts
        groups = {str(hosts["process_group"][row]) for row in own if hosts["process_group"][row]}
        if len(groups) != 1:
            return False
        (call.group,) = groups
        if len(own) == 1:
            (row,) = own
            call.op, call.peer, call.in_elements = self._message(call, row)
            call.group_size, call.dtype = 2, hosts["dtype"][row]
            call.set_size()
            return True
        found = []
        for row in own:
            kind, peer, elements = self._message(call, row)
            if peer is not None:
                width = element(hosts["dtype"][row])[1]
                size = None if elements is None or width is None else elements * width
                found.append((kind, peer, size))
        call.messages = tuple(found)
        # Both ways of a link carry data at once: the largest message tells how long it takes.
        call.bytes = max((size for _, _, size in found if size), default=None)
        return True

    def _message(self, call: Call, row: int) -> tuple[str, int | None, int | None]:
        """Kind, the other end's rank and elements of a message as c10d recorded it."""
        known = {
            column: int(self._hosts[column][row]) if self._hosts[column][row] != MISSING else None
            for column in ("in_elements", "src_rank", "dst_rank")
        }
        kind = str(self._hosts["collective"][row])
        peer = peer_of(kind, call.rank, known["src_rank"], known["dst_rank"])
        return kind, peer, known["in_elements"]


def peer_of(op: str, rank: int, source: int | None, destination: int | None) -> int | None:
    """The other end of a message by its two ranks; None where it names none but its own."""
    if op not in POINT_TO_POINT:
        return None
    if op == "send":
        return destination if destination != rank else None
    return source if source != rank else None
