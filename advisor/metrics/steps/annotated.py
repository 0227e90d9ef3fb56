"""Where each step begins and ends on each rank (METRICS section 1)."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from advisor.metrics.timeline.intervals import Int64s, last_holding
from advisor.metrics.timeline.timeline import Timeline
from advisor.store.columns import MISSING
from advisor.store.events import Events
from advisor.vocabulary.numbers import decimal

_PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d+)$")
# Ranges that engines of inference open around each step: vllm-project/vllm vllm/v1/worker
# (execute_context_1(512)_generation_3(3)), sgl-project/sglang python/sglang/srt/managers/scheduler
# (step[DECODE bs=3]), NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/py_executor.py.
_ENGINE_STEP = re.compile(
    r"^(?:execute_(?:\d+_)?context_\d+\(.*generation_|step\[[A-Z_]+ bs=|\[Executor\] _forward_step)"
)
_BEGINNINGS = ("execute_%context_%", "step[%", "[Executor] _forward_step%")
_GENERATES = re.compile(r"context_0\(|^step\[DECODE\b|: 0 ctx reqs\b")
# Ranges that loops open around each step themselves (NVTX, record_function): "step 7" in
# NERSC/sc22-dl-tutorial train.py, "step_7", "Iteration 7", "iter#7", "Train Step 7" elsewhere.
_LOOP_STEP = re.compile(r"^((?:.{0,40}\W)?(?:step|iteration|iter))[ _#:=-]*(\d+)$", re.IGNORECASE)
_LOOPS = ("%step%", "%iter%")


class Step(NamedTuple):
    """One step of one rank: device window and host annotation, ns."""

    number: int
    start: int
    end: int
    host_start: int | None
    host_end: int | None
    complete: bool
    source: str
    left_out: str | None = None  # why it does not count (used.py)

    @property
    def used(self) -> bool:
        """Whether figures per step rest on it."""
        return self.left_out is None


class Steps(NamedTuple):
    """The steps of one rank in order of time, with vectorised look-ups."""

    steps: tuple[Step, ...]

    @property
    def used_windows(self) -> tuple[list[int], list[int]]:
        """Starts and ends of the device windows of the steps that figures are of."""
        used = [s for s in self.steps if s.used]
        return [s.start for s in used], [s.end for s in used]

    def by_window(self, times: Int64s) -> Int64s:
        """Step number whose device window holds each time; MISSING outside."""
        return self._find(times, [(s.start, s.end) for s in self.steps])

    def by_host(self, times: Int64s) -> Int64s:
        """Step number whose host span holds each time; MISSING outside."""
        return self._find(
            times,
            [
                (s.start, s.end)
                if s.host_start is None or s.host_end is None
                else (s.host_start, s.host_end)
                for s in self.steps
            ],
        )

    def without(self, lost: Sequence[int]) -> "Steps":
        """The same with steps flagged partial: those whose host spans hold a ``lost`` time."""
        partial = set(self.by_host(np.array(lost, dtype=np.int64)).tolist())
        return Steps(
            tuple(s._replace(complete=s.complete and s.number not in partial) for s in self.steps)
        )

    def _find(self, times: Int64s, spans: Sequence[tuple[int, int]]) -> Int64s:
        if not self.steps:
            return np.full(len(times), MISSING, dtype=np.int64)
        low, high = np.array(spans, dtype=np.int64).T
        numbers = np.array([*(step.number for step in self.steps), MISSING], dtype=np.int64)
        found: Int64s = numbers[last_holding(low, high, times)]
        return found


def annotated_steps(events: Events, rank: int) -> list[Step]:
    """Host spans of the steps: ``ProfilerStep#N``, or the ranges of an engine or of a loop.

    The windows still are the host's; :func:`device_windows` moves them to the device.
    """
    spans: dict[int, tuple[int, int]] = {}
    for name, start, end in host_annotations(events, rank, "ProfilerStep%"):
        match = _PROFILER_STEP.match(name)
        number = decimal(match.group(1)) if match else None
        if number is not None:
            low, high = spans.get(number, (start, end))
            spans[number] = (min(low, start), max(high, end))
    source = "ProfilerStep" if spans else "annotation"
    if not spans:
        ranges = chain(*(host_annotations(events, rank, begin) for begin in _BEGINNINGS))
        spans = _engine_steps(sorted(ranges, key=lambda one: (one[1], -one[2])))
    if not spans:
        spans = _loop_steps(chain(*(host_annotations(events, rank, begin) for begin in _LOOPS)))
    ordered = sorted(spans.items(), key=lambda item: item[1])
    result = []
    for index, (number, (start, end)) in enumerate(ordered):
        # Between two steps in a row only the profiler works; that time belongs to the first.
        following = ordered[index + 1] if index + 1 < len(ordered) else None
        until = following[1][0] if following and following[0] == number + 1 else end
        result.append(Step(number, start, max(start, until), start, end, True, source))
    return result


def _engine_steps(ranges: Sequence[tuple[str, int, int]]) -> dict[int, tuple[int, int]]:
    """Steps of an engine of inference by their place among all: of those that read prompts and
    those that only generate, the kind that there is more of, as their times differ many times.

    A range within another belongs to the same step (SGLang's, where a fork opens vLLM's as well).
    """
    outer: list[tuple[str, int, int]] = []
    for one in ranges:
        if _ENGINE_STEP.match(one[0]) and (not outer or one[1] >= outer[-1][2]):
            outer.append(one)
    of_kind: dict[bool, dict[int, tuple[int, int]]] = {}
    for place, (name, start, end) in enumerate(outer):
        of_kind.setdefault(_GENERATES.search(name) is not None, {})[place] = (start, end)
    most = max(of_kind.values(), key=len, default={})
    return most if len(most) > 1 else {}


def _loop_steps(ranges: Iterable[tuple[str, int, int]]) -> dict[int, tuple[int, int]]:
    """Steps that a loop numbers: of the words that count up, one range after the other, the one
    whose ranges take longest. What counts anew, or in parallel, is within a step."""
    by_word: dict[str, list[tuple[int, int, int]]] = {}
    for name, start, end in ranges:
        match = _LOOP_STEP.match(name)
        number = decimal(match.group(2)) if match else None
        if match and number is not None:
            by_word.setdefault(match.group(1).lower(), []).append((start, end, number))
    counted: list[dict[int, tuple[int, int]]] = [{}]
    for found in by_word.values():
        found.sort()
        if len(found) > 1 and all(b[2] > a[2] and b[0] >= a[1] for a, b in pairwise(found)):
            counted.append({number: (start, end) for start, end, number in found})
    return max(counted, key=lambda spans: sum(end - start for start, end in spans.values()))


def host_annotations(events: Events, rank: int, pattern: str) -> list[tuple[str, int, int]]:
    """Name, start and end (ns) of a rank's host annotations like ``pattern``, in order of time."""
    return events.rows(
        rank,
        "SELECT rank, name, start_ns, start_ns + dur_ns FROM event "
        "WHERE run = $1 AND rank BETWEEN $2 AND $3 "
        # Kineto called every host range 'Operator' before 2022; torch_npu calls steps 'cpu_op'.
        "AND (class = 'annotation' OR category = 'Operator' OR starts_with(name, 'ProfilerStep#')) "
        "AND category IS DISTINCT FROM 'gpu_user_annotation' "
        "AND device IS NULL AND name ILIKE $4 AND start_ns IS NOT NULL "
        "ORDER BY rank, start_ns, event_id",
        [pattern],
    )


