"""Records some steps of a rank into one Kineto trace: the profiler's schedule, metadata and export.

The trace carries torch's ``ProfilerStep#N`` annotations and, under the top-level key ``advisor``,
what its reader cannot know otherwise. It is written to a temporary name and renamed, so that a
reader never sees half a file; what was recorded before an exception is exported as well.
"""

import gc
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from advisor.config.atomic_files import removed_at_end
from advisor.profile import cores, names
from advisor.profile.objects import pickling_marked
from advisor.profile.ranges import Range

GLOO_THREAD_NAME = "pt_gloo_runloop"
_GLOO_LOOP_NAME = "gloo_tcp_loop"
_THREADS_PER_GLOO_INTERFACE = 2
_GLOO_LOOK_S = 0.001
_GLOO_MOST_S = 1.0


class _Profiler(profile):
    """Torch's, but gloo's threads have noted the ends of their operations before it stops.

    Gloo completes an operation's future, for which DistributedDataParallel waits, before it notes
    the end of its span (Work::finish of torch 2.13): into freed memory where the profiler has
    stopped meanwhile, which ends the process in a later malloc.
    """

    def stop_trace(self) -> None:
        """Called by the schedule, after the last step's annotation has ended."""
        wait_for_gloo()
        super().stop_trace()


class Recording:
    """Call :meth:`step` at the end of every step; the first is the profiler's own warm-up.

    ``metadata`` is called once, just before recording ends; what it returns goes under ``advisor``.
    """

    def __init__(
        self,
        path: Path,
        *,
        steps: int,
        device: str,
        metadata: Callable[[], dict[str, Any]],
        record_shapes: bool = True,
        record_memory: bool = False,
        record_stacks: bool = False,
    ) -> None:
        self.path = path
        self.steps = steps
        self._metadata = metadata
        self._steps_done = -1  # the profiler's warm-up step is not recorded
        self._annotated = False
        self._marks = ExitStack()
        self._waits = CoreWaits()
        self._cores: cores.CoresUsed | None = None  # at the end of the warm-up
        activities = [ProfilerActivity.CPU]
        if device == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profiler = _Profiler(
            activities=activities,
            schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
            on_trace_ready=self._export,
            record_shapes=record_shapes,
            profile_memory=record_memory,
            with_stack=record_stacks,
        )

    def __enter__(self) -> "Recording":
        self._marks.enter_context(pickling_marked())
        self._marks.enter_context(_collections_marked())
        self._profiler.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._marks, _undisturbed():
            self._annotate()
            self._profiler.__exit__(kind, error, trace)

    @property
    def done(self) -> bool:
        """Whether the last step has been recorded and the trace written."""
        return self._steps_done >= self.steps

    def step(self) -> None:
        """End a step; after the last one the trace is written."""
        self._steps_done += 1
        if self._steps_done == 0:
            self._cores = cores.used()
        self._waits.end_step()
        if self._steps_done >= self.steps:
            self._annotate()
        with _undisturbed():
            self._profiler.step()

    def _annotate(self) -> None:
        if self._steps_done < 0 or self._annotated:
            return
        self._annotated = True
        held = cores.kept_busy(self._cores, cores.used(), torch.get_num_threads())
        own = {**self._metadata(), **held, "recorded_steps": self._steps_done}
        own |= self._waits.by_step_ns()
        text = json.dumps(own, sort_keys=True)
        self._profiler.add_metadata_json(names.METADATA_KEY, text)

    def _export(self, profiler: Any) -> None:
        # The suffix stays last: torch compresses by it.
        temporary = self.path.with_name(f".partial-{self.path.name}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with removed_at_end(temporary):
                profiler.export_chrome_trace(str(temporary))
                temporary.replace(self.path)
        except Exception as error:  # noqa: BLE001 - a full disk, no memory: the job may need neither
            print(
                f"advisor: {self.path.name} is not recorded, the job goes on: "
                f"{str(error) or type(error).__name__}",
                file=sys.stderr,
            )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold SIGTERM back until the body is done: a launcher sends it when another rank died."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)
        if came:
            signal.raise_signal(signal.SIGTERM)


class CoreWaits:
    """How long threads are ready to run without a core: the training thread's, and gloo's."""

    def __init__(self) -> None:
        self._until_ns: dict[str, list[int]] = {"core_wait_ns": [], "gloo_wait_ns": []}
        self._gloo: list[Path] | None = None

    def end_step(self) -> None:
        """Note how long they have waited so far; the first step that ends is not counted."""
        if self._gloo is None:
            self._gloo = gloo_tasks()
        if (waited_ns := waited_for_core_ns()) is not None:
            self._until_ns["core_wait_ns"].append(waited_ns)
        if self._gloo and (by_gloo := [*map(waited_for_core_ns, self._gloo)]).count(None) == 0:
            self._until_ns["gloo_wait_ns"].append(sum(filter(None, by_gloo)))

    def by_step_ns(self) -> dict[str, list[int]]:
        """Of each step after the first, as the recording's metadata holds it; what is kept only."""
        waits = {
            name: [end - begin for begin, end in itertools.pairwise(until)]
            for name, until in self._until_ns.items()
        }
        return {name: by_step for name, by_step in waits.items() if by_step}


def waited_for_core_ns(task: Path = Path("/proc/thread-self")) -> int | None:
    """How long a thread has been ready to run without a core so far, ns; None where not kept.

    Linux keeps it: the second number of schedstat (Documentation/scheduler/sched-stats.rst).
    """
    try:
        return int((task / "schedstat").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None


def gloo_tasks() -> list[Path]:
    """Gloo's threads of this process: those that move its bytes, and those that reduce."""
    names = (GLOO_THREAD_NAME, _GLOO_LOOP_NAME)
    return [task for task in Path("/proc/self/task").glob("*") if _name(task) in names]


def gloo_threads(groups: list[str]) -> dict[str, str]:
    """Which process group each of gloo's worker threads serves: {thread id: group name}.

    Gloo's spans in a trace carry no group. Each group starts two worker threads per interface of
    GLOO_SOCKET_IFNAME when it is created, so the threads in order of their start belong to the
    groups in order of creation.
    ``groups`` are the gloo groups of this rank in that order. Empty when the numbers do not fit.
    """
    started = {thread: _start_ticks(stat) for thread, stat in _gloo_stats().items()}
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME", "").count(",") + 1
    per_group = _THREADS_PER_GLOO_INTERFACE * interfaces
    if not groups or len(started) != per_group * len(groups):
        return {}
    pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    return {
        str(thread): groups[position // per_group]
        for position, thread in enumerate(in_order_of_start(started, pid_max))
    }


def wait_for_gloo() -> bool:
    """Wait until no gloo thread computes; False when one still does after a second.

    One that sleeps has nothing to do, or waits for another rank.
    """
    deadline = time.monotonic() + _GLOO_MOST_S
    while any(_state(stat) == "R" for stat in _gloo_stats().values()):
        if time.monotonic() > deadline:
            return False
        time.sleep(_GLOO_LOOK_S)
    return True


def _gloo_stats() -> dict[int, str]:
    """Gloo's worker threads of this process: proc(5)'s stat by thread id."""
    found: dict[int, str] = {}
    for task in Path("/proc/self/task").glob("*"):
        if _name(task) == GLOO_THREAD_NAME:
            with suppress(FileNotFoundError, ProcessLookupError):
                found[int(task.name)] = (task / "stat").read_text()
    return found


def _name(task: Path) -> str:
    """'' of a thread that ended while the folder was read: it serves no group any more."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return (task / "comm").read_text().strip()
    return ""


def in_order_of_start(started: dict[int, int], pid_max: int) -> list[int]:
    """Thread ids by start, from {id: start in clock ticks}.

    Ids ascend only until they start over at ``pid_max``; a tick holds many starts. So: by tick, and
    within a tick by id, those on the far side of a jump of half the ids first.
    """
    ticks: dict[int, list[int]] = {}
    for thread, tick in started.items():
        ticks.setdefault(tick, []).append(thread)
    ordered: list[int] = []
    for _, threads in sorted(ticks.items()):
        half = pid_max // 2
        wrapped = max(threads) - min(threads) > half
        ordered += sorted(threads, key=lambda thread: (wrapped and thread < half, thread))
    return ordered


def _state(stat: str) -> str:
    """Field 3: R runs or waits for a processor."""
    return stat.rsplit(")", 1)[1].split(maxsplit=1)[0]


def _start_ticks(stat: str) -> int:
    """Field 22 of proc(5)'s stat; the name in field 2 may hold spaces."""
    return int(stat.rsplit(")", 1)[1].split()[19])


def gloo_groups() -> list[str]:
    """Names of this rank's gloo groups in order of creation."""
    world = torch.distributed.distributed_c10d._world
    names_of = world.pg_names
    created = [g for g in world.pg_map if "gloo" in str(world.pg_backend_config.get(g, ""))]
    return [str(names_of[group]) for group in created]


_FULL = 2  # the generation that a collection of all objects has (docs.python.org, module gc)


@contextmanager
def _collections_marked() -> Iterator[None]:
    """While the body runs, full collections of garbage, in which the host runs nothing else, are
    ranges; younger ones take microseconds.

    torch's own record_python_gc_info needs recorded stacks, which slow every call.
    """
    opened: list[Range] = []

    def mark(phase: str, about: dict[str, Any]) -> None:
        if opened:
            opened.pop().close()
        if phase == "start" and about["generation"] == _FULL:
            opened.append(Range(names.COLLECTION))

    gc.callbacks.append(mark)
    try:
        yield
    finally:
        gc.callbacks.remove(mark)
