"""Does the sweep's search find the best of a grid that was measured whole?

Every grid point was measured for real (:mod:`benchmarks.lab.grids`), in two rounds; the search is
then run on that table: its trials look points up instead of running them. It starts from the
present settings with the predictions of their trace, as a real sweep does, and sees the first round
only; the second round is the confirmation, of the two best as in a real sweep. Points that are one
job under two names (prefetching two units ahead where there is one) are tried once, and their
measurements taken together. The goals: within 1 % of the grid's best with at most 20 % of its
points (the present settings counted), no recommendation that loses in the confirmation, and "leave
it" where nothing helps.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

from advisor.config.sweep import Configuration
from advisor.tune.budget import CANDIDATES
from advisor.tune.points import Key, Points, key_of
from advisor.tune.predictions import from_trace
from advisor.tune.search import GRID_SHARE, Search, Tried
from advisor.tune.statistics import RESOLUTION_SIGMAS
from benchmarks.lab import hosts
from benchmarks.lab.grids import Grid, grids, point_name
from benchmarks.lab.measure import TRACES, is_recorded, record_families, round_medians_ns

RESULTS = Path(__file__).with_name("tune_goals.json")
WITHIN = 0.01
"""Gains below this share of the step, or below the resolution, are none."""


def play(grid: Grid, folder: Path) -> dict[str, Any]:
    """The search on one grid, from its recordings in ``folder``.

    ``resolution``: two standard deviations of one round against the other, over the points.
    ``shortfall``: the step of the settings in force afterwards (the recommended ones, or the
    present ones) over the grid's best, less 1; both as the mean of the two rounds.
    """
    rounds = {name: round_medians_ns(folder / name) for name in grid.points}
    start = point_name(grid.start)
    predictions = from_trace(folder / start / TRACES, grid.axes, grid.start)
    limit = int(GRID_SHARE * len(rounds)) - 1
    layers = next(iter(grid.family.configs.values())).layers

    def identity(point: Configuration) -> Key:
        return _identity(point, layers)

    points = Points.of(grid.axes, grid.start, identity)
    search = Search(grid.axes, grid.start, limit, predictions, points=points)
    tried: list[Tried] = []
    while (point := search.next(tried)) is not None:
        tried.append(Tried(point, rounds[point_name(point)][0] / rounds[start][0]))
    resolution = _resolution(list(rounds.values()))
    floor = max(resolution, WITHIN)
    ranked = sorted(tried, key=lambda item: item.ratio or 1.0)[:CANDIDATES]
    names = [point_name(item.configuration) for item in ranked]
    gains = {
        name: [1 - now / before for now, before in zip(rounds[name], rounds[start], strict=True)]
        for name in names
    }
    confirmed = [name for name in names if min(gains[name]) > floor]
    candidate = max(confirmed or names[:1], key=lambda name: statistics.mean(gains[name]))
    recommended = bool(confirmed)
    found = candidate if recommended else start
    jobs: dict[Key, list[int]] = {}
    for name, point in grid.points.items():
        jobs.setdefault(identity(point), []).extend(rounds[name])
    steps = {name: statistics.mean(jobs[identity(p)]) for name, p in grid.points.items()}
    best = min(steps, key=lambda name: steps[name])
    best_gain = 1 - steps[best] / steps[start]
    return {
        "grid": grid.family.name,
        "points": len(steps),
        "tried": len(tried) + 1,
        "share": round((len(tried) + 1) / len(steps), 3),
        "start": start,
        "start_ns": round(steps[start]),
        "best": best,
        "best_ns": round(steps[best]),
        "best_gain": round(best_gain, 4),
        "distinct": len(points),
        "candidate": candidate,
        "search_gain": round(gains[candidate][0], 4),
        "confirmed_gain": round(gains[candidate][1], 4),
        "recommended": recommended,
        "found": found,
        "found_ns": round(steps[found]),
        "shortfall": round(steps[found] / steps[best] - 1, 4),
        "resolution": round(resolution, 4),
        "nothing_helps": best_gain < max(resolution, WITHIN),
        "predicted": {name: _rounded(predictions.of(p)) for name, p in grid.points.items()},
        "tried_points": [point_name(item.configuration) for item in tried],
        "steps_ns": rounds,
    }


def _identity(point: Configuration, layers: int) -> Key:
    """Equal for equal jobs: nothing is fetched further ahead than there are units."""
    if "wrap_layers" not in point:
        return key_of(point)
    units = math.ceil(layers / int(point["wrap_layers"] or layers))
    ahead = min(int(point["prefetch_forward"] or 0), units - 1)
    return key_of({**point, "prefetch_forward": ahead})


def _resolution(rounds: list[list[int]]) -> float:
    """Two sigma of one measurement of a point against another, as a share of the step.

    Sigma is of logs, from the median difference, so that the order of the rounds does not matter;
    a gain of as much is the share, as in a real sweep.
    """
    differences = [abs(math.log(first / second)) for first, second in rounds]
    return -math.expm1(-RESOLUTION_SIGMAS * 1.4826 * statistics.median(differences))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many grids meet each goal."""
    helped = [row for row in rows if not row["nothing_helps"]]
    idle = [row for row in rows if row["nothing_helps"]]
    return {
        "grids": len(rows),
        "within_1_percent": f"{sum(r['shortfall'] <= WITHIN for r in helped)}/{len(helped)}",
        "largest_share_tried": max((row["share"] for row in rows), default=None),
        "recommendations": sum(row["recommended"] for row in rows),
        "recommendations_that_lose": sum(
            row["recommended"] and row["found_ns"] >= row["start_ns"] for row in rows
        ),
        "left_where_nothing_helps": f"{sum(not r['recommended'] for r in idle)}/{len(idle)}",
    }


def line(row: dict[str, Any]) -> str:
    """One grid as a row of the table."""
    verdict = "nothing helps" if row["nothing_helps"] else f"best {-row['best_gain']:+.1%}"
    outcome = f"set {row['found']}" if row["recommended"] else "leave it"
    return (
        f"{row['grid']:26} {row['tried']}/{row['points']} tried  {row['start_ns'] / 1e6:6.1f} ms, "
        f"{verdict:14} found {row['found_ns'] / 1e6:6.1f} ms ({row['shortfall']:+.1%} off best)  "
        f"resolution {row['resolution']:.1%}  {outcome}"
    )


def main() -> int:
    """Measure what is not measured yet, then play every grid; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lab.tune_goals")
    parser.add_argument("--out", type=Path, default=Path.home() / ".cache/advisor-lab/grids")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", default="*", help="pattern of grid names")
    arguments = parser.parse_args()
    chosen = [grid for grid in grids() if fnmatch.fnmatch(grid.family.name, arguments.only)]
    missing = [grid.family for grid in chosen if not is_recorded(grid.family, arguments.out)]
    reason = hosts.unavailable()
    if missing and reason:
        _say(f"the lab cannot record here: {reason}")
    elif missing:
        record_families(missing, arguments.out, again=False, say=_say)
    recorded = [grid for grid in chosen if is_recorded(grid.family, arguments.out)]
    rows = [play(grid, arguments.out / grid.family.name) for grid in recorded]
    results = {"summary": summarise(rows), "grids": rows}
    arguments.results.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join([*map(line, rows), json.dumps(results["summary"])]))
    return 0 if len(recorded) == len(chosen) else 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
