"""A fix speaks of what the finding found."""

from __future__ import annotations

import re

import pytest

from advisor.engine import load_catalogue
from advisor.engine.evaluate import evaluate
from advisor.engine.examples import fill
from advisor.engine.facts import read_facts
from advisor.engine.fragments import said, templates
from advisor.engine.sandbox import Sandbox
from advisor.messages import STEPS
from advisor.vocabulary.templates import render_lines

_RULES = {rule.id: rule for rule in load_catalogue()[0]}


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("data-loading", "DataLoader"),
        ("allocator", "PYTORCH_CUDA_ALLOC_CONF"),
        ("garbage-collection", "gc.disable()"),
        (None, "Look at what rank 3 does in step 7"),
    ],
)
def test_jitters_first_fix_is_for_the_kind_of_pause_that_it_names(
    kind: str | None, first: str
) -> None:
    facts = {"host_kind": kind, "few_calls": False, "mostly": None, "shared_cores": False,
             "may_share": False, "purpose": "training", "worst_rank": 3, "worst_step": 7,
             "sizes_vary": False, "per_step": "per step", "stops": False}  # fmt: skip
    fixes = said(_RULES["jitter"].fix, facts, render_lines)
    assert first in fixes[0]
    assert sum("gc.disable()" in fix for fix in fixes) == 1


def test_no_step_ends_in_a_colon() -> None:
    """A view may leave out the code below it: what is left is a sentence."""
    words = [step for rule in _RULES.values() for step in (*rule.fix, *rule.verify)]
    firsts = [text.strip().splitlines()[0] for text in templates(words)]
    assert not [text for text in firsts if _OPEN_END.search(text)]


def test_no_step_of_a_verdict_ends_in_a_colon() -> None:
    assert not [code for code, text in STEPS.items() if _OPEN_END.search(text.splitlines()[0])]


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("on_host", [True, False])
def test_gradients_are_sent_as_what_the_words_beside_the_code_say(
    on_host: bool, by_hand: bool
) -> None:
    rule = _RULES["fp32-gradients"]
    known = {"on_host": on_host, "by_hand": by_hand, "sharded": False, "sixteen": False,
             "bytes": 4e7, "exchanged": False, "gathered": False, "exposed_ns": 2e7,
             "savings_ns": 1e7, "savings_high_ns": 2e7, "fall": "up to 20 ms",
             "per_step": "per step"}  # fmt: skip
    words, _, code = said(rule.fix, known, render_lines)[0].partition("\n")
    assert "as bf16" in words
    assert {*re.findall(r"\bb?f(?:p|loat)?16", code)} <= {"bf16", "bfloat16"}
    assert "sending bf16" in said(rule.because, known)[-1]


def test_no_text_of_a_rule_has_an_interval_of_the_gain_of_its_own() -> None:
    """``fall`` says it as every view does: 'up to 4 ms' where the low end is nothing."""
    for rule in _RULES.values():
        for text in templates([*rule.because, *rule.message, *rule.fix, *rule.verify]):
            own = re.search(r"savings_high_ns\W[^}]*\|\s*(about|span|num)", text)
            assert not own, (rule.id, text)


_FSDP1 = r"FSDP1|FullyShardedDataParallel|ShardingStrategy|limit_all_gathers"
_FSDP2 = r"FSDP2|fully_shard\(|set_modules_to|reshard_after|gradient_sync|MixedPrecisionPolicy"


@pytest.mark.slow
def test_an_fsdp_that_the_trace_names_is_advised_in_its_own_words() -> None:
    named, foreign = set(), []
    with Sandbox(None, "example") as sandbox:
        for rule in _RULES.values():
            if not re.search(f"{_FSDP1}|{_FSDP2}", " ".join(templates(rule.fix))):
                continue
            example = next(one for one in rule.examples if one.expect == "fired")
            fill(sandbox, example)
            facts = read_facts(sandbox)
            for trainer, own, other in (("FSDP1", _FSDP1, _FSDP2), ("FSDP2", _FSDP2, _FSDP1)):
                finding = evaluate(rule, sandbox, facts._replace(trainer=trainer)).findings[0]
                advised = " ".join(finding.fix)
                if re.search(own, advised):
                    named.add((rule.id, trainer))
                if re.search(other, advised) and rule.id != "rate-limited-all-gathers":
                    foreign.append((rule.id, trainer, advised))
    assert not foreign  # a limiter is FSDP1's whatever else is there
    assert len(named) >= 15


_OPEN_END = re.compile(r":\s*(?:\{%[^%]*%\}\s*)*$")
