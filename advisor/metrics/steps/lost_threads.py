"""Steps of which a thread's records were lost: profilers keep them by thread, each in buffers of
its own, and what a job that is stopped had not handed over yet is gone.

Autograd launches the backward pass on a thread of its own. A step without it looks like a short
one of a device that idles.
"""

import numpy as np

from advisor.metrics.steps.annotated import Steps
from advisor.metrics.steps.used import LOST_THREAD
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING

_FEWEST = 3  # steps in a row tell what a thread does in each


def without_lost_threads(line: Timeline, steps: Steps) -> Steps:
    """The same with steps flagged that lack a thread which launched in all steps before, though
    the other threads launch as much as ever: a pass of another kind (an evaluation) has those
    launch something else."""
    known = line.launch != MISSING
    if not line.on_device or len(steps.steps) <= _FEWEST or len(np.unique(line.thread[known])) < 2:
        return steps
    number, thread = steps.by_host(line.launch[known]), line.thread[known]
    launches = np.array(
        [
            [np.count_nonzero(own == step.number) for step in steps.steps]
            for own in (number[thread == one] for one in np.unique(thread))
        ]
    )
    lacks = np.zeros(len(steps.steps), dtype=bool)
    for place, own in enumerate(launches):
        until = int(np.flatnonzero(own).max(initial=-1))
        usual = own[:until]
        others = np.delete(launches, place, axis=0).sum(axis=0)
        before, after = others[1:until], others[until + 1 :]
        if until < _FEWEST or not usual.all() or not after.any():
            continue
        if before.min() <= np.median(after[after > 0]) <= before.max():
            lacks[until + 1 :] |= after > 0
            lacks[until] |= own[until] < usual[1:].min()
    return Steps(
        tuple(
            step._replace(complete=False, left_out=LOST_THREAD) if lost else step
            for step, lost in zip(steps.steps, lacks.tolist(), strict=True)
        )
    )
