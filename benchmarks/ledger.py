"""Where merging by the ledger of claims and by the rules' ``explains`` differ.

    python -m benchmarks.ledger [RECORDING ...]     default: fixtures/*
    python -m benchmarks.ledger --examples          every rule on every rule's example

One line per finding that only one of the two merges, or that they merge into different causes: the
effect, its cause by ``explains`` and by the ledger, and how much of its claims each covers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor import api
from advisor.engine import load_catalogue
from advisor.engine.causes import parents, rank_findings
from advisor.engine.claims import Ledger, covered, effects
from advisor.engine.evaluate import evaluate
from advisor.engine.examples import fill
from advisor.engine.facts import read_facts
from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox
from benchmarks.pin import ROOT, stored


def compare(name: str, rules: Sequence[Rule], sandbox: Sandbox) -> Iterator[str]:
    """The differences on what ``sandbox`` holds."""
    facts = read_facts(sandbox)
    claims: dict[int, Ledger] = {}
    found = []
    for rule in rules:
        result = evaluate(rule, sandbox, facts)
        for finding, ledger in zip(result.findings, result.claims, strict=True):
            claims[id(finding)] = ledger
            found.append(finding)
    known = {rule.id: rule for rule in rules}
    ordered = rank_findings(found, known)
    ledgers = [claims[id(finding)] for finding in ordered]
    old = parents(ordered, known)
    new = effects(list(zip(ordered, ledgers, strict=True)), known)
    for index, effect in enumerate(ordered):
        if old.get(index) == new.get(index):
            continue
        said = []
        for how, parent in (("explains", old), ("ledger", new)):
            if index in parent:
                cause = ordered[parent[index]]
                share = covered(ledgers[index], ledgers[parent[index]])
                said.append(f"{how}: {cause.rule} ({cause.where}), covers {share:.0%}")
            else:
                said.append(f"{how}: stays")
        claimed = "" if ledgers[index] else " (claims nothing)"
        yield f"{name}: {effect.rule} ({effect.where}){claimed}: {'; '.join(said)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--examples", action="store_true")
    arguments = parser.parse_args()
    rules, _ = load_catalogue()
    lines: list[str] = []
    if arguments.examples:
        with Sandbox(None, "example") as sandbox:
            for rule in rules:
                for example in rule.examples:
                    fill(sandbox, example)
                    lines += compare(f"{rule.id}: {example.name}", rules, sandbox)
    for path in [] if arguments.examples else arguments.paths or [ROOT / p for p in stored()]:
        with api.load(path) as run:
            runs = run.store.con.execute("SELECT run FROM run ORDER BY run").fetchall()
            for (name,) in runs:
                with Sandbox(run.store, name) as sandbox:
                    lines += compare(path.name, rules, sandbox)
    print("\n".join([*lines, f"{len(lines)} differ"]))


if __name__ == "__main__":
    main()
