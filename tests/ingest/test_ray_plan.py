"""The division of a run's files into tasks: no file lost, none twice, ranks as if read at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError
from advisor.ingest.ray_plan import (
    MAX_BATCH_BYTES,
    MAX_PIECES_PER_BATCH,
    Item,
    Look,
    Piece,
    batches,
    list_inputs,
    pieces,
)

_RANKS = st.lists(st.one_of(st.none(), st.integers(0, 20)), max_size=40)


@given(_RANKS)
def test_every_file_is_in_one_piece_and_every_piece_has_its_own_rank(
    ranks: list[int | None],
) -> None:
    looks = [
        Look(Item(n, f"/t/{n}", False), "kineto", apart=True, rank=rank)
        for n, rank in enumerate(ranks)
    ]
    apart, together = pieces(looks)
    assert not together.items
    assert sorted(item.number for piece in apart for item in piece.items) == list(range(len(looks)))
    assert len({piece.rank for piece in apart}) == len(apart)
    for piece in apart:
        told = {ranks[item.number] for item in piece.items} - {None}
        assert told <= {piece.rank}
        # A file that does not say its rank is never taken for a part of another one.
        assert len(piece.items) == 1 or told


def test_files_without_a_rank_get_the_smallest_free_numbers_in_order() -> None:
    told = [None, 1, None, 0, None]
    looks = [
        Look(Item(n, f"/t/{n}", False), "kineto", apart=True, rank=rank)
        for n, rank in enumerate(told)
    ]
    apart, _ = pieces(looks)
    assert {piece.rank: piece.items[0].number for piece in apart} == {0: 3, 1: 1, 2: 0, 3: 2, 4: 4}


def test_what_cannot_be_read_is_in_no_piece_and_logs_stay_together() -> None:
    log, other = Item(0, "/a.log", True), Item(1, "/b.log", True)
    looks = [
        Look(log, "nccl-log"),
        Look(other, "nccl-log"),
        Look(Item(2, "/c", True), problem="is empty"),
        Look(Item(3, "/d", False)),
    ]
    assert pieces(looks) == ([], Piece((log, other)))


@given(st.lists(st.integers(0, 2 * MAX_BATCH_BYTES), max_size=300), st.integers(1, 64))
def test_batches_keep_order_and_bounds(sizes: list[int], cpus: int) -> None:
    parts = [Piece((Item(n, str(n), False, size),), n) for n, size in enumerate(sizes)]
    plan = batches(parts, cpus)
    assert [piece for batch in plan for piece in batch] == parts
    for batch in plan:
        assert 1 <= len(batch) <= MAX_PIECES_PER_BATCH
        assert len(batch) == 1 or sum(piece.size_bytes for piece in batch) <= MAX_BATCH_BYTES


def test_thousands_of_small_traces_make_few_tasks_and_few_traces_use_all_processors() -> None:
    parts = [Piece((Item(n, str(n), False, 300_000),), n) for n in range(4096)]
    assert len(batches(parts, 8)) == 4096 / MAX_PIECES_PER_BATCH
    assert len(batches(parts[:16], 8)) == 16


def test_urls_and_paths_are_listed_in_order_of_numbers(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed (extra [ray])")
    for rank in (10, 2, 1):
        (tmp_path / f"rank{rank}.json").write_text("{}")
    (tmp_path / ".hidden").write_text("{}")
    names = [f"rank{rank}.json" for rank in (1, 2, 10)]
    for given_path in (tmp_path, tmp_path.as_uri(), f"{tmp_path.as_uri()}/rank*.json"):
        found = list_inputs([given_path, given_path], first_number=5)
        assert [Path(item.place).name for item in found] == names
        assert [item.number for item in found] == [5, 6, 7]
    with pytest.raises(AdvisorError, match="no file matches"):
        list_inputs([f"{tmp_path.as_uri()}/none*.json"])
    with pytest.raises(AdvisorError, match="no driver"):
        list_inputs(["nosuchprotocol://bucket/rank0.json"])
