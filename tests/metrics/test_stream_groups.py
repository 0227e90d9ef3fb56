"""Groups without names, by which ranks leave collectives together."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.open_groups import contradicted
from advisor.metrics.collectives.stream_groups import groups_by_ends

US = 1_000
STEPS, CALLS = 4, 10
BESIDE, ACROSS = 40, 44


def recorded(
    meshes: dict[int, list[list[int]]], *, apart_us: float = 60.0
) -> dict[int, list[Call]]:
    """Calls of eight ranks: those of one group end within a microsecond, on hosts' own clocks."""
    draw = np.random.default_rng(3)
    calls: dict[int, list[Call]] = {rank: [] for rank in range(8)}
    for stream, mesh in meshes.items():
        for step in range(STEPS):
            for number in range(CALLS):
                at = (step * 40 + number * 2) * 1_000 * US + stream * US
                for group in mesh:
                    end = at + 500 * US + int(draw.normal(0, apart_us) * US)
                    for rank in group:
                        clock = rank // 4 * 3_000_000
                        own = end + clock + int(draw.integers(0, US))
                        call = Call(rank, "all_reduce", at + clock, own, 0, step=step,
                                    stream=stream, in_elements=1024, dtype="Float")  # fmt: skip
                        calls[rank].append(call)
    return calls


def test_groups_of_two_streams_are_told_apart() -> None:
    pairs = [[rank, rank + 4] for rank in range(4)]
    calls = recorded({BESIDE: [[0, 1, 2, 3], [4, 5, 6, 7]], ACROSS: pairs})
    found = groups_by_ends(calls, 8)
    assert {one.ranks for one in found.values()} == {(0, 1, 2, 3), (4, 5, 6, 7), *map(tuple, pairs)}
    assert {call.group for call in calls[5] if call.stream == BESIDE} == {"ranks 4, 5, 6, 7"}
    (across,) = {(call.group, call.group_size) for call in calls[5] if call.stream == ACROSS}
    assert across == ("ranks 1, 5", 2)


@pytest.mark.parametrize("missing", [False, True])
def test_what_fits_no_mesh_stays_open(missing: bool) -> None:
    """GIVEN ranks that all end together or all apart, or one that calls something else THEN nothing
    is told."""
    for mesh in ([list(range(8))], [[rank] for rank in range(8)], [[0, 1, 2], [3, 4, 5], [6, 7]]):
        calls = recorded({BESIDE: mesh})
        assert groups_by_ends(calls, 8) == {}
    calls = recorded({BESIDE: [[0, 1, 2, 3], [4, 5, 6, 7]]})
    calls[2][5].op = "all_gather"
    if missing:
        del calls[2][:1]
    assert groups_by_ends(calls, 8) == {}
    assert {call.group for own in calls.values() for call in own} == {None}


def test_groups_of_ranks_that_were_read_are_told_without_the_others() -> None:
    calls = recorded({BESIDE: [[0, 1, 2, 3], [4, 5, 6, 7]]})
    del calls[6]
    assert {one.ranks for one in groups_by_ends(calls, 8).values()} == {(0, 1, 2, 3), (4, 5, 6, 7)}


@pytest.mark.parametrize("pieces", [True, False])
def test_pieces_that_a_scatter_left_are_reduced_with_who_holds_the_same(pieces: bool) -> None:
    """GIVEN reductions whose ends tell no mesh, as one host's network holds up half of them THEN
    they are the replicas' where they are of the pieces that the shards' reductions leave."""
    shards = [[0, 1, 2, 3], [4, 5, 6, 7]]
    calls = recorded({BESIDE: shards, ACROSS: [[rank] for rank in range(8)]})
    for call in (call for own in calls.values() for call in own if call.stream == BESIDE):
        call.op, call.out_elements = "reduce_scatter", 1024 if pieces else 256
    told = {one.ranks for one in groups_by_ends(calls, 8).values()}
    replicas = {(rank, rank + 4) for rank in range(4)} if pieces else set()
    assert told == {*map(tuple, shards), *replicas}


@pytest.mark.parametrize("group_size", [2, 8, None])
def test_calls_of_more_ranks_than_their_group_has_are_of_several_groups(
    group_size: int | None,
) -> None:
    """Whatever their times, of which none contradicts here."""
    everybody = [list(range(8))]
    calls = recorded({BESIDE: everybody, ACROSS: everybody})
    for call in (call for own in calls.values() for call in own):
        call.group_size = group_size
    columns = [dict(zip(calls, own, strict=True)) for own in zip(*calls.values(), strict=True)]
    assert contradicted(calls, columns) == (group_size == 2)
