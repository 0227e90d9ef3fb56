"""Rows of ``host_gap``: stretches in which a device waits, with what its host did."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.metrics.host.activity import KINDS, OWN_WORK_NS, HostActivity, largest
from advisor.metrics.host.beside_calls import loading_beside_calls
from advisor.metrics.host.lead import PAUSE_NS, Gaps
from advisor.metrics.host.stretches import WAITS, enqueued
from advisor.metrics.steps.annotated import Steps
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s, Intervals
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING

# Gaps under this are not worth a row; they are in the breakdown's idle columns all the same.
_SHORTEST_GAP_NS = 50_000
# After a wait for the device the host catches up launch by launch, each with a gap of its own.
_SHORTEST_WAIT_NS = 10_000
_MOST_GAPS = 20_000
_SHORTEST_PAUSE_NS = OWN_WORK_NS
"""What is shorter is given no name."""
_WITHOUT_KIND = ("other", "pause")
_PLACES = {name: place for place, (name, _) in enumerate(KINDS)}

_OWN_NAMES = f"""
UPDATE host_gap SET name = code.name FROM (
  SELECT g.rank, g.start_ns, arg_max(e.name, (CASE WHEN e.class <> 'python' THEN 1
      WHEN contains(e.name, '.py(') THEN 2 ELSE 0 END, e.dur_ns)) AS name
  FROM host_gap g JOIN event e ON e.run = g.run AND e.rank = g.rank
    AND e.start_ns >= g.start_ns - g.idle_ns // 10
    AND e.start_ns + e.dur_ns <= g.end_ns + g.idle_ns // 10 AND e.dur_ns >= g.idle_ns // 2
  WHERE g.run = $run AND g.kind IN {_WITHOUT_KIND} AND g.name IS NULL
    AND g.idle_ns >= {_SHORTEST_PAUSE_NS}
    AND (e.class = 'python' OR e.class IN ('cpu_op', 'annotation')
      AND e.device IS NULL AND NOT starts_with(e.name, 'ProfilerStep#'))
  GROUP BY g.rank, g.start_ns) code
WHERE host_gap.run = $run AND host_gap.rank = code.rank AND host_gap.start_ns = code.start_ns
  AND host_gap.kind IN {_WITHOUT_KIND}
"""
_NAMES_AROUND = f"""
UPDATE host_gap SET name = code.name FROM (
  SELECT g.rank, g.start_ns, arg_min(e.name, e.dur_ns) AS name
  FROM host_gap g JOIN event e ON e.run = g.run AND e.rank = g.rank
    AND e.start_ns <= g.start_ns + g.idle_ns // 10
    AND e.start_ns + e.dur_ns >= g.end_ns - g.idle_ns // 10
  WHERE g.run = $run AND g.kind IN {_WITHOUT_KIND} AND g.name IS NULL
    AND g.idle_ns >= {_SHORTEST_PAUSE_NS} AND e.class = 'python' AND contains(e.name, '.py(')
    AND (e.rank, e.tid) IN (
      SELECT DISTINCT (rank, tid) FROM event WHERE run = $run AND class = 'runtime')
  GROUP BY g.rank, g.start_ns) code
WHERE host_gap.run = $run AND host_gap.rank = code.rank AND host_gap.start_ns = code.start_ns
  AND host_gap.kind IN {_WITHOUT_KIND}
"""
NAME_READS = """
UPDATE host_gap SET reads = found.name FROM (
  SELECT g.rank, g.start_ns, e.name
  FROM (SELECT rank, start_ns FROM host_gap WHERE run = $run AND kind = 'synchronisation') g
  ASOF JOIN (SELECT rank, start_ns, name FROM event
    WHERE run = $run AND class = 'compute' AND device IS NOT NULL) e
  ON e.rank = g.rank AND e.start_ns <= g.start_ns) found
WHERE host_gap.run = $run AND host_gap.rank = found.rank AND host_gap.start_ns = found.start_ns
  AND host_gap.kind = 'synchronisation'