def device_windows(steps: Sequence[Step], line: Timeline) -> Steps:
    """Windows from the first device event launched in a step to the first launched in the next.

    What runs ahead of the step before (a batch copied on a stream of its own, while the host is far
    ahead of the device) begins none: a step's begins after the last kernel before it, on the stream
    that computes, has started. The last step's ends with its last event, but lasts no longer than
    the host's span or the longest other step: where the host runs ahead, what is queued behind it
    drains at the end of the recording and is no part of a usual step. So does one whose next step
    has no mark: up to the mark after that it would be two steps, and its rank one that pauses. A
    step alone is its host's whole span: nothing else says when its time begins and ends. Without
    launches, a device that works for over a step after its host's last one shows none whole.
    """
    if not line.on_device or not steps:
        return Steps(tuple(steps))
    launched = line.launch != MISSING
    asked = line.launch
    if not launched.any():  # the trace has no launches: a device event belongs to its time
        behind, longest = (
            int(line.end.max(initial=0)) - steps[-1].end,
            max(s.end - s.start for s in steps),
        )
        if behind > longest:  # unless the device does a step when its host does another
            return Steps(tuple(_moved(s, s.start, s.end, complete=False) for s in steps))
        launched, asked = np.ones(len(line), dtype=bool), line.start
    order = np.flatnonzero(launched)
    order = order[asked[order].argsort()]
    asked, begun, ended = asked[order], line.start[order], line.end[order]
    computes = line.stream[order] == line.compute_stream
    computed = asked[computes], begun[computes]
    # What the host had asked for before the recording.
    strays = line.start[(line.stream == line.compute_stream) & (line.launch == MISSING)]
    firsts: list[int | None] = []
    lasts: list[int | None] = []
    for step in steps:
        assert step.host_start is not None and step.host_end is not None
        low, high = np.searchsorted(asked, [step.host_start, step.host_end + 1])
        own, before = begun[low:high], _reached(step.host_start, *computed, strays)
        firsts.append(int(own[own >= min(before, own.max())].min()) if low < high else None)
        lasts.append(int(ended[low:high].max()) if low < high else None)
    reached = [(s, begin) for s, begin in zip(steps, firsts, strict=True) if begin is not None]
    begins = iter(reached[1:])
    moved: list[Step] = []
    longest = 0
    for step, first, last in zip(steps, firsts, lasts, strict=True):
        if first is None or last is None:
            # Nothing of it reached the device: kept, but of no use to statistics.
            moved.append(_moved(step, step.start, step.end, complete=False))
            longest = max(longest, step.end - step.start)
            continue
        assert step.host_start is not None and step.host_end is not None
        following = next(begins, None)
        if following is not None and not _lacks_a_mark(step, following[0]):
            end = following[1]
        elif moved or following is not None:
            end = min(last, first + max(longest, step.host_end - step.host_start))
        else:
            first, end = min(first, step.host_start), max(last, step.host_end)
        end = max(first, end)
        moved.append(_moved(step, first, end, complete=step.complete))
        longest = max(longest, end - first)
    return Steps(tuple(moved))


