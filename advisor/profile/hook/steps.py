"""Counts the steps of a script that knows nothing of it, times them, records some and ends it.

A step is over when the optimizer has stepped; several steps after one backward pass (parameter
group by parameter group, or a second optimizer) are one. What backward passes start from is kept as
the step's loss where it is one number.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import resource
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from advisor.profile import names, outside_backward
from advisor.profile.hook import construction, order
from advisor.vocabulary.recorded_steps import TRIAL_ENDS

if TYPE_CHECKING:
    from advisor.profile.recorder import StepRecorder

_ALIVE_EVERY_S = 0.5
_ASKED_S = 5.0  # from asking a script to stop to making it
_HOST_OF_STORE_S = 0.5  # rank 0 may host the store that the others read last


def count(asked: order.Order) -> None:
    """From here on this process's optimizer steps are counted."""
    Steps(asked).watch()


class Steps:
    """One process's part of an order; it does nothing before the first optimizer step."""

    def __init__(self, asked: order.Order) -> None:
        self.asked = asked
        self.folder = Path(asked.folder)
        self.seen = 0
        self.timed_ns: list[int] = []
        self.stopped_early = False
        self.over = False
        self.micro_batches = 0
        self._losses: list[torch.Tensor] = []
        self._backwards = 0
        self._pending: list[torch.Tensor] = []
        self._optimizer: int | None = None
        self._alive_at = 0.0
        self._clock: Any = None
        self._in_chunk = 0
        self._race: Any = None
        self._ends_ns: deque[int] = deque(maxlen=names.LAST_STEPS)  # the recorder adds its own
        self._recorder: StepRecorder | None = None
        self._watches: list[Any] = []

    def watch(self) -> None:
        """Hear of every backward pass and of every optimizer's step."""
        backward = torch.autograd.backward

        @functools.wraps(backward)
        def counted(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._backwards += 1
            # Only trials compare losses: a job that is watched for days would keep all of them.
            if self.asked.ends and isinstance(tensors, torch.Tensor) and tensors.numel() == 1:
                self._pending.append(tensors.detach())
            return backward(tensors, *args, **kwargs)

        torch.autograd.backward = counted
        outside_backward.watch()
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self.over:  # taken out of torch's hooks here, it would end the job: others follow it
            return
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if id(optimizer) != self._optimizer or (self.seen and not self._backwards):
            return
        self.micro_batches = max(self.micro_batches, self._backwards)
        if self._pending:
            self._losses.append(torch.stack([p.float() for p in self._pending]).mean())
        self._backwards, self._pending = 0, []
        self.seen += 1
        outside_backward.run(self._ended)

    def _ended(self) -> None:
        """A step has ended, and no backward pass runs."""
        try:
            if self.asked.every or self.asked.on_demand:
                self._keep_watch()  # nobody waits for its steps
            else:
                self._show_life()
                self._step()
        except Exception as error:  # no memory, a folder that is full, read-only or gone
            if self.asked.ends:
                raise
            # A job that is only recorded goes on, as if nobody had asked.
            self.over = True
            said = str(error) or type(error).__name__
            print(f"advisor: recording ends here, the job goes on: {said}", file=sys.stderr)

    def _keep_watch(self) -> None:
        """A job that is watched as long as it runs: no steps of it are timed."""
        if self.seen == 1:
            from advisor.profile.hook.lateness import Watch
            from advisor.profile.hook.on_demand import OnDemand

            rank, world = _rank_and_world()
            if self.asked.every and (store := _store()) is not None:
                self._watches.append(Watch(self.folder, self.asked.every, store, rank, world))
            if self.asked.on_demand:
                self._watches.append(OnDemand(self.asked, rank, world))
            return
        for watch in self._watches:
            watch.step(self.seen)

    def _step(self) -> None:
        if self.seen == 1:
            # What is imported here is not imported between two timed steps.
            from advisor.profile import clock, early_stop, recorder  # noqa: F401

            construction.after_first_step()
        if self._recorder is not None:
            self._recorder.step()
            if self._recorder.finished:
                self._finish()
        elif self.seen >= max(self.asked.warmup, 1):
            self._time()
        if self._recorder is None:
            self._ends_ns.append(time.perf_counter_ns())

    def _time(self) -> None:
        """A boundary of timed steps; after the last one recording begins."""
        from advisor.profile.clock import Clock
        from advisor.profile.early_stop import STEPS_BETWEEN_LOOKS

        if not self.asked.steps:
            self._record()
            return
        if self._clock is None:
            self._clock = Clock(torch.device(_device()))
            self._clock.mark()
            return
        self._clock.mark()
        self._in_chunk += 1
        done = len(self.timed_ns) + self._in_chunk
        if done < self.asked.steps and self._in_chunk < STEPS_BETWEEN_LOOKS:
            return
        self.timed_ns += self._clock.durations_ns()
        self._clock, self._in_chunk = Clock(torch.device(_device())), 0
        if done >= self.asked.steps:
            self._record()
            return
        self.stopped_early = self._is_lost()
        if self.stopped_early:
            self._finish()
        self._clock.mark()

    def _is_lost(self) -> bool:
        """Whether the ranks agree that this trial has lost; one rank alone needs no agreement."""
        from advisor.profile.early_stop import Race, surely_at_least_ns

        if self.asked.stop_above_ns is None:
            return False
        store = _store()
        if store is None:
            return surely_at_least_ns(self.timed_ns) > self.asked.stop_above_ns
        rank, world = _rank_and_world()
        if self._race is None:
            self._race = Race(store, rank, world, self.asked.stop_above_ns)
        return bool(self._race.is_lost(self.timed_ns))

    def _record(self) -> None:
        from advisor.profile.recorder import StepRecorder

        if not self.asked.traced:
            self._finish()
            return
        self._recorder = StepRecorder.at_once(self.asked, self.folder, self.asked.traced)
        self._recorder.ends_ns.extend(self._ends_ns)
        # A script that ends first keeps what was recorded of it.
        atexit.register(self._recorder.close)
        self._recorder.step()

    def _finish(self) -> None:
        """Everything that was asked for is there: write it, and end where that was asked for."""
        self.over = True
        atexit.unregister(self._note_steps)
        rank, world = _rank_and_world()
        self._write(rank, world)
        if not self.asked.ends:
            return
        _await_all(rank, world, self.asked.timeout_s)
        _leave()

    def _write(self, rank: int, world: int) -> None:
        from advisor.profile import environment, files

        document = {
            "rank": rank,
            "world_size": world,
            "timed_ns": self.timed_ns,
            "stopped_early": self.stopped_early,
            "losses": [float(loss) for loss in self._losses],
            "micro_batches": self.micro_batches,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "device": _device(),
            "backend": _backend(),
            "built": construction.built,
            "environment": environment.variables(),
            "versions": environment.versions(),
        }
        if torch.cuda.is_initialized():
            document["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        files.write_json(files.result(self.folder, rank), document)

    def _show_life(self) -> None:
        now = time.monotonic()
        if now - self._alive_at >= _ALIVE_EVERY_S:
            if not self._alive_at:  # how many there were, where a script ends before the next time
                atexit.register(self._note_steps, _rank_and_world()[0])
            self._alive_at = now
            self._note_steps(_rank_and_world()[0])

    def _note_steps(self, rank: int) -> None:
        with contextlib.suppress(FileNotFoundError):  # at exit the folder may be gone
            order.alive(self.folder, rank).write_text(str(self.seen), encoding="utf-8")


def _leave() -> NoReturn:
    """Ask the script to stop; what does not is made to, and destructors that hang are not awaited.

    SystemExit runs the script's own ``finally`` blocks; a script that swallows it, or a step that
    runs in autograd's thread, ends by the timer.
    """
    made_to = threading.Timer(_ASKED_S, os._exit, (0,))
    made_to.daemon = True
    made_to.start()
    print(TRIAL_ENDS, file=sys.stderr)
    raise SystemExit(0)


def _await_all(rank: int, world: int, timeout_s: float) -> None:
    """Leave together: a rank that is still in a collective would lose its peer."""
    import datetime

    store = _store()
    if store is None:
        return
    store.set(f"done/{rank}", "1")
    try:
        store.wait([f"done/{r}" for r in range(world)], datetime.timedelta(seconds=timeout_s))
    except RuntimeError as error:
        print(f"advisor: rank {rank} did not wait for the others: {error}", file=sys.stderr)
    if rank == 0:
        time.sleep(_HOST_OF_STORE_S)


def _store() -> Any:
    """The job's own store, under a prefix of ours; None without a process group."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
        return None
    return dist.PrefixStore("advisor", dist.distributed_c10d._get_default_store())


def _rank_and_world() -> tuple[int, int]:
    from advisor.profile.recorder import rank_and_world

    return rank_and_world()


def _backend() -> str:
    import torch.distributed as dist

    return str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else ""


def _device() -> str:
    return "cuda" if torch.cuda.is_initialized() else "cpu"