"""
"""What the device had computed last where the host waited for a result."""
NAME_OFFLOADED = """
UPDATE host_gap SET name = found.name FROM (
  SELECT g.rank, g.start_ns, r.name FROM host_gap g
  JOIN event down ON down.run = g.run AND down.rank = g.rank AND down.class = 'memory'
    AND down.start_ns + down.dur_ns = g.start_ns AND regexp_matches(down.name, 'DtoH|DeviceToHost')
  JOIN event up ON up.run = g.run AND up.rank = g.rank AND up.class = 'memory'
    AND up.start_ns = g.end_ns AND regexp_matches(up.name, 'HtoD|HostToDevice')
  JOIN event r ON r.run = g.run AND r.rank = g.rank AND r.class = 'annotation' AND r.device IS NULL
    AND starts_with(r.name, 'Optimizer.step#') AND r.start_ns < g.end_ns
    AND r.start_ns + r.dur_ns > (g.start_ns + g.end_ns) // 2
  WHERE g.run = $run AND g.kind IN ('synchronisation', 'blocking-copy')) found
WHERE host_gap.run = $run AND host_gap.rank = found.rank AND host_gap.start_ns = found.start_ns
"""
"""Between gradients that come to the host and parameters that go back, within an optimizer's step,
the host computes that step: this names the stretch, not the wait for the gradients before it."""
PAGES = """
UPDATE host_gap SET kind = 'paging' FROM event e
WHERE host_gap.run = $run AND host_gap.kind = 'other' AND host_gap.name IS NULL
  AND e.run = $run AND e.rank = host_gap.rank
  AND e.start_ns = host_gap.end_ns AND e.class = 'memory' AND contains(e.name, '(Managed)')
"""
"""Nobody launched what ends these: pages of unified memory move as the host touches them."""
NAME_PAUSES = (_OWN_NAMES, _NAMES_AROUND)
"""Name a pause that no kind names: by what fills at least half of it and reaches at most a tenth of
it beyond its ends, the outermost Python function where the recording has stacks, else the operator
or range that takes longest, else what is built into Python (a sleep, a read); else by the innermost
Python function around it, of a thread that calls the runtime."""

_NUMBERS = r"regexp_replace(name, '\d+', 'N', 'g')"
NAME_AS_ONE = f"""
UPDATE host_gap SET name = {_NUMBERS}
WHERE run = $run AND kind = 'pause' AND (rank, {_NUMBERS}) IN (
  SELECT (rank, {_NUMBERS}) FROM host_gap WHERE run = $run AND kind = 'pause'
  GROUP BY ALL HAVING count(DISTINCT name) > 1)
"""
"""What a program numbers, such as its layers or steps, is one thing that its host does."""

_LONG = 1.5  # times the typical step, as in rules/unsteady-steps.yaml
NAME_LONG_STEPS = f"""
UPDATE step SET only_there = found.name FROM (
  WITH own AS (
    SELECT rank, step, host_start_ns, host_end_ns, end_ns - start_ns AS ns,
      median(ns) OVER (PARTITION BY rank) AS typical_ns
    FROM step WHERE run = $run AND used AND host_end_ns IS NOT NULL),
  range AS (
    SELECT rank, name, start_ns, dur_ns FROM event
    WHERE run = $run AND (class = 'annotation' AND device IS NULL
      OR class = 'python' AND contains(name, '.py('))),
  long AS (
    SELECT o.rank, step, arg_max(name, dur_ns) AS name FROM own o JOIN range r ON r.rank = o.rank
      AND start_ns >= host_start_ns AND start_ns + dur_ns <= host_end_ns
    WHERE ns > {_LONG} * typical_ns AND 2 * dur_ns >= ns - typical_ns
      AND (o.rank, name) NOT IN (
        SELECT (o.rank, name) FROM own o JOIN range r ON r.rank = o.rank
          AND start_ns >= host_start_ns AND start_ns < host_end_ns WHERE ns <= {_LONG} * typical_ns)
      AND NOT starts_with(name, 'ProfilerStep#')
    GROUP BY o.rank, step)
  FROM long) found
