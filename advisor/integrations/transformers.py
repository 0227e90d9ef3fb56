"""A Hugging Face callback that records some training steps: ``Trainer(callbacks=[Recorder()])``."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from advisor.profile.recorder import StepRecorder
from advisor.vocabulary.recorded_steps import STEPS


class Recorder(TrainerCallback):  # type: ignore[misc]
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
            Path(folder), steps=steps, skip=skip, force=force, library="transformers"
        )

    @property
    def trace(self) -> Path | None:
        """This rank's trace, once recording has begun."""
        return self._recorder.trace

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """After an optimizer step (not after a micro-batch)."""
        self._recorder.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Training is over: what was recorded is written."""
        self._recorder.close()
