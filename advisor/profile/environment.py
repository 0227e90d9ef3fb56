"""What of the environment goes into a recording: an allow-list, never the whole environment."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping

_ALLOWED = re.compile(
    r"^(?!.*(TOKEN|(?<!_P)KEY|SECRET|PASSW|CREDENTIAL|AUTH))(NCCL_[A-Z0-9_]+|RCCL_[A-Z0-9_]+|TORCH_NCCL_[A-Z0-9_]+|"
    r"GLOO_SOCKET_IFNAME|TP_SOCKET_IFNAME|OMP_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|"
    r"CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|PYTORCH_(CUDA_)?ALLOC_CONF|"
    r"TORCH_DISTRIBUTED_DEBUG|FI_PROVIDER|FI_EFA_[A-Z0-9_]+|UCX_TLS|UCX_NET_DEVICES)$"
)


def variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that change communication or computation, and no others."""
    source = os.environ if environment is None else environment
    return {name: source[name] for name in sorted(source) if _ALLOWED.match(name)}


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