WHERE step.run = $run AND step.rank = found.rank AND step.step = found.step
"""
"""Name what the host of a long step does for half of what it takes longer, and of no other step."""


def has_long_steps(steps: Steps) -> bool:
    """Whether ``NAME_LONG_STEPS`` could name anything."""
    lengths = [step.end - step.start for step in steps.steps if step.used]
    return len(lengths) > 1 and max(lengths) > _LONG * float(np.median(lengths))


def may_be_named(gap: Mapping[str, Any]) -> bool:
    """Whether ``NAME_PAUSES`` could say more of this row of ``host_gap``."""
    long = gap["idle_ns"] >= _SHORTEST_PAUSE_NS
    return long and gap["kind"] in _WITHOUT_KIND and gap.get("name") is None


def gap_rows(
    run: str,
    line: Timeline,
    occupancy: Occupancy,
    steps: Steps,
    activity: HostActivity,
    gaps: Gaps | None,
) -> list[dict[str, Any]]:
    """The longest gaps of a rank. On a CPU (``gaps`` is None) the loader alone names them.

    Where a CPU's recording has no operator, it does not tell computing from idling: only what is
    named is a gap then.
    """
    busy = occupancy.busy
    if len(busy) < 2:
        return []
    low, high = busy.end[:-1], busy.start[1:]
    shortest = np.full(len(low), _SHORTEST_GAP_NS)
    if gaps is not None:
        shortest[gaps.by_wait] = _SHORTEST_WAIT_NS
    long = np.flatnonzero(high - low >= shortest)
    if len(long) > _MOST_GAPS:
        long = np.sort(long[np.argsort(low[long] - high[long], kind="stable")[:_MOST_GAPS]])
    ends = _recorded_until(steps)
    number = _steps_of(low[long], high[long], steps, ends)
    kinds = _on_host(activity, low, high) if gaps is None else gaps.kind
    if gaps is None and not len(occupancy.compute):
        named = kinds[long] != "other"
        long, number = long[named], number[named]
    until = gaps.until if gaps is not None and (line.launch != MISSING).any() else None
    computes = occupancy.compute.end
    until_then = int(low[0])
    rows = [] if gaps is None else _before_the_first(run, line, int(busy.start[0]), steps, activity)
    parts = [
        (place, step, kind, stretch)
        for place, step in zip(long.tolist(), number.tolist(), strict=True)
        for kind, stretch in _parts(
            gaps,
            place,
            str(kinds[place]),
            int(low[place]),
            min(int(high[place]), ends.get(step, int(high[place]))),
        )
    ]
    for place, step, kind, stretch in parts:
        begin, end = int(stretch.start[0]), int(stretch.end[-1])
        name, event_id, moving = None, None, None
        if gaps is not None and gaps.span[place] >= 0 and kind == gaps.rest[place]:
            span = int(gaps.span[place])
            name, event_id = str(activity.name[span]), int(activity.event_id[span])
        elif kind in _PLACES:
            name, event_id, began = largest(activity, _PLACES[kind], begin, end)
            computed = int(np.searchsorted(computes, begin, "right"))
            if gaps is not None and began is not None and computed:
                moving = max(0, begin - max(began, int(computes[computed - 1]), until_then))
        until_then = end
        rows.append(
            {
                "run": run,
                "rank": line.rank,
                "step": step,
                "kind": kind,
                "start_ns": begin,
                "end_ns": end,
                "idle_ns": stretch.length,
                "host_ns": None if until is None else stretch.clip(begin, int(until[place])).length,
                "name": name,
                "event_id": event_id,
                "moving_ns": moving,
                "beside_ns": 0,
            }
        )
    return rows + _beside_calls(run, line, occupancy, steps, activity)


def _beside_calls(
    run: str, line: Timeline, occupancy: Occupancy, steps: Steps, activity: HostActivity
) -> list[dict[str, Any]]:
    """Stretches of loading in which calls run that the compute after them does not wait for."""
    found = loading_beside_calls(line, occupancy, activity)
    number = _steps_of(found.start, found.end, steps, _recorded_until(steps)).tolist()
    rows = []
    for step, begin, end in zip(number, found.start.tolist(), found.end.tolist(), strict=True):
        name, event_id, began = largest(activity, _PLACES["data-loading"], begin, end)
        computed = int(occupancy.compute.end[np.searchsorted(occupancy.compute.end, end) - 1])
        rows.append(
            {
                "run": run,
                "rank": line.rank,
                "step": step,
                "kind": "data-loading",
                "start_ns": begin,
                "end_ns": end,
                "idle_ns": 0,
                "host_ns": None,
                "name": name,
                "event_id": event_id,
                "moving_ns": begin - max(began or begin, computed),
                "beside_ns": end - begin,
            }
        )
    return rows


def _parts(
    gaps: Gaps | None, place: int, kind: str, low: int, high: int
) -> list[tuple[str, Intervals]]:
    """A gap by what its host did, where that was several things of which each took a tenth or more:
    what none of them fills is of the kind that it would be without them."""
    whole = Intervals.of([low], [high])
    if gaps is None or kind not in gaps.named:
        return [(kind, whole)]
    found = {
        name: gaps.named[name].clip(low, high)
        for name in gaps.named
        if 10 * gaps.covered[name][place] >= high - low
    }
    if len(found) < 2:
        return [(kind, whole)]
    for own in found.values():
        whole -= own
    found[str(gaps.rest[place])] = whole
    return [(name, own) for name, own in found.items() if own.length >= _SHORTEST_GAP_NS]


def _before_the_first(
    run: str, line: Timeline, first: int, steps: Steps, activity: HostActivity
) -> list[dict[str, Any]]:
    """What its host does before the device's first work in a step that was recorded alone, unless
    that work was queued, or not recorded, by then: the step is its host's whole span."""
    begin = steps.steps[0].start if len(steps.steps) == 1 else first
    at = line.start.argmin()
    (asked,) = enqueued(line.launch[[at]], line.start[[at]], activity.union("loading")).tolist()
    if first - begin < _SHORTEST_GAP_NS or 2 * asked < begin + first:
        return []
    kind = str(_on_host(activity, np.array([begin]), np.array([first]))[0])
    if kind in WAITS:
        return []
    kind = "pause" if kind == "other" and first - begin >= PAUSE_NS else kind
    name, event_id, _ = (
        largest(activity, _PLACES[kind], begin, first) if kind in _PLACES else (None, None, None)
    )
    return [
        {
            "run": run,
            "rank": line.rank,
            "step": steps.steps[0].number,
            "kind": kind,
            "start_ns": begin,
            "end_ns": first,
            "idle_ns": first - begin,
            "host_ns": min(asked, first) - begin,
            "name": name,
            "event_id": event_id,
            "moving_ns": None,
            "beside_ns": 0,
        }
    ]


def _steps_of(low: Int64s, high: Int64s, steps: Steps, ends: Mapping[int, int]) -> Int64s:
    """The step that holds the middle of each gap: a pause at a step's start begins where the host
    leaves the last step's end, on some ranks before the mark."""
    first = steps.by_window(low)
    until = [
        min(end, ends.get(number, end))
        for number, end in zip(first.tolist(), high.tolist(), strict=True)
    ]
    middle = steps.by_window((low + np.array(until, dtype=np.int64)) // 2)
    return np.where(middle == MISSING, first, middle)


def _recorded_until(steps: Steps) -> dict[int, int]:
    """Step -> its end, where the next was not recorded: what lies between the two is no gap."""
    following = [*(step.start for step in steps.steps[1:]), None]
    return {
        step.number: step.end
        for step, begin in zip(steps.steps, following, strict=True)
        if begin is not None and begin > step.end
    }


def _on_host(activity: HostActivity, low: Int64s, high: Int64s) -> Any:
    """Kinds of a CPU's gaps: of what fills half of each."""
    kinds = np.full(len(low), "other", dtype=object)
    for kind, _ in reversed(KINDS):
        kinds[2 * activity.union(kind).covered(low, high) >= high - low] = kind
    return kinds
