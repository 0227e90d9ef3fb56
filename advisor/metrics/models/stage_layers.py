"""Layers of a pipeline's stages, and how evenly whole ones can be split (METRICS 7).

What the layers run they run once each per micro-batch, whichever stage holds them: kernels of one
name count 5, 4, 4 and 4 times on stages of 5, 4, 4 and 4 layers, or a multiple of it.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

from advisor.store.columns import rows

# Names of kernels that count alike: fewer may be chance (of a loss, of an embedding).
_FEWEST_NAMES = 3

_COUNTS = """
SELECT rank, name, count(*), sum(a.end_ns - a.start_ns), count(DISTINCT a.step)
FROM activity a JOIN event e USING (run, rank, event_id)
WHERE run = $1 AND list_contains($2::INTEGER[], rank) AND kind = 'compute' AND a.step IS NOT NULL
GROUP BY rank, name
"""


class Split(NamedTuple):
    """How many layers each stage holds, and what the slowest takes where they are split best."""

    layers: list[int]
    layer_pace: list[float]
    """What kernels of a layer take on a stage over what they take on the median stage."""
    evened_ns: int


def add_stage_layers(con: Any, run: str, records: Sequence[dict[str, Any]]) -> None:
    """Set ``layers``, ``layer_pace`` and ``evened_ns`` of rows of one chain in ``pipeline_stage``.

    None where stages are missing or interleaved, or where their kernels show no common layer.
    """
    for record in records:
        record |= {"layers": None, "layer_pace": None, "evened_ns": None}
    first = records[0]
    if first["chunks"] != 1 or not first["micro_batches"] or len(records) != first["stages"]:
        return
    counts: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
    for rank, name, count, took, steps in rows(
        con, _COUNTS, [run, [record["rank"] for record in records]]
    ):
        passes = steps * first["micro_batches"]
        counts[name][rank] = count / passes, took / passes
    took_ns = [record["compute_ns"] for record in records]
    found = split_of([record["rank"] for record in records], took_ns, counts)
    if found is not None:
        for record, layers, pace in zip(records, found.layers, found.layer_pace, strict=True):
            record |= {"layers": layers, "layer_pace": pace, "evened_ns": found.evened_ns}


def split_of(
    ranks: Sequence[int],
    took_ns: Sequence[int],
    counts: Mapping[str, Mapping[int, tuple[float, float]]],
) -> Split | None:
    """``took_ns``: of each stage; ``counts``: name -> rank -> calls and ns per micro-batch."""
    alike: dict[tuple[float, ...], list[tuple[int, ...]]] = defaultdict(list)
    named: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for name, own in counts.items():
        if len(own) != len(ranks):
            continue
        calls = [own[rank][0] for rank in ranks]
        if all(count >= 1 and count == round(count) for count in calls):
            key = tuple(round(count / calls[0], 6) for count in calls)
            alike[key].append(tuple(map(round, calls)))
            named[key].append(name)
    key = max(alike, key=lambda one: len(alike[one]), default=())
    if len(alike[key]) < _FEWEST_NAMES:
        return None
    layers = list(min(alike[key]))
    if max(layers) < 2:
        return None
    of_layer = [
        sum(counts[name][rank][1] for name in named[key]) / layers[stage]
        for stage, rank in enumerate(ranks)
    ]
    usual = statistics.median(of_layer)
    pace = [one / usual for one in of_layer]
    # Of the stage that has least beside its layers they are all that it takes.
    layer_ns = min(
        took / count / own for took, count, own in zip(took_ns, layers, pace, strict=True)
    )
    beside = [
        took - count * own * layer_ns
        for took, count, own in zip(took_ns, layers, pace, strict=True)
    ]
    # Larger layers are evened too: each is then of the mean size.
    mean_ns = layer_ns * sum(map(mul, layers, pace)) / sum(layers)
    return Split(layers, pace, round(_evened(beside, sum(layers), mean_ns)))


def _evened(beside_ns: Sequence[float], layers: int, layer_ns: float) -> float:
    """The slowest stage where each layer goes to the stage that is then the fastest."""
    took = [one + layer_ns for one in beside_ns]
    for _ in range(layers - len(took)):
        took[min(range(len(took)), key=took.__getitem__)] += layer_ns
    return max(took)
