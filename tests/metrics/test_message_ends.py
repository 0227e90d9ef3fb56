"""Who a message goes to where the kernel does not say so: before torch 2.5, and in batches."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.match import match
from advisor.metrics.collectives.nccl import device_calls, named_peer
from advisor.metrics.collectives.open_groups import pipeline_groups
from advisor.metrics.lateness.waiting import split_waiting
from advisor.metrics.links.durations import members_of
from advisor.metrics.links.locations import Members
from advisor.metrics.timeline.timeline import timelines
from advisor.store.events import Events
from tests.metrics.support import store_of

# Of a mesh (pipeline, data): every column of it is a pipeline, and all columns share a name.
GROUPS = [("1", (0, 4, 8, 12)), ("1", (1, 5, 9, 13)), ("0", tuple(range(16)))]


@pytest.mark.parametrize(
    ("name", "rank", "group", "peer"),
    [
        ("nccl:send 1->2", 5, "1", 9),
        ("nccl:recv 1<-0", 4, "1", 0),
        ("nccl:recv 3<-15", 3, "0", 15),
        ("nccl:send 1->2", 6, "1", None),  # of no column that is known
        ("nccl:send 1->7", 4, "1", None),  # the group has four ranks
        ("nccl:send 1->2", 4, "2", None),  # a group without members
        ("nccl:coalesced", 4, "1", None),
    ],
)
def test_ranks_of_the_annotation_count_within_the_group(
    name: str, rank: int, group: str, peer: int | None
) -> None:
    call = Call(rank=rank, op="send", start=0, end=1, event_id=0, group=group)
    assert named_peer(name, call, GROUPS) == peer


@pytest.mark.parametrize(
    ("rank", "op", "ends", "peer"),
    [
        (0, "send", (0, 1), 4),  # its own place is its rank, and rank 1 is of another pipeline
        (8, "recv", (1, 2), 4),
        (4, "send", (4, 8), 8),  # ranks
        (4, "send", (None, 8), 8),  # as torch records it
        (4, "send", (None, 1), 1),
    ],
)
def test_both_ends_count_within_the_group_where_they_cannot_be_ranks(
    rank: int, op: str, ends: tuple[int | None, int], peer: int
) -> None:
    trace = batched(rank, [])
    (device,) = (event for event in trace["traceEvents"] if event["cat"] == "kernel")  # type: ignore[attr-defined]
    source, destination = ends
    told = {"Src Rank": source, "Dst Rank": destination}
    device["args"] |= {"Collective name": op, "Process Group Name": "1"} | {
        key: end for key, end in told.items() if end is not None
    }
    with store_of({rank: trace}) as store:
        events = Events(store.con, "run")
        (line,) = timelines(events)
        (call,) = device_calls(events, line, GROUPS)
    assert (call.op, call.peer) == (op, peer)


def test_places_of_the_annotation_tell_a_pipeline_whose_group_is_not_named() -> None:
    """torch before 2.4, without shapes: ranks 0, 2 and 1, 3 are pipelines, by place in them."""
    with store_of({rank: annotated(rank) for rank in range(4)}) as store:
        events = Events(store.con, "run")
        calls = {line.rank: device_calls(events, line, ()) for line in timelines(events)}
        groups = pipeline_groups(calls)
    assert [one.ranks for one in groups.values()] == [(0, 2), (1, 3)]
    assert {rank: own[0].peer for rank, own in calls.items()} == {0: 2, 1: 3, 2: 0, 3: 1}


def batched(rank: int, sent: list[tuple[str, int]]) -> dict[str, object]:
    """A trace without shapes: what batch_isend_irecv records, and the one kernel it launches."""
    told = {
        "Process Group Name": "3", "Group size": 4, "dtype": "BFloat16",
        "In msg nelems": 4096, "Out msg nelems": 4096,
    }  # fmt: skip
    host = {"ph": "X", "pid": 1, "tid": 7}
    events: list[dict[str, object]] = [
        {**host, "cat": "cpu_op", "name": "record_param_comms", "ts": 10 * number, "dur": 2,
         "args": {**told, "Collective name": op, "Src Rank": rank if op == "send" else peer,
                  "Dst Rank": peer if op == "send" else rank}}
        for number, (op, peer) in enumerate(sent)
    ]  # fmt: skip
    launch = {"correlation": 5, "External id": 9}
    events += [
        {**host, "cat": "user_annotation", "name": "nccl:coalesced", "ts": 100, "dur": 20},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": 105, "dur": 5,
         "args": launch},
        {"ph": "X", "pid": 0, "tid": 40, "cat": "kernel", "ts": 120, "dur": 50,
         "name": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
         "args": {**launch, "device": 0, "stream": 40}},
    ]  # fmt: skip
    return {"distributedInfo": {"world_size": 4}, "traceEvents": events}


def annotated(rank: int) -> dict[str, object]:
    """A trace without groups: the first stage of two sends its message, the second receives it."""
    name = "nccl:recv 1<-0" if rank > 1 else "nccl:send 0->1"
    host, launch = {"ph": "X", "pid": 1, "tid": 7}, {"correlation": 5, "External id": 9}
    return {
        "distributedInfo": {"world_size": 4},
        "traceEvents": [
            {**host, "cat": "user_annotation", "name": name, "ts": 100, "dur": 20},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": 105, "dur": 5,
             "args": launch},
            {"ph": "X", "pid": 0, "tid": 40, "cat": "kernel", "ts": 120, "dur": 50,
             "name": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
             "args": {**launch, "device": 0, "stream": 40}},
        ],
    }  # fmt: skip


def read(trace: dict[str, object]) -> Call:
    with store_of({1: trace}) as store:
        events = Events(store.con, "run")
        (line,) = timelines(events)
        (call,) = device_calls(events, line, [])
    return call


def test_a_batch_of_one_message_has_its_kind_end_and_size_without_shapes() -> None:
    call = read(batched(1, [("send", 2)]))
    assert (call.op, call.peer, call.group, call.bytes) == ("send", 2, "3", 8192)
    call = read(batched(1, [("recv", 0)]))
    assert (call.op, call.peer, call.group, call.bytes) == ("recv", 0, "3", 8192)


def test_a_batch_of_both_ways_is_of_the_pipeline_s_group() -> None:
    call = read(batched(1, [("send", 2), ("recv", 2)]))
    assert (call.op, call.group) == ("other", "3")
    assert call.messages == (("send", 2, 8192), ("recv", 2, 8192))
    assert call.bytes == 8192  # both ways of a link carry data at once


def kernel(rank: int, start: int, end: int, *messages: tuple[str, int], step: int = 1) -> Call:
    held = tuple((kind, peer, 8192) for kind, peer in messages)
    return Call(rank, "other", start, end, event_id=start, group="3", step=step, messages=held,
                bytes=8192)  # fmt: skip


def test_kernels_that_exchange_messages_are_one_call_step_by_step() -> None:
    """GIVEN two stages, of which the first recorded an exchange of the step before too."""
    calls = {
        1: [kernel(1, 0, 9, ("send", 2), ("recv", 2), step=0),
            kernel(1, 20, 39, ("send", 2), ("recv", 2)),
            kernel(1, 60, 79, ("send", 2), ("recv", 2))],
        2: [kernel(2, 30, 39, ("send", 1), ("recv", 1)),
            kernel(2, 70, 79, ("send", 1), ("recv", 1))],
    }  # fmt: skip
    found = match(calls, {}, stepped=True)
    pairs = [sorted((rank, call.start) for rank, call in one.items()) for one in found.columns]
    assert sorted(pairs) == [[(1, 0)], [(1, 20), (2, 30)], [(1, 60), (2, 70)]]
    assert found.unmatched.total() == 1
    split_waiting(found.columns, {}, {})
    assert [(c.wait, c.transfer, c.t_is) for c in calls[1][1:]] == [(10, 9, "matched")] * 2


def test_a_message_alone_is_taken_by_the_kernel_that_holds_its_other_end() -> None:
    calls = {
        1: [Call(1, "send", 5, 30, event_id=1, group="3", step=1, peer=2, bytes=8192)],
        2: [kernel(2, 20, 30, ("recv", 1), ("send", 3))],
        3: [Call(3, "recv", 20, 40, event_id=3, group="3", step=1, peer=2, bytes=8192)],
    }
    found = match(calls, {}, stepped=True)
    assert sorted(sorted(one) for one in found.columns) == [[1, 2], [3]]


def test_links_are_compared_by_exchanges() -> None:
    def exchange(*messages: tuple[str, int]) -> dict[int, Call]:
        return {1: kernel(1, 0, 9, *messages), 2: kernel(2, 0, 9, ("send", 1), ("recv", 1))}

    column = exchange(("send", 2), ("recv", 2))
    members = members_of(column[1], column, None)  # type: ignore[arg-type]
    assert members == Members((1, 2), edges=frozenset({(1, 2), (2, 1)}))
    column = exchange(("send", 2), ("recv", 0))
    assert members_of(column[1], column, None) is None  # type: ignore[arg-type]
