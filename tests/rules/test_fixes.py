"""A fix speaks of what the finding found."""

from __future__ import annotations

import re

import pytest

from advisor.engine import load_catalogue
from advisor.engine.fragments import said, templates
from advisor.messages import STEPS
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


@pytest.mark.parametrize("rule", sorted(_RULES))
def test_no_step_ends_in_a_colon(rule: str) -> None:
    """A view may leave out the code below it: what is left is a sentence."""
    words = [*_RULES[rule].fix, *_RULES[rule].verify]
    firsts = [text.strip().splitlines()[0] for text in templates(words)]
    assert not [text for text in firsts if _OPEN_END.search(text)]


def test_no_step_of_a_verdict_ends_in_a_colon() -> None:
    assert not [code for code, text in STEPS.items() if _OPEN_END.search(text.splitlines()[0])]


_OPEN_END = re.compile(r":\s*(?:\{%[^%]*%\}\s*)*$")
