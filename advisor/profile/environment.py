"""What of the environment goes into a recording: an allow-list, never the whole environment."""

import os
import platform
from collections.abc import Mapping

from advisor.config.environment import allowed


def variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that change communication or computation, and no others."""
    source = os.environ if environment is None else environment
    return allowed(dict(source))


def versions() -> dict[str, str]:
    """Versions of what computes and communicates; empty text where there is none."""
    import torch

    nccl = ""
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "nccl": nccl,
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
