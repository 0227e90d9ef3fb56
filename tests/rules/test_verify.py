"""How to prove a finding: every figure that a rule names is one that `advisor compare` prints."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from advisor import api
from advisor.engine import load_catalogue
from advisor.engine.fragments import templates
from advisor.metrics.compare.causes import Causes
from advisor.metrics.compare.figures import CollectiveTotal
from advisor.metrics.compare.runs import Comparison, Timed, comparison
from advisor.report import comparison_figures
from advisor.store import Store

_OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")
_EVERYTHING = Causes(1, 1, 1, 1, 1, 0.1, 1, 1, 1, 1, 0.1, 1.5)
_RULES = load_catalogue()[0]


@pytest.fixture(scope="module")
def titles() -> set[str]:
    """The titles of all rows, with every kind of evidence and operation there."""
    with api.load("fixtures/gpt2-tiny-ddp-2") as run:
        found = comparison(run.store.con, {"run": Timed()})
    totals = [CollectiveTotal(op, 1.0, 1, 1, 1, 1, 0.5) for op in _OPS]
    base = replace(
        found.base, causes=_EVERYTHING, collectives=totals, tokens_per_step=1, peak_memory_bytes=1
    )
    whole = Comparison([base], found.theories)
    return {title.strip() for title, _ in comparison_figures.figures(whole)}


@pytest.mark.slow
def test_every_figure_named_is_printed_by_compare(titles: set[str]) -> None:
    for rule in _RULES:
        text = " ".join(templates(rule.verify)).replace("{{ op }}", "all_reduce")
        named = re.findall(r"`([^`]+)`", text)
        assert set(named) <= titles, rule.id
        assert named or "advisor compare" not in text, f"{rule.id}: compare has many rows"
        said = re.sub(r'"[^"]*"|\{[{%].*?[%}]\}', "", text)
        assert not re.search(r"\b[a-z_]+_(ns|bytes)\b", said), rule.id


def test_every_query_named_runs_as_written() -> None:
    texts = [text for rule in _RULES for text in templates(rule.verify)]
    queries = re.findall(r'advisor sql NEW "([^"]+)"', "\n".join(texts))
    assert queries
    with Store.create() as store:
        store.lock_down()
        for query in queries:
            assert "{{" not in query, "names of a trace have no place in a command to paste"
            store.con.execute(query)


@pytest.mark.slow
@pytest.mark.parametrize("log", ["v2.10-sockets.log", "v2.21-one-nic.log", "v2.27-groups.log"])
def test_a_finding_of_logs_alone_is_not_proven_by_steps(log: str) -> None:
    """GIVEN a log and no trace THEN what to look at again is in a log."""
    with api.load(f"fixtures/nccl-logs/{log}") as run:
        findings = run.report.findings
    assert findings
    assert not [item.rule for item in findings if "advisor compare" in item.verify]
    assert all(item.verify for item in findings)
