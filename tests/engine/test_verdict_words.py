"""The words of each shape stand in one file each: tests/golden/verdict-SHAPE.txt.

python -m tests.engine.test_verdict_words        writes them anew; read the difference as a user
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict.coverage import Coverage
from advisor.engine.verdict.table import decide
from advisor.engine.verdict.words import MOST_STEPS, MOST_TITLE, in_words
from advisor.findings import Basis, Severity, VerdictKind
from tests.engine.helpers import RUN
from tests.engine.test_verdict_table import (
    BARE,
    CALLS,
    CLOCKS,
    DENIED,
    EXPOSED,
    FACTS,
    FEW,
    MS,
    finding,
    shares,
    situation,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RANK: dict[str, Any] = {"title": "Rank 1 is late", "fix": ["look at its host"], "verify": "compare"}
LINK: dict[str, Any] = {
    "rule": "slow-ring-link",
    "title": "The link from host-2 to host-1 is slow",
    "links": ["host-2 -> host-1"],
}
WIDE = {"savings_low_ns": 2 * MS, "savings_high_ns": 60 * MS}
OPTION = finding("fp32-gradients", ms=8, probability=0.4, title="Gradients are sent as fp32",
                 fix=["bf16_compress_hook"])  # fmt: skip
LOSS = finding("exposed-communication", ms=5, probability=None,
               title="all_gather is not hidden under compute")  # fmt: skip
NAMED = "The link from rank 2 to rank 1 (cluster15101-h2 to cluster15101-h1) is slow"
LONG = (
    "The link from a-host-with-a-very-long-name.rack-17.row-3.example.internal to"
    " another-host-with-a-long-name.rack-18.row-3.example.internal is slow"
)
AGAIN = finding(
    "activation-recompute", 21, None, severity=Severity.INFO, basis=Basis.OPTION,
    fix=["Recompute fewer layers."], title="Recomputed activations take 21 % of the step",
)  # fmt: skip
CASES: dict[str, list[dict[str, Any]]] = {
    "sure": [
        {"findings": [finding(**RANK)]},
        {"findings": [finding(**RANK)], "facts": FACTS._replace(whole_trace=True)},
        {"findings": [finding("no-free-core", ms=30), finding(**RANK)]},
        {"findings": [finding("desync", None, severity="critical",
                              title="Ranks disagree about call 2 among all 4 ranks")]},
        {"facts": FEW, "shares": shares(exposed=0.28, idle=0.55, wait_known=False),
         "findings": [finding("launch-bound", ms=30, claims={"idle": 30 * MS}, verify="compare",
                              title="Kernels are launched too late and the GPU idles",
                              fix=["Launch many at once.", "Then fuse."])]},
        {"facts": FACTS._replace(ranks_read=3), "missing_ranks": [3],
         "shares": shares(exposed=0.4, wait_known=False),
         "findings": [
             finding(probability=0.88, ms=20, claims={"transfer": 20 * MS}, fix=["ibstat"], **LINK),
             finding("data-loader-stall", ms=10, claims={"idle": 10 * MS}, verify="compare",
                     title="Rank 0 waits for data", fix=["num_workers=4", "pin_memory=True"]),
         ]},
    ],
    "probable": [
        {"findings": [finding(probability=0.7, **LINK)]},
        {"findings": [finding(probability=0.7, savings_low_ns=0, **LINK)]},
    ],
    "unknown-cost": [
        {"findings": [finding(**LINK, **WIDE)]},
        {"findings": [finding(**LINK | {"title": NAMED}, **WIDE)]},
        {"findings": [finding(**LINK | {"title": LONG}, **WIDE)]},
    ],
    "healthy": [
        {},
        {"findings": [OPTION.model_copy(update={"severity": Severity.INFO})]},
        {"findings": [AGAIN]},
        {"shares": shares(exposed=0.16, activations=0.13)},
    ],
    "lossy": [
        {"findings": [finding("jitter", ms=37)]},
        {"shares": shares(exposed=0.27), "findings": [OPTION]},
        {"shares": shares(exposed=0.4, activations=0.3)},
        {"shares": shares(exposed=0.17, idle=0.12, schedule=0.11)},
        {"shares": shares(exposed=0.27), "findings": [LOSS]},
        {"shares": shares(exposed=0.27), "findings": [
            finding(*EXPOSED, **BARE, title="all_gather is not hidden under compute")]},
        {"shares": shares(exposed=0.27), "facts": FACTS._replace(steps=2)},
        {"shares": shares(exposed=0.27), "findings": [
            finding("unfused-optimizer", 5, fix=["fused=True"]), finding(**CALLS)]},
        {"shares": shares(exposed=0.27), "most_exposed": "data-parallel all_reduce"},
        {"shares": shares(idle=0.39)},
        {"shares": shares(idle=0.39), "idling": {
            "kind": "data-loading", "idle_ns": 30 * MS,
            "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"}},
    ],
    "inconclusive": [
        {"facts": FEW, "shares": shares(exposed=0.62, wait_known=False)},
        {"facts": FEW, "shares": shares(exposed=0.37, idle=0.56, wait_known=False)},
        {"facts": FEW, "shares": shares(exposed=0.28, idle=0.55, wait_known=False),
         "findings": [OPTION, finding("launch-bound", ms=19, fix=["Launch many at once."])]},
        {"facts": FEW, "alone_ranks": [0]},
        {"facts": FEW, "alone_ranks": [0], "missing_ranks": [1, 2, 3], "blind_ranks": [1, 2, 3]},
        {"cut_ranks": [3], "partly_read": 0.05},
        {"groups_known": False},
        {"facts": FACTS._replace(steps=1)},
        {"facts": FACTS._replace(by_pattern=True)},
        {"facts": FACTS._replace(whole_trace=True, steps=1, world_size=1),
         "shares": shares(exposed=0.0), "before_ns": 40 * MS},
        {"clocks": CLOCKS},
        {"clocks": CLOCKS._replace(differ_ns=0, apart_ns=5 * MS)},
        {"empty_ranks": [1]},
        {"communicates": False},
        {"communicates": False, "shares": shares(), "coverage": Coverage(0.6, "combine", 49 * MS)},
        {"coverage": Coverage(0.6, "combine", 49 * MS)},
        {"findings": [finding(evidence=DENIED, **LINK)]},
        {"communicates": False, "shares": shares(idle=0.99)},
        {"instead": {"operators": 1200, "annotations": 8}},
        {"shares": None},
        {"shares": None, "steps_seen": 0},
        {"shares": None, "steps_seen": 0, "events": 0},
    ],
}  # fmt: skip


def words_of(kind: str) -> str:
    said = []
    with Sandbox(None, RUN) as sandbox:
        for changes in CASES[kind]:
            it = situation(**changes)
            verdict = in_words(decide(it), it, sandbox)
            assert verdict.kind == kind
            assert len(verdict.title) <= MOST_TITLE
            assert len(verdict.next_steps) <= MOST_STEPS
            lines = [f"VERDICT {verdict.title}", f"WHY {verdict.why}".rstrip()]
            said.append("\n".join([*lines, *(f"NEXT {step}" for step in verdict.next_steps)]))
    return "\n\n".join(said) + "\n"


@pytest.mark.parametrize("kind", [kind.value for kind in VerdictKind])
def test_the_words_of_a_shape_are_those_that_were_read(kind: str) -> None:
    assert words_of(kind) == (GOLDEN / f"verdict-{kind}.txt").read_text("utf-8")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        (GOLDEN / f"verdict-{name}.txt").write_text(words_of(name), "utf-8")
