"""Records N steps of anybody's training: counts optimizer steps, skips the first, then records.

The steps are counted by torch's public hook on every optimizer's step. Before the recorded window a
step costs one increment, and so does one after it.
"""

import itertools
import os
import platform
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import nvtx
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from advisor.errors import AdvisorError
from advisor.profile import environment, files, names, outside_backward
from advisor.profile.hook import construction
from advisor.profile.hook.order import Order
from advisor.profile.recording import Recording, gloo_groups, gloo_threads
from advisor.vocabulary.recorded_steps import STEPS


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of ranks: from the process group, else torchrun."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class StepRecorder:
    """A context manager around a training loop; call :meth:`step` at the end of every step.

    Skips ``skip`` steps, records ``steps``, writes ``folder``/rankN.json.gz on each of ``ranks``
    (None: all); then it does nothing. :meth:`count_optimizer_steps` can count the steps instead.
    ``on_done`` is called once with the trace's path; ``library`` is whose loop this is, if known.
    Where the folder has an earlier recording the next one is taken (FOLDER-2), or with ``force``
    its traces are removed: AdvisorError is raised when they are of `advisor profile`.
    """

    def __init__(
        self,
        folder: str | Path = "advisor-traces",
        *,
        steps: int = STEPS,
        skip: int = 10,
        ranks: Sequence[int] | None = None,
        record_shapes: bool = True,
        record_memory: bool = False,
        record_stacks: bool = False,
        on_done: Callable[[Path], None] | None = None,
        force: bool = False,
        library: str | None = None,
    ) -> None:
        if steps < 1 or skip < 0:
            raise AdvisorError(
                f"cannot record {steps} steps after {skip}", hint="steps >= 1, skip >= 0"
            )
        self.folder = files.claim(Path(folder), force=force)
        self.steps = steps
        self.skip = skip
        self.steps_seen = 0
        self.trace: Path | None = None
        self._ranks = None if ranks is None else frozenset(ranks)
        self._shapes, self._memory, self._stacks = record_shapes, record_memory, record_stacks
        self._on_done = on_done
        self._library = library
        self._recording: Recording | None = None
        self._finished = False
        self._hook: Any = None
        self._counted: int | None = None
        self._range: Any = None
        self.ends_ns: deque[int] = deque(maxlen=names.LAST_STEPS + 1)

    @classmethod
    def at_once(cls, asked: Order, folder: Path, steps: int) -> "StepRecorder":
        """One that begins with the next step, and records what an order asks for."""
        return cls(
            folder, steps=steps, skip=0, ranks=asked.ranks, record_shapes=asked.record_shapes,
            record_memory=asked.record_memory, record_stacks=asked.record_stacks,
        )  # fmt: skip

    @property
    def finished(self) -> bool:
        """Whether nothing more is recorded here."""
        return self._finished

    def count_optimizer_steps(self) -> None:
        """Count a step whenever the first optimizer that is seen has stepped."""
        outside_backward.watch()
        self._hook = register_optimizer_step_post_hook(self._optimizer_stepped)

    def _optimizer_stepped(self, optimizer: Any, *_: Any) -> None:
        # A program may use several optimizers, and ZeroRedundancyOptimizer steps one inside
        # itself: the first to be seen stands for the step.
        if self._counted is None:
            self._counted = id(optimizer)
        if id(optimizer) == self._counted:
            outside_backward.run(self.step)

    def step(self) -> None:
        """One training step has ended."""
        self.steps_seen += 1
        if self._finished:
            return
        if self._recording is None:
            self.ends_ns.append(time.perf_counter_ns())
        if self._recording is not None:
            self._next_step(self._recording)
        elif self.steps_seen > self.skip:
            self._start()

    def _start(self) -> None:
        rank, _ = rank_and_world()
        if self._ranks is not None and rank not in self._ranks:
            self._finished = True
            return
        path = files.trace(self.folder, rank)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self._recording = Recording(
            path,
            steps=self.steps,
            device=device,
            metadata=self._metadata,
            record_shapes=self._shapes,
            record_memory=self._memory,
            record_stacks=self._stacks,
        )
        self._recording.__enter__()
        self.trace = path

    def _next_step(self, recording: Recording) -> None:
        if self._range is not None:
            nvtx.end_range(self._range)
        recording.step()
        if recording.done:
            self.close()
        else:
            self._range = nvtx.start_range(
                f"{names.STEP_PREFIX}{self.steps_seen}", domain=names.NVTX_DOMAIN
            )

    def _metadata(self) -> dict[str, Any]:
        before = [end - begin for begin, end in itertools.pairwise(self.ends_ns)]
        # A Trainer builds the wrapper itself, before or after it has its callbacks.
        by = {"built_by": {"ddp": self._library}} if self._library else {}
        return {**by, **_metadata(), **({names.STEPS_BEFORE: before} if before else {})}

    def close(self) -> None:
        """End a recording; what was recorded is written. Safe to call twice."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.__exit__(None, None, None)
            if self._on_done is not None and self.trace is not None and self.trace.exists():
                self._on_done(self.trace)
        self._finished = True

    def __enter__(self) -> "StepRecorder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recorded = self.steps_seen - self.skip - 2 if self._recording is not None else None
        self.close()
        if self._hook is not None:
            self._hook.remove()  # not before: within a hook it would end the job, if one follows
        if kind is not None:
            return
        missing = self._missing()
        if missing is not None:
            warnings.warn(f"nothing was recorded: {missing}", stacklevel=2)
        elif recorded is not None:
            # The step that starts the recording and the profiler's own warm-up are not in it.
            warnings.warn(
                f"recorded {max(0, recorded)} of {self.steps} steps: the program ended after "
                f"{self.steps_seen} steps, before recording finished; lower skip or steps",
                stacklevel=2,
            )

    def _missing(self) -> str | None:
        """Why nothing was recorded; None of a rank that was not asked for."""
        if self.trace is not None:
            return None
        rank, world_size = rank_and_world()
        if self._ranks is not None and rank not in self._ranks:
            if rank or any(asked < world_size for asked in self._ranks):
                return None
            return f"none of the ranks asked for is one of this job (0 to {world_size - 1})"
        if not self.steps_seen:
            return (
                "no step ended in this process; where the script starts its ranks itself: "
                "advisor record -- python train.py"
            )
        return (
            f"the program ended after {self.steps_seen} steps, before recording began "
            f"(after {self.skip}); lower skip"
        )


profiler = StepRecorder
"""By this name the package offers it."""


def _metadata() -> dict[str, Any]:
    rank, world_size = rank_and_world()
    groups = gloo_groups() if dist.is_available() and dist.is_initialized() else []
    found: dict[str, Any] = {
        "strategy": None,
        "compute": "real",
        "host": platform.node(),
        "rank": rank,
        "world_size": world_size,
        "gloo_threads": gloo_threads(groups),
        "environment": environment.variables(),
        "versions": environment.versions(),
    }
    if construction.built:
        found["built"] = construction.built
        found["built_by"] = {name: how["made_by"] for name, how in construction.built.items()}
    if torch.cuda.is_available():
        found["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
    return found
