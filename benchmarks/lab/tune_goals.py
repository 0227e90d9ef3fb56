"""Does the sweep's search find the best of a grid that was measured whole?

Every grid point was measured for real (:mod:`benchmarks.lab.grids`); the search is then run on
that table: its trials look points up instead of running them. It starts from the present settings
with the predictions of their trace, as a real sweep does. The goals: within 1 % of the grid's best
with at most 20 % of its points, and "leave it" where nothing helps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

from advisor.config.sweep import Axis
from advisor.tune.predictions import from_trace
from advisor.tune.search import GRID_SHARE, Search, Tried
from benchmarks.lab.families import Family
from benchmarks.lab.grids import CAPS_MB, START, grids, point_name
from benchmarks.lab.measure import TRACES, is_recorded, record_families, round_medians_ns

RESULTS = Path(__file__).with_name("tune_goals.json")
WITHIN = 0.01
AXES = [
    Axis(setting="bucket_cap_mb", values=list(CAPS_MB)),
    Axis(setting="gradient_as_bucket_view", values=[True, False]),
    Axis(setting="static_graph", values=[False, True]),
]


def play(family: Family, folder: Path) -> dict[str, Any]:
    """The search on one grid. ``shortfall``: the step found over the grid's best, less 1.

    ``noise`` is the median over the points of the difference between their two rounds;
    ``best_gain`` what the grid's best point saves against the start. Where that is below twice the
    noise, nothing helps, and the search should not find a gain above it.
    """
    rounds = {
        (cap, view, static): round_medians_ns(folder / point_name(cap, view, static))
        for cap, view, static in product(CAPS_MB, (True, False), (False, True))
    }
    steps = {point: statistics.median(values) for point, values in rounds.items()}
    noise = statistics.median(max(v) / min(v) - 1 for v in rounds.values())
    start = tuple(START.values())
    # The start's own points are the grid's best known value of the present settings.
    present = steps[start]  # type: ignore[index]
    predictions = from_trace(folder / point_name(*start) / TRACES, AXES)  # type: ignore[arg-type]
    search = Search(AXES, START, limit=int(GRID_SHARE * len(steps)), predictions=predictions)
    tried: list[Tried] = []
    while (point := search.next(tried)) is not None:
        tried.append(Tried(point, steps[tuple(point.values())] / present))  # type: ignore[index]
    found = search.best(tried)
    reached = steps[tuple(found.values())]  # type: ignore[index]
    best = min(steps, key=lambda point: steps[point])
    return {
        "grid": family.name,
        "points": len(steps),
        "tried": len(tried),
        "share": round(len(tried) / len(steps), 3),
        "start_ns": round(present),
        "best_ns": round(steps[best]),
        "best_point": dict(zip(START, best, strict=True)),
        "found_ns": round(reached),
        "found_point": found,
        "shortfall": round(reached / steps[best] - 1, 4),
        "best_gain": round(1 - steps[best] / present, 4),
        "found_gain": round(1 - reached / present, 4),
        "noise": round(noise, 4),
        "nothing_helps": 1 - steps[best] / present < max(2 * noise, WITHIN),
        "predictions": bool(predictions),
        "steps_ns": {point_name(*point): values for point, values in rounds.items()},
    }


def main() -> int:
    """Measure what is not measured yet, then play every grid; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lab.tune_goals")
    parser.add_argument("--out", type=Path, default=Path.home() / ".cache/advisor-lab/grids")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    missing = [family for family in grids() if not is_recorded(family, arguments.out)]
    failed = record_families(missing, arguments.out, again=False, say=_say) if missing else []
    rows = [
        play(family, arguments.out / family.name) for family in grids() if family.name not in failed
    ]
    arguments.results.write_text(json.dumps({"grids": rows}, indent=1) + "\n")
    for row in rows:
        verdict = "leave it" if row["nothing_helps"] else f"best {-row['best_gain']:+.1%}"
        print(
            f"{row['grid']:16} {row['tried']}/{row['points']} tried, found "
            f"{row['found_ns'] / 1e6:.1f} ms, best {row['best_ns'] / 1e6:.1f} ms "
            f"({row['shortfall']:+.1%}); start {row['start_ns'] / 1e6:.1f} ms, {verdict}, "
            f"noise {row['noise']:.1%}"
        )
    return 1 if failed else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
