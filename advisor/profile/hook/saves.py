"""A trial writes no checkpoint: the job's own, of days of training, are where it would write.

The functions below do nothing but say so once. What a script writes by other means it writes; a
``{trial}`` in its command stands for a folder of the trial's own.
"""

import sys
from types import ModuleType
from typing import Any

# Module: the functions (or Class.method) in it that write a checkpoint.
WRITERS: dict[str, tuple[str, ...]] = {
    "torch": ("save",),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "safetensors.torch": ("save_file",),
    "transformers.trainer": ("Trainer._save_checkpoint", "Trainer.save_model"),
    "lightning.pytorch.trainer.trainer": ("Trainer.save_checkpoint",),
    "pytorch_lightning.trainer.trainer": ("Trainer.save_checkpoint",),
    # Its file `latest` would name a checkpoint that was not written: a job resumed from it fails.
    "deepspeed.runtime.engine": (
        "DeepSpeedEngine.save_checkpoint",
        "DeepSpeedEngine.save_16bit_model",
    ),
}
_said: set[str] = set()


def suppress(module: ModuleType) -> None:
    """Replace the writers of ``module``."""
    for path in WRITERS[module.__name__]:
        *parents, last = path.split(".")
        owner: Any = module
        for parent in parents:
            owner = getattr(owner, parent)
        if hasattr(owner, last):
            setattr(owner, last, _silent(f"{module.__name__}.{path}"))


def _silent(name: str) -> Any:
    def skip(*_: Any, **__: Any) -> None:
        if name not in _said:
            _said.add(name)
            print(f"advisor: a trial writes no checkpoint: {name} skipped", file=sys.stderr)

    return skip
