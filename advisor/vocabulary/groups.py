"""A process group in words that its user knows: what it is for, where it says so, and its ranks.

Names of groups are numbers that torch counts up. Descriptions say the kind: DeviceMesh writes
``mesh_tp`` (pytorch/pytorch torch/distributed/device_mesh.py), Megatron
``TENSOR_MODEL_PARALLEL_GROUP`` (NVIDIA/Megatron-LM megatron/core/parallel_state.py).
"""

import re
from collections.abc import Sequence

from advisor.vocabulary.words import some_ranks

_KINDS = {
    word: kind
    for kind, words in {
        "tensor-parallel": "tp tensor",
        "pipeline": "pp pipeline",
        "context-parallel": "cp context",
        "sequence-parallel": "sp",
        "expert-parallel": "ep expert",
        "data-parallel": "dp ddp data",
        "sharding": "fsdp shard",
        "replicating": "replicate",
    }.items()
    for word in words.split()
}
# Of two kinds in one description the one that says more.
_REFINED = {
    frozenset({"data-parallel", "sharding"}): "sharding",
    frozenset({"data-parallel", "replicating"}): "replicating",
    frozenset({"data-parallel", "expert-parallel"}): "data-parallel",
}


def kind_of_group(description: str | None) -> str:
    """What a group is for ('tensor-parallel'); '' where its description does not say one thing."""
    stem = re.sub(r"_with_cp\b.*", "", (description or "").lower())
    kinds = {_KINDS[part] for part in re.split(r"[^a-z]+", stem) if part in _KINDS}
    return next(iter(kinds)) if len(kinds) == 1 else _REFINED.get(frozenset(kinds), "")


def group_words(
    name: str,
    description: str | None = None,
    ranks: Sequence[int] | None = None,
    size: int | None = None,
    world_size: int | None = None,
    is_one_of_several: bool = False,
) -> str:
    """'all 8 ranks', 'tensor-parallel ranks 0-3', '64 ranks (0, 8, …, 504)'; else its name, which
    stands behind the words where another group has the same ranks."""
    words = _words(name, description, ranks or (), len(ranks) if ranks else size, world_size)
    return f"{words} (group {name})" if is_one_of_several else words


def _words(
    name: str,
    description: str | None,
    ranks: Sequence[int],
    count: int | None,
    world_size: int | None,
) -> str:
    kind = kind_of_group(description)
    before = f"{kind} " if kind else ""
    if not count:
        return f"{before}group {name}"
    if count == world_size and count > 1:
        return f"{'both' if count == 2 else f'all {count}'} {before}ranks"
    if not ranks:
        return f"{before}group {name} of {count} ranks"
    text = some_ranks(ranks)
    return f"{before}{text if text.startswith('rank') else _many(sorted(ranks))}"


def _many(ranks: Sequence[int]) -> str:
    """Too many to list: how many, and the first two and the last of them."""
    first, second, last = ranks[0], ranks[1], ranks[-1]
    return f"{len(ranks)} ranks ({first}, {second}, …, {last})"
