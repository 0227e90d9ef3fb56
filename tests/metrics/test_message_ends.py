"""Who a message goes to where the kernel does not say so (torch before 2.5)."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.nccl import named_peer

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
