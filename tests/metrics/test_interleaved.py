"""Pipelines whose stages hold several chunks: their ranks send to each other in a ring."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.models.pipeline import _chains, _interleaved, _neighbours

STAGES = (4, 1, 6, 3)  # ranks in the order of their stages


def calls(stages: tuple[int, ...], micro_batches: int, chunks: int) -> dict[int, list[Call]]:
    """Messages of one step: activations forward through all chunks, then gradients back."""
    found: dict[int, list[Call]] = {rank: [] for rank in stages}
    path = list(stages) * chunks
    hops = [pair for pair in pairwise(path) for _ in range(micro_batches)]
    at = 0
    for source, target in hops + [(b, a) for a, b in reversed(hops)]:
        for rank, op, peer in ((source, "send", target), (target, "recv", source)):
            found[rank].append(Call(rank, op, at, at + 5, at, peer=peer, step=0))
            at += 1
    return found


@pytest.mark.parametrize(("micro_batches", "chunks"), [(1, 2), (4, 2), (8, 3)])
def test_a_ring_is_a_pipeline_from_where_messages_begin(micro_batches: int, chunks: int) -> None:
    own = calls(STAGES, micro_batches, chunks)
    beside, first = _neighbours(own)
    assert _chains(beside, first) == [list(STAGES)]
    assert _interleaved(own, STAGES) == (micro_batches, chunks)


def test_one_chunk_is_a_chain() -> None:
    beside, first = _neighbours(calls(STAGES, 4, 1))
    assert _chains(beside, first) == [list(STAGES)]


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_recording_that_begins_in_the_middle_of_a_step_tells_the_first_stage(chunks: int) -> None:
    """The host is ahead: the gradients of the step before, asked for before the recording, come
    first, and in them the last stage sends."""
    own = calls(STAGES, 4, chunks)
    for found in own.values():
        back = found[len(found) // 2 :]
        found += [replace(c, step=None, start=c.start - 1000) for c in back]
    assert _chains(*_neighbours(own)) == [list(STAGES)]


def test_a_ring_in_which_all_send_first_is_no_pipeline() -> None:
    """As sequence parallelism passes its keys and values on, both ways."""
    own = {
        rank: [
            Call(rank, op, at, at + 5, at, peer=peer, step=0)
            for at, (op, peer) in enumerate(
                (op, (rank + way) % 4) for op in ("send", "recv") for way in (1, -1)
            )
        ]
        for rank in range(4)
    }
    assert _chains(*_neighbours(own)) == []
