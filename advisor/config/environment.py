"""What of an environment may be kept: an allow-list, and how names of secrets are told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ALLOWED = re.compile(
    r"^(?!.*(TOKEN|(?<!_P)KEY|SECRET|PASSW|CREDENTIAL|AUTH))(NCCL_[A-Z0-9_]+|RCCL_[A-Z0-9_]+|TORCH_NCCL_[A-Z0-9_]+|"
    r"GLOO_SOCKET_IFNAME|TP_SOCKET_IFNAME|OMP_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|"
    r"CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|PYTORCH_(CUDA_)?ALLOC_CONF|"
    r"TORCH_DISTRIBUTED_DEBUG|FI_PROVIDER|FI_EFA_[A-Z0-9_]+|UCX_TLS|UCX_NET_DEVICES)$"
)
_SECRET = re.compile(
    r"token(?!iz)|secret|passw|passphrase|credential|bearer|cookie|(?<![a-z])auth(?!or)|"
    r"(?:(?<![a-z])|api|access|private)key(?![a-z])",
    re.IGNORECASE,
)
_ENVIRONMENTS = frozenset({"env", "environ", "environment", "environment_variables"})
_DEEPEST = 100


def allowed(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that change communication or computation, and no others; sorted."""
    return {name: environment[name] for name in sorted(environment) if _ALLOWED.match(name)}


def without_secrets(fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """``fields`` (of a JSON object) to keep, and the names of those left out, as ``a.b``.

    Of an environment, at any depth, the allow-list stays. Elsewhere text is left out, and lists and
    objects are, whose name says token, key, secret or password; numbers and truth values stay.
    """
    out: list[str] = []
    kept = _cleaned(dict(fields), "", out, 0)
    return kept, sorted(set(out))


def _cleaned(fields: dict[str, Any], before: str, out: list[str], depth: int) -> dict[str, Any]:
    kept = {}
    for name, value in fields.items():
        place = f"{before}{name}"
        if name.lower() in _ENVIRONMENTS and isinstance(value, dict):
            kept[name] = allowed(value)
            out += [f"{place}.{variable}" for variable in value if variable not in kept[name]]
        elif isinstance(value, str | list | dict) and value and _SECRET.search(name):
            out.append(place)
        else:
            kept[name] = _inside(value, place, out, depth + 1)
    return kept


def _inside(value: Any, place: str, out: list[str], depth: int) -> Any:
    if depth > _DEEPEST:
        return value if not isinstance(value, list | dict) else None
    if isinstance(value, dict):
        return _cleaned(value, f"{place}.", out, depth)
    if isinstance(value, list):
        return [_inside(item, place, out, depth + 1) for item in value]
    return value