def _reached(host_start: int, asked: Int64s, begun: Int64s, strays: Int64s) -> int:
    """When the last kernel began that the host had asked for before a step, on the stream that
    computes: ``begun`` as they were ``asked`` for, before them the ``strays``. MISSING without."""
    place = int(np.searchsorted(asked, host_start))
    earlier = begun[:place] if place else strays[strays < begun[0]] if len(begun) else strays[:0]
    return int(earlier.max(initial=MISSING))


def _lacks_a_mark(step: Step, following: Step) -> bool:
    """Whether a step ran between two marked ones: their numbers leave room for it, and so does the
    time (recordings of every tenth step leave out numbers, and no time)."""
    assert None not in (step.host_start, step.host_end, following.host_start)
    apart = following.host_start - step.host_end  # type: ignore[operator]
    return following.number > step.number + 1 and 2 * apart > step.host_end - step.host_start  # type: ignore[operator]


def _moved(step: Step, start: int, end: int, *, complete: bool) -> Step:
    return step._replace(start=start, end=end, complete=complete)


def last_incomplete(steps: Steps) -> Steps:
    """The same with the last step flagged partial: the file was cut."""
    if not steps.steps:
        return steps
    last = steps.steps[-1]
    return Steps((*steps.steps[:-1], _moved(last, last.start, last.end, complete=False)))
