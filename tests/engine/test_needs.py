"""Nobody is told to record what the job does not have, or what was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import api
from advisor.engine.facts import read_facts
from advisor.engine.needs import not_applicable
from advisor.engine.rule import Need
from advisor.engine.sandbox import Sandbox
from advisor.report.lacking import missing_evidence
from tests.engine.helpers import RUN, store_of

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_a_run_of_ddp_on_cpus_with_all_ranks_is_asked_for_neither_of_the_others() -> None:
    with api.load(FIXTURES / "gpt2-tiny-ddp-2") as run:
        report = run.report
        text = " ".join(run.render("text").split())
    asked = {rule for _, _, rules in missing_evidence(report) for rule in rules}
    outcomes = {item.rule: item for item in report.outcomes}
    for rule in ("pipeline-bubble", "prefetch-missing", "launch-bound", "single-nic"):
        assert outcomes[rule].not_in_the_job, rule
        assert outcomes[rule].how_to_capture == ""
        assert rule not in asked
    # AND what can be recorded is still asked for
    assert "hang-suspect" in asked
    needs = "needs" if len(asked) == 1 else "need"
    assert f"{len(asked)} {needs} more data" in text
    assert "TORCH_NCCL" in outcomes["hang-suspect"].how_to_capture


@pytest.mark.parametrize(
    ("ranks", "need", "expected"),
    [
        (4, Need(table="pipeline_stage", capture="all-ranks"), True),
        (2, Need(table="pipeline_stage", capture="all-ranks"), False),
        (4, Need(timeline="device", capture="device-trace"), False),  # no backend is told
        (4, Need(table="redundant", settled_by="1 = 1"), True),
        (4, Need(table="redundant", settled_by="1 = 2", capture="sizes"), False),
    ],
)
def test_what_is_missing_is_the_jobs_or_the_recordings(
    ranks: int, need: Need, expected: bool
) -> None:
    with store_of(ranks=ranks, world_size=4) as store, Sandbox(store, RUN) as sandbox:
        outcome = not_applicable("a-rule", need, "nothing", sandbox, read_facts(sandbox))
    assert outcome.not_in_the_job == expected
    assert bool(outcome.how_to_capture) == (not expected)
