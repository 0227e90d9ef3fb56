"""How often what the tool says with a probability is right, by rule and by probability.

    python -m benchmarks.reliability            print the table of all stored lab scores
    python -m benchmarks.reliability --write    and set the engine's calibration from them

Reads every ``results.json`` of the labs below benchmarks/: what ``diagnose`` named first of each
injected fault and each control, and whether that was the fault. Of findings said with 90 % nine in
ten should be right; the engine's calibration.json holds the counts by rule.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
CALIBRATION = ROOT.parent / "advisor" / "engine" / "verdict" / "calibration.json"
_BINS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)


def named(results: Path) -> Iterator[tuple[str, bool, float | None]]:
    """(rule named first, whether rightly, with which probability) of one lab's score."""
    scored: dict[str, Any] = json.loads(results.read_text())
    for case in scored.get("cases", []):
        if case["alarms"]:
            yield case["top"], case["rank_of_truth"] == 1, case.get("probability")
    for control in scored.get("controls", []):
        if control["alarms"]:
            yield control["alarms"][0].split(" ")[0], False, control.get("probability")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the engine's calibration.json")
    arguments = parser.parse_args()
    files = sorted(ROOT.glob("*/results.json"))
    found = [one for file in files for one in named(file)]
    said = Counter(rule for rule, _, _ in found)
    right = Counter(rule for rule, good, _ in found if good)
    print(f"{'rule':34} named  right")
    for rule in sorted(said):
        print(f"{rule:34} {said[rule]:5}  {right[rule]:5}")
    print(f"{'all':34} {sum(said.values()):5}  {sum(right.values()):5}")
    _by_probability([(good, p) for _, good, p in found if p is not None])
    if arguments.write:
        rules = {rule: {"said": said[rule], "right": right[rule]} for rule in sorted(said)}
        sources = [str(file.relative_to(ROOT.parent)) for file in files]
        CALIBRATION.write_text(json.dumps({"from": sources, "rules": rules}, indent=1) + "\n")
        print(f"Wrote {CALIBRATION}")
    return 0


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
