"""Steps of a trace without step annotations: from one optimizer step to the next (METRICS 1).

torch.profiler notes every ``Optimizer.step#NAME.step``. Unlike a period of the collectives this
holds a step's micro-batches together.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.metrics.steps.annotated import Step, Steps, device_windows, host_annotations
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING
from advisor.store.events import Events

_FEWEST = 3
# The event that Kineto writes for the time that a file covers.
_RECORDING = "PyTorch Profiler (%"
# Several optimizers, or one per parameter, step close together: what is nearer to the next than
# this share of the second longest distance (the longest may be a pause) belongs to the same step.
_TOGETHER = 0.1


def optimizer_steps(events: Events, lines: Mapping[int, Timeline]) -> dict[int, Steps] | None:
    """Steps of every rank by its optimizer steps; None where a rank has too few of them.

    What comes before the end of the first and after the end of the last is kept as partial steps.
    """
    result = {}
    for rank, line in lines.items():
        found = host_annotations(events, rank, "Optimizer.step#%")
        ends = _ends([(s, e) for _, s, e in found])
        if len(ends) < _FEWEST:
            return None
        begun = sorted(start for _, start, _ in host_annotations(events, rank, _RECORDING))
        steps = device_windows(_between(ends, line, begun), line)
        result[rank] = Steps(tuple(_seen(step, line, begun) for step in steps.steps))
    # Steps have the same number on all ranks only where all of them saw the same ones.
    whole = {len(steps.steps) for steps in result.values()}
    return result if len(whole) == 1 else None


def _ends(spans: Sequence[tuple[int, int]]) -> list[int]:
    """When the optimizer's work of each step ended, ns."""
    if not spans:
        return []
    starts, ends = np.array(sorted(spans), dtype=np.int64).T
    distances = np.diff(starts)
    usual = np.sort(distances)[-2:].min(initial=np.iinfo(np.int64).max)
    last = np.append(distances > _TOGETHER * usual, True)
    return [int(end) for end in np.maximum.accumulate(ends)[last]]


def _seen(step: Step, line: Timeline, begun: Sequence[int]) -> Step:
    """A step of the device up to its last event before another of the recordings ``begun``: between
    two of them the profiler writes the first."""
    later = next((at for at in begun if step.start < at < step.end), None)
    if later is None or not line.on_device:
        return step
    own = line.end[(line.start >= step.start) & (line.start < later)]
    return step._replace(end=int(own.max(initial=step.start)))


def _between(ends: Sequence[int], line: Timeline, begun: Sequence[int]) -> list[Step]:
    """``begun``: when the recordings did; what lies before one of them is of no step."""
    asked = line.launch[line.launch != MISSING] if line.on_device else line.start
    low = min(int(asked.min()), ends[0]) if len(asked) else ends[0]
    high = max(int(line.end.max()), ends[-1] + 1) if len(line) else ends[-1] + 1
    edges = [low, *ends, high]
    steps = []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        begin = max((at for at in begun if start < at < end), default=start)
        whole = 0 < number < len(ends)
        steps.append(Step(number, begin, end, begin, end, whole, "optimizer-step"))
    return steps
