"""Bucket assembly against torch's own reducer function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.whatif.buckets import MIB, assemble, infer_cap_mb


def test_the_first_bucket_is_one_mib_by_default_and_not_when_the_cap_is_given() -> None:
    sizes = [MIB] * 60
    assert [len(b) for b in assemble(sizes, None)] == [1, 25, 25, 9]
    assert [len(b) for b in assemble(sizes, 25)] == [25, 25, 10]


def test_a_bucket_overshoots_and_never_splits() -> None:
    assert assemble([3 * MIB, 3 * MIB, 30 * MIB, 1], 5) == [[0, 1], [2], [3]]


def test_the_cap_is_inferred_from_the_buckets_it_forms() -> None:
    sizes = [MIB] * 60
    assert infer_cap_mb(sizes, [MIB, 25 * MIB, 25 * MIB, 9 * MIB]) is None
    assert infer_cap_mb(sizes, [10 * MIB] * 6) == 10
    assert infer_cap_mb(sizes, [7 * MIB, 53 * MIB]) == "unknown"


@given(
    st.lists(st.integers(1, 4 * MIB // 4), min_size=1, max_size=60),
    st.sampled_from([None, 0.1, 1, 5, 25]),
)
def test_like_torch(elements: list[int], cap: float | None) -> None:
    torch = pytest.importorskip("torch", reason="needs the [profile] extra")
    from torch._C._distributed_c10d import _compute_bucket_assignment_by_size

    tensors = [torch.empty(n, device="meta") for n in elements]
    limits = [MIB, 25 * MIB] if cap is None else [int(cap * MIB)]
    expected, _ = _compute_bucket_assignment_by_size(
        tensors, limits, [False] * len(tensors), list(range(len(tensors)))
    )
    ours = assemble([4 * n for n in elements], cap)
    assert ours == [list(bucket) for bucket in expected]
