"""A Lightning callback that records some training steps: ``Trainer(callbacks=[Recorder()])``."""

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from advisor.profile.recorder import StepRecorder
from advisor.vocabulary.recorded_steps import STEPS


class Recorder(Callback):  # type: ignore[misc]
    """Records ``steps`` optimizer steps after ``skip`` into ``folder``, one trace per rank.

    An earlier recording is left there, and the next folder taken; ``force`` removes it.
    """

    def __init__(
        self,
        folder: str | Path = "advisor-traces",
        *,
        steps: int = STEPS,
        skip: int = 10,
        force: bool = False,
    ) -> None:
        self._recorder = StepRecorder(
            Path(folder), steps=steps, skip=skip, force=force, library="lightning"
        )
        self._global_step = 0

    @property
    def trace(self) -> Path | None:
        """This rank's trace, once recording has begun."""
        return self._recorder.trace

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Lightning calls this per micro-batch: a step is over when the global step has moved."""
        if trainer.global_step != self._global_step:
            self._global_step = trainer.global_step
            self._recorder.step()

    def on_train_end(self, *_: Any) -> None:
        """Training is over: what was recorded is written."""
        self._recorder.close()

    def on_exception(self, *_: Any) -> None:
        """Training failed: what was recorded is written."""
        self._recorder.close()
