"""A fix speaks of what the finding found."""

from __future__ import annotations

import pytest

from advisor.engine import load_catalogue
from advisor.engine.fragments import said
from advisor.vocabulary.words import render_lines

_RULES = {rule.id: rule for rule in load_catalogue()[0]}


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("data-loading", "DataLoader"),
        ("allocator", "PYTORCH_CUDA_ALLOC_CONF"),
        ("garbage-collection", "gc.disable()"),
        (None, "Look what rank 3 does in step 7"),
    ],
)
def test_jitters_first_fix_is_for_the_kind_of_pause_that_it_names(
    kind: str | None, first: str
) -> None:
    facts = {"host_kind": kind, "few_calls": False, "shared_cores": False,
             "worst_rank": 3, "worst_step": 7}  # fmt: skip
    fixes = said(_RULES["jitter"].fix, facts, render_lines)
    assert first in fixes[0]
    assert sum("gc.disable()" in fix for fix in fixes) == 1
