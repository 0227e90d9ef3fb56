"""How often what the tool says with a probability is right: by rule and by probability.

    python -m benchmarks.reliability [RESULTS ...]   print the table of these and all stored scores
    python -m benchmarks.reliability --alone RESULTS ...   of these alone: what it was not set from
    python -m benchmarks.reliability --write         and set the engine's calibration from them

Reads every ``results.json`` of the labs below benchmarks/, and RESULTS that ``score`` of the labs
or of benchmarks.scripts wrote elsewhere: what ``diagnose`` named first of each injected fault and
each control, and whether that was the fault. A case that several hold counts once, as it was scored
last. Of findings said with 90 % nine in ten should be right; the engine's calibration.json holds
the counts by rule. Below it: how often a predicted gain whose interval reaches into the noise was
one (lab/predictions.json).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import lgamma
from pathlib import Path
from typing import Any, NamedTuple

from advisor.engine.catalogue import load_catalogue
from advisor.engine.rule import PAIRED_FLOOR
from advisor.engine.verdict.probability import shown_share
from advisor.findings import Basis

ROOT = Path(__file__).resolve().parent
CALIBRATION = ROOT.parent / "advisor" / "engine" / "verdict" / "calibration.json"
PREDICTIONS = ROOT / "lab" / "predictions.json"
_LEAST_GAIN = 0.01  # of the step: smaller predictions are of no gain
_MEANS, _WEIGHTS = [n / 100 for n in range(50, 100)], range(1, 51)
_BINS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)


class Named(NamedTuple):
    """What was named first of a case, whether rightly, and how sure that was said to be."""

    rule: str
    right: bool
    probability: float | None
    basis: str | None


def named(files: Sequence[Path]) -> list[Named]:
    """Of every case of these scores in which something was named, the latest of each case."""
    found: dict[tuple[object, ...], Named | None] = {}
    for path in sorted(files, key=lambda path: path.stat().st_mtime):
        scored: dict[str, Any] = json.loads(path.read_text())
        for case in scored.get("cases", []):
            if "right_cause" in case:  # of a script, where a fault may cost nothing
                named_it = case["costs"] and case["probability"] is not None
                rule, right = case["first"].split(" ")[0], case["right_cause"]
            else:
                named_it, rule, right = case["alarms"], case["top"], case["rank_of_truth"] == 1
            found[_of(case, scored)] = _named(case, rule, right) if named_it else None
        for case in scored.get("controls", []):
            rule = case["alarms"][0].split(" ")[0] if case["alarms"] else ""
            found[_of(case, scored)] = _named(case, rule, False) if rule else None
    return [one for one in found.values() if one is not None]


def _of(case: dict[str, Any], scored: dict[str, Any]) -> tuple[object, ...]:
    return (case.get("seed", scored.get("seed")), case["id"], *map(case.get, ("strategy", "ranks")))


def _named(case: dict[str, Any], rule: str, right: bool) -> Named:
    return Named(rule, right, case.get("probability"), case.get("basis"))


def shown() -> list[tuple[float, bool]]:
    """Of predicted gains that may lie in the noise: how probably they do not, and whether so."""
    found = []
    for one in json.loads(PREDICTIONS.read_text())["predictions"]:
        step_ns, floor = one["traced_step_ns"], max(PAIRED_FLOOR, one["noise"])
        middle, low = (1 - one[name] / step_ns for name in ("predicted_ns", "high_ns"))
        real = 1 - one["real_ns"] / one["start_ns"]
        if middle >= _LEAST_GAIN and low <= floor:
            found.append((shown_share(middle, low, floor), real > floor))
    return found


def weight_of(counts: Sequence[tuple[int, int]]) -> int:
    """Cases that all rules' rate counts for beside one rule's own (said, right).

    By maximum likelihood, where the rules' true rates are draws of one beta distribution.
    """

    def likelihood(mean: float, weight: int) -> float:
        a, b = mean * weight, (1 - mean) * weight
        return sum(
            lgamma(right + a) + lgamma(said - right + b) - lgamma(said + weight)
            - lgamma(a) - lgamma(b) + lgamma(weight)
            for said, right in counts
        )  # fmt: skip

    return max(product(_MEANS, _WEIGHTS), key=lambda pair: likelihood(*pair))[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="*", type=Path, help="further results.json of the labs")
    parser.add_argument("--alone", action="store_true", help="no stored scores: only RESULTS")
    parser.add_argument("--write", action="store_true", help="write the engine's calibration.json")
    arguments = parser.parse_args()
    stored = [] if arguments.alone else sorted(ROOT.glob("*/results.json"))
    files = [*stored, *arguments.results]
    first = named(files)
    # One that says where time goes names no cause that could be wrong; an option accuses nobody.
    catalogue = load_catalogue()[0]
    causes = {rule.id for rule in catalogue if rule.says != "where"}
    counted = [one for one in first if one.rule in causes and one.basis != Basis.OPTION]
    rules = _counts([(one.rule, one.right) for one in counted])
    # Some were scored when a bare loss was said with a probability: it is no cause, tried or not.
    losses = {rule.id for rule in catalogue if rule.bare_loss}
    bases = _counts([(one.basis or "", one.right) for one in first if one.rule not in losses])
    untried = bases.get(Basis.UNTRIED, {"said": 0, "right": 0})
    print(f"{'rule':34} named  right")
    for name, count in [*rules.items(), ("rules not tried before", untried)]:
        print(f"{name:34} {count['said']:5}  {count['right']:5}")
    said = [(one.right, one.probability) for one in first if one.rule not in losses]
    _by_probability([(right, sure) for right, sure in said if sure is not None])
    if arguments.alone:
        return 0
    gains = shown()
    mean_said = sum(probability for probability, _ in gains) / len(gains)
    print(f"\ngains that may lie in the noise: {len(gains)}, said to be above it with "
          f"{mean_said:.2f} on average, above it {sum(above for _, above in gains)}")  # fmt: skip
    if arguments.write:
        document = {
            "from": sorted({_source(file) for file in files}),
            "weight": weight_of([(n["said"], n["right"]) for n in rules.values()]),
            "untried": untried,
            "rules": rules,
        }
        CALIBRATION.write_text(json.dumps(document, indent=1) + "\n")
        print(f"Wrote {CALIBRATION}")
    return 0


def _counts(rows: Sequence[tuple[str, bool]]) -> dict[str, dict[str, int]]:
    said = Counter(name for name, _ in rows)
    right = Counter(name for name, good in rows if good)
    return {name: {"said": said[name], "right": right[name]} for name in sorted(said)}


def _source(path: Path) -> str:
    """The lab and seed of a score; where it lay on a disk is nobody's concern."""
    scored = json.loads(path.read_text())
    if path.is_relative_to(ROOT):
        return str(path.relative_to(ROOT.parent))
    return f"benchmarks.gpulab, seed {scored.get('seed')}"


def _by_probability(said: list[tuple[bool, float]]) -> None:
    if not said:
        print("No score holds probabilities yet: score the labs again.")
        return
    print("\nsaid with        findings  mean said  right")
    for low, high in zip((0.0, *_BINS), _BINS, strict=False):
        inside = [(good, p) for good, p in said if low < p <= high]
        if inside:
            mean = sum(p for _, p in inside) / len(inside)
            share = sum(good for good, _ in inside) / len(inside)
            print(f"{low:.2f} to {high:.2f}  {len(inside):10}  {mean:9.2f}  {share:.2f}")


if __name__ == "__main__":
    raise SystemExit(main())
