"""A fix speaks of what the finding found."""

from __future__ import annotations

import pytest

from advisor.engine import load_catalogue
from advisor.vocabulary.words import render_lines

_RULES = {rule.id: rule for rule in load_catalogue()[0]}


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("data-loading", "Data loading"),
        ("allocator", "Allocator retries"),
        ("garbage-collection", "Garbage collection"),
        (None, "Garbage collection"),
    ],
)
def test_jitters_first_fix_is_for_the_kind_of_pause_that_it_names(
    kind: str | None, first: str
) -> None:
    fixes = [render_lines(fix, {"host_kind": kind}) for fix in _RULES["jitter"].fix]
    assert fixes[0].startswith(first)
    assert sum("gc.disable()" in fix for fix in fixes) == 1
