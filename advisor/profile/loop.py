"""The training loop of one rank: warm-up, timed steps, then the same steps under the profiler.

Steps are timed outside the profiled window as well, so that the profiler's own cost is known.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from advisor.config.workload import Workload
from advisor.profile import data, names
from advisor.profile.clock import Clock
from advisor.profile.early_stop import STEPS_BETWEEN_LOOKS, Race
from advisor.profile.models.decoder import next_token_loss
from advisor.profile.ranges import LayerRanges, named
from advisor.profile.recording import Recording
from advisor.profile.strategies.base import Job


@dataclass
class StepTimes:
    """Durations in ns of the steps outside and inside the profiled window, and every loss.

    ``stopped_early``: the trial was losing, so that timed steps and the recording are missing.
    """

    timed_ns: list[int] = field(default_factory=list)
    profiled_ns: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    stopped_early: bool = False


class Loop:
    """Runs a job's steps."""

    def __init__(
        self,
        job: Job,
        layers: LayerRanges,
        *,
        report: Callable[[int, str], None],
        strike: Callable[[int], None],
    ) -> None:
        self.job = job
        self._layers = layers
        self._report = report
        self._strike = strike
        self.steps_done = 0
        self._losses: list[torch.Tensor] = []

    def run(self, recording: Callable[[], Recording], race: Race | None = None) -> StepTimes:
        """All steps of the workload; ``recording`` makes the recorder of the last ones.

        With a ``race`` they end once it is lost.
        """
        workload = self.job.workload
        times = StepTimes()
        for _ in range(workload.warmup_steps):
            self.step()
        times.stopped_early = self._race(workload.timed_steps, times.timed_ns, race)
        if not times.stopped_early:
            with recording() as recorder:
                self.step()
                recorder.step()
                self._timed(workload.steps, times.profiled_ns, after=recorder.step)
        times.losses = [float(loss) for loss in self._losses]
        return times

    def _race(self, steps: int, into: list[int], race: Race | None) -> bool:
        """The timed steps; whether they were ended early. Looks are taken off the clock."""
        if race is None:
            self._timed(steps, into, after=lambda: None)
            return False
        while len(into) < steps:
            self._timed(min(STEPS_BETWEEN_LOOKS, steps - len(into)), into, after=lambda: None)
            if len(into) < steps and race.is_lost(into):
                return True
        return False

    def _timed(self, steps: int, into: list[int], after: Callable[[], None]) -> None:
        clock = Clock(self.job.device)
        clock.mark()
        for number in range(steps):
            self.step()
            clock.mark()
            if number == steps - 1:
                into += clock.durations_ns()
            after()

    def step(self) -> None:
        """One optimizer step on the global batch."""
        number = self.steps_done
        self._report(number, "step")
        self._strike(number)
        self.job.optimizer.zero_grad(set_to_none=True)
        loss = self._pipeline(number) if self.job.schedule else self._accumulate(number)
        for action in self.job.after_backward:
            action()
        self._report(number, "optimizer")
        with named(names.OPTIMIZER):
            self.job.optimizer.step()
        self._report(number, "after")
        for hook in self.job.after_step:
            hook(number)
        if loss is not None:
            self._losses.append(loss)
        self.steps_done += 1

    def _accumulate(self, step: int) -> torch.Tensor:
        workload, (model,) = self.job.workload, self.job.parts
        total = torch.zeros((), device=self.job.device)
        count = workload.gradient_accumulation
        for index, (inputs, labels) in enumerate(self._micro_batches(step)):
            with self.job.micro_batch_context(index == count - 1):
                self._report(step, "forward")
                with named(names.FORWARD), self._autocast():
                    loss = next_token_loss(model(inputs), labels) / count
                self._report(step, "backward")
                with named(names.BACKWARD):
                    loss.backward()
                    self._layers.close()
            total += loss.detach()
        return total

    def _pipeline(self, step: int) -> torch.Tensor | None:
        """One run of the schedule; the loss is known on the last stage only."""
        job = self.job
        batches = list(self._micro_batches(step))
        inputs = torch.cat([pair[0] for pair in batches])
        labels = torch.cat([pair[1] for pair in batches])
        losses: list[torch.Tensor] = []
        self._report(step, "forward")
        arguments = (inputs,) if job.is_first_stage else ()
        targets = {"target": labels, "losses": losses} if job.is_last_stage else {}
        with self._autocast():
            job.schedule.step(*arguments, **targets, return_outputs=False)
        self._layers.close()
        return torch.stack(losses).sum().detach() if losses else None

    def _micro_batches(self, step: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        job, workload = self.job, self.job.workload
        for position in range(workload.gradient_accumulation):
            self._report(step, "data")
            with named(names.DATA):
                inputs, labels = batch(workload, job, step, position)
            yield inputs, labels

    def _autocast(self) -> AbstractContextManager[Any]:
        if not self.job.autocast:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast(
            self.job.device.type, dtype=torch.bfloat16
        )
        return context


def batch(
    workload: Workload, job: Job, step: int, position: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's micro-batch ``position`` of a step, on its device."""
    inputs, labels = data.tokens(
        seed=workload.seed,
        step=step,
        index=position * job.data_ranks + job.data_rank,
        micro_batch=workload.micro_batch,
        sequence_length=workload.sequence_length,
        vocabulary=job.shape.vocabulary,
    )
    if job.device.type == "cuda":
        inputs, labels = inputs.pin_memory(), labels.pin_memory()
    return (inputs.to(job.device, non_blocking=True), labels.to(job.device, non_blocking=True))
