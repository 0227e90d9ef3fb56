"""How many layers a pipeline's stages hold, by how often their kernels run, and the best split."""

from __future__ import annotations

import pytest

from advisor.metrics.models.stage_layers import Split, split_of

LAYER = {"attention": (1, 30.0), "gemm": (4, 15.0), "norm": (2, 5.0)}  # 100 ns


def split(layers: list[int], *, head_ns: float = 0, larger: float = 1.0) -> Split | None:
    """Stages of layers of 100 ns; ``larger``: those of the last one, whose head is ``head_ns``."""
    counts: dict[str, dict[int, tuple[float, float]]] = {}
    took = []
    for rank, own in enumerate(layers):
        last = rank == len(layers) - 1
        factor = larger if last else 1.0
        for name, (calls, ns) in LAYER.items():
            counts.setdefault(name, {})[rank] = own * calls, own * calls * ns * factor
        took.append(round(own * 100 * factor + head_ns * last))
        if last and head_ns:
            counts["loss"] = {rank: (1, head_ns)}
            # A head multiplies with a kernel of the layers.
            counts["gemm"][rank] = counts["gemm"][rank][0] + 1, counts["gemm"][rank][1]
            counts["gelu"] = {r: (n, n * 0.0) for r, n in enumerate(layers)}
    return split_of(range(len(layers)), took, counts)


@pytest.mark.parametrize(
    ("layers", "evened"),
    [
        ([4, 4, 4, 5], 500),  # 17 on four stages: none is better
        ([6, 4, 4, 3], 500),
        ([7, 4, 4, 5], 500),
        ([8, 4, 4, 4], 500),
    ],
)
def test_whole_layers_are_split_as_evenly_as_they_can_be(layers: list[int], evened: int) -> None:
    found = split(layers)
    assert found is not None
    assert found.layers == layers
    assert found.layer_pace == pytest.approx([1] * 4)
    assert found.evened_ns == evened


def test_a_head_stays_where_it_is() -> None:
    """Ten layers a stage and a head of 2.5: two layers go, and the others have 11 at most."""
    found = split([10, 10, 10, 10], head_ns=250)
    assert found is not None
    assert found.layers == [10, 10, 10, 10]
    assert found.evened_ns == 1100
    # A head of half a layer: a layer that goes makes another stage as slow.
    small = split([4, 4, 4, 4], head_ns=50)
    assert small is not None
    assert small.evened_ns == 450


def test_larger_layers_are_named_and_evened() -> None:
    found = split([4, 4, 4, 4], larger=1.2)
    assert found is not None
    assert found.layer_pace == pytest.approx([1, 1, 1, 1.2])
    assert found.evened_ns == 420


def test_nothing_is_said_where_kernels_have_no_common_layer() -> None:
    assert split_of([0, 1], [100, 100], {"a": {0: (4, 50.0), 1: (5, 50.0)}}) is None
    uneven = {name: {0: (4.5, 50.0), 1: (4, 50.0)} for name in "abc"}
    assert split_of([0, 1], [100, 100], uneven) is None
    once = {name: {0: (1, 50.0), 1: (1, 50.0)} for name in "abc"}
    assert split_of([0, 1], [100, 100], once) is None
