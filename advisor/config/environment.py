"""What of an environment may be kept: an allow-list."""

import re
from collections.abc import Mapping
from typing import Any

_ALLOWED = re.compile(
    r"^(?!.*(TOKEN|(?<!_P)KEY|SECRET|PASSW|CREDENTIAL|AUTH))(NCCL_[A-Z0-9_]+|RCCL_[A-Z0-9_]+|TORCH_NCCL_[A-Z0-9_]+|"
    r"GLOO_SOCKET_IFNAME|TP_SOCKET_IFNAME|OMP_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|"
    r"CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|PYTORCH_(CUDA_)?ALLOC_CONF|"
    r"TORCH_DISTRIBUTED_DEBUG|FI_PROVIDER|FI_EFA_[A-Z0-9_]+|UCX_TLS|UCX_NET_DEVICES)$"
)


def allowed(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that change communication or computation, and no others; sorted."""
    return {name: environment[name] for name in sorted(environment) if _ALLOWED.match(name)}
