"""Process groups in words: descriptions as DeviceMesh, Megatron and torch write them."""

from __future__ import annotations

import pytest

from advisor.vocabulary.groups import group_words, kind_of_group


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ("default_pg", ""),
        ("undefined", ""),
        (None, ""),
        ("mesh_dim_0", ""),
        ("mesh_tp", "tensor-parallel"),
        ("mesh_dp_shard", "sharding"),
        ("mesh_dp_replicate", "replicating"),
        ("mesh_dp_cp", ""),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor-parallel"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "data-parallel"),
        ("EXPERT_DATA_PARALLEL_GROUP", "data-parallel"),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", ""),
    ],
)
def test_a_description_says_the_kind_of_a_group(description: str | None, kind: str) -> None:
    assert kind_of_group(description) == kind


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"ranks": [0, 1, 2, 3], "world_size": 4}, "all 4 ranks"),
        (
            {"ranks": [0, 1], "world_size": 2, "description": "mesh_dp"},
            "both data-parallel ranks",
        ),
        (
            {"ranks": [1, 5], "world_size": 8, "description": "mesh_tp"},
            "tensor-parallel ranks 1, 5",
        ),
        ({"ranks": [0, 1], "world_size": None}, "ranks 0, 1"),
        ({"ranks": range(0, 512, 2), "world_size": 512}, "256 ranks (0, 2, …, 510)"),
        ({"size": 16, "world_size": 64, "description": "mesh_pp"}, "pipeline group 7 of 16 ranks"),
        ({}, "group 7"),
    ],
)
def test_a_group_is_named_by_what_its_user_knows(known: dict[str, object], words: str) -> None:
    assert group_words("7", **known) == words  # type: ignore[arg-type]
